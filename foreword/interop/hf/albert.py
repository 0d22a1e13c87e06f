"""ALBERT: `AlbertForPreTraining` with its two heads, `AlbertForMaskedLM` with one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from torch import Tensor

from foreword.interop.family import Design, Family, ParameterMap, SettingMap, Table, map_each
from foreword.interop.hf import _encoder as encoder
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

    A pooler without the head for the order of sentences is not taken over.
    """

    architecture = "AlbertForMaskedLM"
    layout = "encoder"
    prefix = "albert."
    embedding = "albert.embeddings.word_embeddings.weight"
    names = (
        *encoder.NAMES,
        SettingMap("activation", "hidden_act", "gelu_new", encoder.ACTIVATIONS),
        SettingMap("d_embedding", "embedding_size", 128),
        encoder.PLACES,
        encoder.SEGMENTS,
    )
    fixed = MappingProxyType({**encoder.FIXED, "share": "all"})
    neutral = MappingProxyType(
        {
            **encoder.NEUTRAL,
            "inner_group_num": 1,
            "num_hidden_groups": 1,
            "num_memory_blocks": 0,
            "gap_size": 0,
            "net_structure_type": 0,
            "down_scale_factor": 1,
        }
    )
    idle = ("classifier_dropout_prob",)

    def architecture_of(self, design: Design) -> str:
        """With the second head, where the objective has it."""
        return "AlbertForPreTraining" if encoder.has_pair_head(design) else self.architecture

    def objective(self, weights: Mapping[str, Tensor]) -> Table:
        """Masked tokens, and the order of sentences where there is a head for it."""
        if POOLER in weights and OUTPUT in weights:
            return {"kind": "sum", "terms": [{"kind": "masked"}, {"kind": "sentence_order"}]}
        return {"kind": "masked"}

    def packing(self, table: Table, weights: Mapping[str, Tensor]) -> Table:
        """A text between [CLS] and [SEP], or two."""
        if POOLER in weights and OUTPUT in weights:
            return {**encoder.in_pairs(table), "random": 0.0}
        return encoder.wrapped(table)

    def has_memory(self, design: Design, vocab: Vocab) -> Iterator[ParameterMap]:
        """The table."""
        yield from encoder.embeddings(self.prefix)
        yield encoder.position(self.prefix)
        yield encoder.segment(self.prefix)
        stack = f"{self.prefix}encoder."
        widen = {"projection": "embedding_hidden_mapping_in"}
        yield from map_each(widen, "backbone.embedding.", stack)
        only = f"{stack}albert_layer_groups.0.albert_layers.0."
        yield from map_each(BLOCK, "backbone.stack.blocks.0.", only)
        if encoder.has_pair_head(design):
            yield from encoder.pair_head("albert.pooler", "sop_classifier.classifier")
        yield from encoder.head("predictions.dense", "predictions.LayerNorm", "predictions.bias")

    def copies(self, design: Design) -> Mapping[str, str]:
        """The output layer is the embedding."""
        return {
            "predictions.decoder.weight": self.embedding,
            "predictions.decoder.bias": "predictions.bias",
        }

    def is_buffer(self, name: str) -> bool:
        """The numbers 0, 1, 2, ..."""
        return name == "albert.embeddings.position_ids"

    def left(self, names: Iterable[str]) -> list[str]:
        """One half of the second head."""
        return [n for n in names if n.startswith(("albert.pooler.", "sop_classifier."))]
