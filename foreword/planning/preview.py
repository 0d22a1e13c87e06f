"""A decoded batch: what the model reads, what is masked, and what it predicts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np

from foreword.text.tokenizer import Tokenizer
from foreword.train.feed import Feed
from foreword.types import Array, Batch, CausalRows, PredictionOrder, Queries, Vocab

ROLES: Mapping[str, str] = MappingProxyType(
    {
        "masked": "replaced by [MASK]",
        "random": "replaced by a random token",
        "kept": "left as it is, and predicted all the same",
        "sentinel": "stands for a masked span",
        "special": "special token",
        "first": "the first token predicted",
        "predicted": "predicted",
        "unscored": "not predicted",
        "plain": "read as it is",
    }
)


@dataclass(frozen=True)
class PreviewToken:
    """A token and its role: a key of `ROLES`."""

    text: str
    mark: str


@dataclass(frozen=True)
class PreviewRow:
    """One row of a batch.

    Attributes:
        source: the encoder's input; empty without an encoder.
        inputs: the input of the model, or of its decoder.
        targets: what is predicted at each position of the input.
    """

    source: tuple[PreviewToken, ...]
    inputs: tuple[PreviewToken, ...]
    targets: tuple[PreviewToken, ...]


def preview(
    feed: Feed, tokenizer: Tokenizer, rows: int, tokens: int, step: int = 0
) -> list[PreviewRow]:
    """Decode the first rows of a step, exactly as training will see them.

    Args:
        feed: the batches of the run.
        tokenizer: the tokenizer of the run.
        rows: how many to show.
        tokens: maximum positions of each.
        step: the number of the step.
    """
    if not rows:
        return []
    numbers = step * feed.rows_per_step + np.arange(min(rows, feed.rows_per_step))
    example = feed.example(numbers, feed.seed)
    batch = feed.layout.arrange(example, feed.vocab)
    in_place = example.is_aligned and example.part(PredictionOrder) is None
    in_place &= example.part(CausalRows) is None
    return [_row(batch, n, tokens, tokenizer, in_place=in_place) for n in range(len(numbers))]


def _row(batch: Batch, n: int, tokens: int, tokenizer: Tokenizer, *, in_place: bool) -> PreviewRow:
    vocab = tokenizer.vocab
    ids = batch.ids[n, :tokens]
    targets, is_scored = (side[n, :tokens] for side in _in_place(batch))
    marks = _marks(ids, vocab)
    if in_place:
        changes = np.where(ids == targets, "kept", "random")
        marks = np.where(is_scored & (marks != "masked"), changes, marks)
    target_marks = _marks(targets, vocab, "predicted")
    target_marks[np.flatnonzero(is_scored)[:1]] = "first"
    target_marks = np.where(is_scored, target_marks, "unscored")
    source = ids[:0] if batch.source is None else batch.source.ids[n, :tokens]
    return PreviewRow(
        _pieces(tokenizer, source, _marks(source, vocab)),
        _pieces(tokenizer, ids, marks),
        tuple(
            piece if piece.mark != "unscored" else PreviewToken("·", "unscored")
            for piece in _pieces(tokenizer, targets, target_marks)
        ),
    )


def _in_place(batch: Batch) -> tuple[Array, Array]:
    """Return targets and whether they count, both (batch, length), also with a query stream."""
    queries = batch.part(Queries)
    if queries is None:
        return batch.targets, batch.weights > 0
    targets, is_scored = batch.ids.copy(), np.zeros(batch.ids.shape, dtype=bool)
    np.put_along_axis(targets, queries.at, batch.targets, axis=1)
    np.put_along_axis(is_scored, queries.at, batch.weights > 0, axis=1)
    return targets, is_scored


def _marks(ids: Array, vocab: Vocab, plain: str = "plain") -> Array:
    marks = np.full(ids.shape, plain, dtype="U9")
    marks[vocab.is_special[ids]] = "special"
    marks[np.isin(ids, vocab.sentinels)] = "sentinel"
    marks[ids == vocab.special.get("[MASK]", -1)] = "masked"
    return marks


def _pieces(tokenizer: Tokenizer, ids: Array, marks: Array) -> tuple[PreviewToken, ...]:
    return tuple(
        PreviewToken(tokenizer.token(int(i)), str(m)) for i, m in zip(ids, marks, strict=True)
    )
