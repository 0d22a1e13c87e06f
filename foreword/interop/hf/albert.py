"""ALBERT: `AlbertForPreTraining` with its two heads, `AlbertForMaskedLM` with one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from torch import Tensor

from foreword.interop.hf import _contract as hf
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
class ALBERT(hf.Family):
    """ALBERT (Lan et al. 2020): one block for all layers, narrow embeddings.

    A pooler without the head for the order of sentences is not imported.
    """

    names = encoder.names(
        "AlbertForMaskedLM",
        "albert.",
        dropped=("albert.pooler.*", "sop_classifier.*"),
    )
    keys = hf.ConfigKeys(
        maps=(
            *encoder.SETTING_MAPS,
            hf.SettingMap("activation", "hidden_act", "gelu_new", encoder.ACTIVATIONS),
            hf.SettingMap("d_embedding", "embedding_size", 128),
            encoder.POSITIONS,
            encoder.SEGMENTS,
        ),
        fixed={**encoder.FIXED, "share": "all"},
        supported={
            **encoder.SUPPORTED_VALUES,
            "inner_group_num": 1,
            "num_hidden_groups": 1,
            "num_memory_blocks": 0,
            "gap_size": 0,
            "net_structure_type": 0,
            "down_scale_factor": 1,
        },
        ignored=("classifier_dropout_prob",),
    )

    def architecture_of(self, design: hf.Design) -> str:
        """Return the class with the second head if the objective has it."""
        return "AlbertForPreTraining" if encoder.has_pair_head(design) else self.names.architecture

    def objective(self, weights: Mapping[str, Tensor], models: Mapping[str, hf.Table]) -> hf.Table:
        """Return masked language modelling, with sentence order if the file has its head."""
        if POOLER in weights and OUTPUT in weights:
            return {"kind": "sum", "terms": [{"kind": "masked"}, {"kind": "sentence_order"}]}
        return {"kind": "masked"}

    def packing(self, table: hf.Table, weights: Mapping[str, Tensor]) -> hf.Table:
        """Return rows of one text between [CLS] and [SEP], or of a pair."""
        if POOLER in weights and OUTPUT in weights:
            return {**encoder.pair_packing(table), "random": 0.0}
        return encoder.document_packing(table)

    def tensors(self, design: hf.Design, vocab: Vocab) -> hf.TensorMaps:
        prefix = self.names.prefix
        projection = {"projection": "embedding_hidden_mapping_in"}
        only = f"{prefix}encoder.albert_layer_groups.0.albert_layers.0."
        maps = [
            *encoder.embeddings(prefix),
            encoder.position(prefix),
            encoder.segment(prefix),
            *hf.map_each(projection, "backbone.embedding.", f"{prefix}encoder."),
            *hf.map_each(BLOCK, "backbone.stack.blocks.0.", only),
            *encoder.head("predictions.dense", "predictions.LayerNorm", "predictions.bias"),
        ]
        if encoder.has_pair_head(design):
            maps += encoder.pair_head("albert.pooler", "sop_classifier.classifier")
        return hf.TensorMaps(
            tuple(maps),
            tied={
                "predictions.decoder.weight": self.names.embedding,
                "predictions.decoder.bias": "predictions.bias",
            },
        )

    def heads(self, design: hf.Design) -> Mapping[str, hf.PublishedHead]:
        """Return linear maps of tokens, and heads that read the first state through the pooler."""
        head = hf.PublishedHead("classifier", hidden_layer="tanh", dense="albert.pooler")
        return {**hf.LINEAR_HEADS, "SequenceClassification": head, "MultipleChoice": head}
