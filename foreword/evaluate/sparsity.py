"""Sparsity of n-grams: most long word sequences of a new text were never seen before."""

from __future__ import annotations

from dataclasses import dataclass

from foreword.data.shards import Shards
from foreword.evaluate.prompting import PromptedModel
from foreword.models.ngram import table_of
from foreword.ngrams.texts import NgramTexts, measure


@dataclass(frozen=True)
class OrderSparsity:
    """The n-grams of one order, in a count-based model and in a text.

    Attributes:
        order: n.
        ngrams: how many different ones the model holds.
        bytes: their size.
        tested: how many the text has, repeated ones too.
        unseen: of these, the share that the model does not hold; nan where the text has none.
    """

    order: int
    ngrams: int
    bytes: int
    tested: int
    unseen: float

    def as_row(self) -> dict[str, float | int | str | None]:
        """Flat, for tables and JSON."""
        return {
            "order": self.order,
            "n-grams in the model": self.ngrams,
            "megabytes": self.bytes / 1e6,
            "n-grams in the text": self.tested,
            "never seen": self.unseen if self.tested else None,
        }


def by_order(prompted: PromptedModel, shards: Shards) -> list[OrderSparsity]:
    """Return how much of a text a count-based model has seen, and its size, by order.

    Args:
        prompted: a count-based model.
        shards: the text.
    """
    table = table_of(prompted.model)
    found = measure(table, NgramTexts.of(shards, prompted.vocab, *prompted.recipe.wrapping))
    pairs = zip(found.ngrams.tolist(), found.unseen.tolist(), strict=True)
    return [
        OrderSparsity(n, table.size_of(n), table.bytes_of(n), tested, unseen / max(1, tested))
        for n, (tested, unseen) in enumerate(pairs, start=1)
    ]
