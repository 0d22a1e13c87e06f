"""BERT: `BertForPreTraining` with its two heads, `BertForMaskedLM` with one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from torch import Tensor

from foreword.interop.family import Design, Family, ParameterMap, SettingMap, Table
from foreword.interop.hf import _encoder as encoder
from foreword.types import Vocab

POOLER, OUTPUT = "bert.pooler.dense.weight", "cls.seq_relationship.weight"


@dataclass(frozen=True)
class BERT(Family):
    """BERT and SpanBERT (Devlin et al. 2019; Joshi et al. 2020): an encoder with one head or two.

    They are for hidden tokens and for pairs. A pooler without the head for the next sentence is
    not taken over.
    """

    architecture = "BertForMaskedLM"
    layout = "encoder"
    prefix = "bert."
    embedding = "bert.embeddings.word_embeddings.weight"
    names = (
        *encoder.NAMES,
        SettingMap("activation", "hidden_act", "gelu", encoder.ACTIVATIONS),
        encoder.PLACES,
        encoder.SEGMENTS,
    )
    fixed = encoder.FIXED
    neutral = encoder.NEUTRAL
    idle = (
        "directionality",
        "pooler_fc_size",
        "pooler_num_attention_heads",
        "pooler_num_fc_layers",
        "pooler_size_per_head",
        "pooler_type",
    )

    def architecture_of(self, design: Design) -> str:
        """With the second head, where the objective has it."""
        return "BertForPreTraining" if encoder.has_pair_head(design) else self.architecture

    def objective(self, weights: Mapping[str, Tensor]) -> Table:
        """Masked tokens, and the next sentence where there is a head for it."""
        if POOLER in weights and OUTPUT in weights:
            return {"kind": "sum", "terms": [{"kind": "masked"}, {"kind": "next_sentence"}]}
        return {"kind": "masked"}

    def packing(self, table: Table, weights: Mapping[str, Tensor]) -> Table:
        """A text between [CLS] and [SEP], or two."""
        is_pair = POOLER in weights and OUTPUT in weights
        return encoder.in_pairs(table) if is_pair else encoder.wrapped(table)

    def has_memory(self, design: Design, vocab: Vocab) -> Iterator[ParameterMap]:
        """The table."""
        yield from encoder.body(design, self.prefix)
        yield encoder.position(self.prefix)
        yield encoder.segment(self.prefix)
        if encoder.has_pair_head(design):
            yield from encoder.pair_head("bert.pooler.dense", "cls.seq_relationship")
        yield from encoder.bert_head()

    def copies(self, design: Design) -> Mapping[str, str]:
        """The output layer is the embedding."""
        return encoder.bert_copies(self.embedding)

    def is_buffer(self, name: str) -> bool:
        """The numbers 0, 1, 2, ..."""
        return name == "bert.embeddings.position_ids"

    def left(self, names: Iterable[str]) -> list[str]:
        """One half of the second head."""
        return [n for n in names if n.startswith(("bert.pooler.", "cls.seq_relationship."))]
