"""BERT: `BertForMaskedLM`, and of `BertForPreTraining` all but the second head."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from torch import Tensor

from foreword.interop.family import Carry, Design, Family, Table
from foreword.interop.hf import _encoder as encoder
from foreword.types import Vocab


@dataclass(frozen=True)
class Bert(Family):
    """BERT (Devlin et al. 2019): an encoder with a head for hidden tokens.

    The pooler and the head for the next sentence are not taken over.
    """

    architecture = "BertForMaskedLM"
    layout = "encoder"
    prefix = "bert."
    embedding = "bert.embeddings.word_embeddings.weight"
    names = (*encoder.NAMES, encoder.ACTIVATION, encoder.PLACES, encoder.SEGMENTS)
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

    def objective(self, weights: Mapping[str, Tensor]) -> Table:
        """Masked tokens."""
        return {"kind": "masked"}

    def packing(self, table: Table) -> Table:
        """A text between [CLS] and [SEP]."""
        return encoder.wrapped(table)

    def carries(self, design: Design, vocab: Vocab) -> Iterator[Carry]:
        """The table."""
        yield from encoder.body(design, self.prefix)
        yield encoder.position(self.prefix)
        yield encoder.segment(self.prefix)
        transform = "cls.predictions.transform"
        yield from encoder.head(
            f"{transform}.dense", f"{transform}.LayerNorm", "cls.predictions.bias"
        )

    def copies(self, design: Design) -> Mapping[str, str]:
        """The output layer is the embedding."""
        return {
            "cls.predictions.decoder.weight": self.embedding,
            "cls.predictions.decoder.bias": "cls.predictions.bias",
        }

    def is_buffer(self, name: str) -> bool:
        """The numbers 0, 1, 2, ..."""
        return name == "bert.embeddings.position_ids"

    def left(self, names: Iterable[str]) -> list[str]:
        """The pooler and the second head."""
        return [n for n in names if n.startswith(("bert.pooler.", "cls.seq_relationship."))]
