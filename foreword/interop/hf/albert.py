"""ALBERT: `AlbertForPreTraining` with its two heads, `AlbertForMaskedLM` with one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from torch import Tensor

from foreword.interop.hf import _encoder as encoder
from foreword.interop.hf._contract import (
    LINEAR_HEADS,
    Design,
    Family,
    ParameterMap,
    PublishedHead,
    SettingMap,
    Table,
    map_each,
)
from foreword.types import Vocab

BLOCK = {
    "attention.query": "attention.query",
    "attention.key_value": "attention.key attention.value",
    "attention.output": "attention.dense",
    "attention_norm": "attention.LayerNorm",
    "feedforward.up": "ffn",
    "feedforward.down": "ffn_output",
    "feedforward_norm": "full_layer_layer_norm",
}

POOLER, OUTPUT = "albert.pooler.weight", "sop_classifier.classifier.weight"


@dataclass(frozen=True)
class ALBERT(Family):
    """ALBERT (Lan et al. 2020): one block for all layers, narrow embeddings.

    A pooler without the head for the order of sentences is not imported.
    """

    architecture = "AlbertForMaskedLM"
    layout = "encoder"
    prefix = "albert."
    embedding = "albert.embeddings.word_embeddings.weight"
    linear_heads = LINEAR_HEADS
    setting_maps = (
        *encoder.SETTING_MAPS,
        SettingMap("activation", "hidden_act", "gelu_new", encoder.ACTIVATIONS),
        SettingMap("d_embedding", "embedding_size", 128),
        encoder.POSITIONS,
        encoder.SEGMENTS,
    )
    fixed = MappingProxyType({**encoder.FIXED, "share": "all"})
    supported_values = MappingProxyType(
        {
            **encoder.SUPPORTED_VALUES,
            "inner_group_num": 1,
            "num_hidden_groups": 1,
            "num_memory_blocks": 0,
            "gap_size": 0,
            "net_structure_type": 0,
            "down_scale_factor": 1,
        }
    )
    ignored_keys = ("classifier_dropout_prob",)

    def architecture_of(self, design: Design) -> str:
        """Return the class with the second head if the objective has it."""
        return "AlbertForPreTraining" if encoder.has_pair_head(design) else self.architecture

    def objective(self, weights: Mapping[str, Tensor]) -> Table:
        """Return masked language modelling, with sentence order if the file has its head."""
        if POOLER in weights and OUTPUT in weights:
            return {"kind": "sum", "terms": [{"kind": "masked"}, {"kind": "sentence_order"}]}
        return {"kind": "masked"}

    def packing(self, table: Table, weights: Mapping[str, Tensor]) -> Table:
        """Return rows of one text between [CLS] and [SEP], or of a pair."""
        if POOLER in weights and OUTPUT in weights:
            return {**encoder.pair_packing(table), "random": 0.0}
        return encoder.document_packing(table)

    def parameter_maps(self, design: Design, vocab: Vocab) -> Iterator[ParameterMap]:
        yield from encoder.embeddings(self.prefix)
        yield encoder.position(self.prefix)
        yield encoder.segment(self.prefix)
        stack = f"{self.prefix}encoder."
        projection = {"projection": "embedding_hidden_mapping_in"}
        yield from map_each(projection, "backbone.embedding.", stack)
        only = f"{stack}albert_layer_groups.0.albert_layers.0."
        yield from map_each(BLOCK, "backbone.stack.blocks.0.", only)
        if encoder.has_pair_head(design):
            yield from encoder.pair_head("albert.pooler", "sop_classifier.classifier")
        yield from encoder.head("predictions.dense", "predictions.LayerNorm", "predictions.bias")

    def classifier(self, design: Design) -> PublishedHead:
        """Return the class whose head reads the first state."""
        return PublishedHead(
            "AlbertForSequenceClassification",
            "classifier",
            hidden_layer="tanh",
            dense="albert.pooler",
        )

    def choice_head(self, design: Design) -> PublishedHead:
        """Return the class, whose head is that of the text classifier with one output."""
        return self.classifier(design).of("MultipleChoice")

    def tied_tensors(self, design: Design) -> Mapping[str, str]:
        """Return the output layer, which is tied to the embedding."""
        return {
            "predictions.decoder.weight": self.embedding,
            "predictions.decoder.bias": "predictions.bias",
        }

    def is_buffer(self, name: str) -> bool:
        """Return whether it is the buffer of position ids."""
        return name == "albert.embeddings.position_ids"

    def dropped_tensors(self, names: Iterable[str]) -> list[str]:
        """Return the tensors of an incomplete second head."""
        return [n for n in names if n.startswith(("albert.pooler.", "sop_classifier."))]
