"""BERT: `BertForPreTraining` with its two heads, `BertForMaskedLM` with one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

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
)
from foreword.types import Vocab

POOLER, OUTPUT = "bert.pooler.dense.weight", "cls.seq_relationship.weight"


@dataclass(frozen=True)
class BERT(Family):
    """BERT and SpanBERT (Devlin et al. 2019; Joshi et al. 2020): an encoder with one head or two.

    The heads predict masked tokens and pairs. A pooler without the head for the next sentence is
    not imported.
    """

    architecture = "BertForMaskedLM"
    layout = "encoder"
    prefix = "bert."
    embedding = "bert.embeddings.word_embeddings.weight"
    linear_heads = LINEAR_HEADS
    setting_maps = (
        *encoder.SETTING_MAPS,
        SettingMap("activation", "hidden_act", "gelu", encoder.ACTIVATIONS),
        encoder.POSITIONS,
        encoder.SEGMENTS,
    )
    fixed = encoder.FIXED
    supported_values = encoder.SUPPORTED_VALUES
    ignored_keys = (
        "directionality",
        "pooler_fc_size",
        "pooler_num_attention_heads",
        "pooler_num_fc_layers",
        "pooler_size_per_head",
        "pooler_type",
    )

    def architecture_of(self, design: Design) -> str:
        """Return the class with the second head if the objective has it."""
        return "BertForPreTraining" if encoder.has_pair_head(design) else self.architecture

    def objective(self, weights: Mapping[str, Tensor]) -> Table:
        """Return masked language modelling, with the next sentence if the file has its head."""
        if POOLER in weights and OUTPUT in weights:
            return {"kind": "sum", "terms": [{"kind": "masked"}, {"kind": "next_sentence"}]}
        return {"kind": "masked"}

    def packing(self, table: Table, weights: Mapping[str, Tensor]) -> Table:
        """Return rows of one text between [CLS] and [SEP], or of a pair."""
        is_pair = POOLER in weights and OUTPUT in weights
        return encoder.pair_packing(table) if is_pair else encoder.document_packing(table)

    def parameter_maps(self, design: Design, vocab: Vocab) -> Iterator[ParameterMap]:
        yield from encoder.backbone(design, self.prefix)
        yield encoder.position(self.prefix)
        yield encoder.segment(self.prefix)
        if encoder.has_pair_head(design):
            yield from encoder.pair_head("bert.pooler.dense", "cls.seq_relationship")
        yield from encoder.bert_head()

    def classifier(self, design: Design) -> PublishedHead:
        """Return the class whose head reads the first state."""
        return PublishedHead(
            "BertForSequenceClassification",
            "classifier",
            hidden_layer="tanh",
            dense="bert.pooler.dense",
        )

    def choice_head(self, design: Design) -> PublishedHead:
        """Return the class, whose head is that of the text classifier with one output."""
        return self.classifier(design).of("MultipleChoice")

    def tied_tensors(self, design: Design) -> Mapping[str, str]:
        """Return the output layer, which is tied to the embedding."""
        return encoder.bert_copies(self.embedding)

    def is_buffer(self, name: str) -> bool:
        """Return whether it is the buffer of position ids."""
        return name == "bert.embeddings.position_ids"

    def dropped_tensors(self, names: Iterable[str]) -> list[str]:
        """Return the tensors of an incomplete second head."""
        return [n for n in names if n.startswith(("bert.pooler.", "cls.seq_relationship."))]
