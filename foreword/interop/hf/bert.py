"""BERT: `BertForPreTraining` with its two heads, `BertForMaskedLM` with one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from torch import Tensor

from foreword.interop.hf import _contract as hf
from foreword.interop.hf import _encoder as encoder
from foreword.types import Vocab

POOLER, OUTPUT = "bert.pooler.dense.weight", "cls.seq_relationship.weight"


@dataclass(frozen=True)
class BERT(hf.Family):
    """BERT and SpanBERT (Devlin et al. 2019; Joshi et al. 2020): an encoder with one head or two.

    The heads predict masked tokens and pairs. A pooler without the head for the next sentence is
    not imported.
    """

    names = encoder.names(
        "BertForMaskedLM",
        "bert.",
        dropped=("bert.pooler.*", "cls.seq_relationship.*"),
    )
    keys = hf.ConfigKeys(
        maps=(
            *encoder.SETTING_MAPS,
            hf.SettingMap("activation", "hidden_act", "gelu", encoder.ACTIVATIONS),
            encoder.POSITIONS,
            encoder.SEGMENTS,
        ),
        fixed=encoder.FIXED,
        supported=encoder.SUPPORTED_VALUES,
        ignored=(
            "directionality",
            "pooler_fc_size",
            "pooler_num_attention_heads",
            "pooler_num_fc_layers",
            "pooler_size_per_head",
            "pooler_type",
        ),
    )

    def architecture_of(self, design: hf.Design) -> str:
        """Return the class with the second head if the objective has it."""
        return "BertForPreTraining" if encoder.has_pair_head(design) else self.names.architecture

    def objective(self, weights: Mapping[str, Tensor], models: Mapping[str, hf.Table]) -> hf.Table:
        """Return masked language modelling, with the next sentence if the file has its head."""
        if POOLER in weights and OUTPUT in weights:
            return {"kind": "sum", "terms": [{"kind": "masked"}, {"kind": "next_sentence"}]}
        return {"kind": "masked"}

    def packing(self, table: hf.Table, weights: Mapping[str, Tensor]) -> hf.Table:
        """Return rows of one text between [CLS] and [SEP], or of a pair."""
        is_pair = POOLER in weights and OUTPUT in weights
        return encoder.pair_packing(table) if is_pair else encoder.document_packing(table)

    def tensors(self, design: hf.Design, vocab: Vocab) -> hf.TensorMaps:
        maps = [
            *encoder.backbone(design, self.names.prefix),
            encoder.position(self.names.prefix),
            encoder.segment(self.names.prefix),
            *encoder.bert_head(),
        ]
        if encoder.has_pair_head(design):
            maps += encoder.pair_head("bert.pooler.dense", "cls.seq_relationship")
        return hf.TensorMaps(tuple(maps), tied=encoder.bert_copies(self.names.embedding))

    def heads(self, design: hf.Design) -> Mapping[str, hf.PublishedHead]:
        """Return linear maps of tokens, and heads that read the first state through the pooler."""
        head = hf.PublishedHead("classifier", hidden_layer="tanh", dense="bert.pooler.dense")
        return {**hf.LINEAR_HEADS, "SequenceClassification": head, "MultipleChoice": head}
