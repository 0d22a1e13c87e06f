"""Sparsity of n-grams: most long word sequences of a new text are unseen."""

from __future__ import annotations

from dataclasses import dataclass

from foreword.data.shards import Shards
from foreword.models.ngram import table_of
from foreword.ngrams.texts import NgramTexts, measure
from foreword.runs.trained_model import TrainedModel


@dataclass(frozen=True)
class OrderSparsity:
    """The n-grams of one order, in a count-based model and in a text.

    Attributes:
        order: the order n.
        ngrams: the number of different n-grams in the model.
        bytes: their size in memory.
        tested: the number of n-grams in the text, with repetitions.
        unseen: the share of these that are not in the model; 0 if the text has none.
    """

    order: int
    ngrams: int
    bytes: int
    tested: int
    unseen: float

    def as_row(self) -> dict[str, float | int | str | None]:
        """Return a row of a table or of JSON."""
        return {
            "order": self.order,
            "n-grams in the model": self.ngrams,
            "megabytes": self.bytes / 1e6,
            "n-grams in the text": self.tested,
            "never seen": self.unseen if self.tested else None,
        }


def by_order(prompted: TrainedModel, shards: Shards) -> list[OrderSparsity]:
    """Return how much of a text a count-based model has seen, and its size, by order.

    Args:
        prompted: a count-based model.
        shards: the text.
    """
    table = table_of(prompted.model)
    loss = measure(table, NgramTexts.of(shards, prompted.vocab, *prompted.recipe.bos_and_eos))
    pairs = zip(loss.ngrams.tolist(), loss.unseen.tolist(), strict=True)
    return [
        OrderSparsity(n, table.size_of(n), table.bytes_of(n), tested, unseen / max(1, tested))
        for n, (tested, unseen) in enumerate(pairs, start=1)
    ]
