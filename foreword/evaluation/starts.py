"""The beginnings of texts to generate, and what is generated after them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from foreword.errors import UserError
from foreword.runs.trained_model import TrainedModel
from foreword.types import Array, Batch, Example, Tokens

Stopped = Literal["end", "tokens", "length"]


@dataclass(frozen=True)
class Start:
    """The beginning of a text to generate.

    Attributes:
        source: the source that the model reads, (length,) int64, or None.
        target: the tokens that the text begins with, (length,) int64.
        number: the index of the sample of its prompt; each samples different random numbers.
    """

    source: Array | None
    target: Array
    number: int = 0


@dataclass(frozen=True)
class GeneratedTokens:
    """The tokens generated after a start.

    Attributes:
        ids: the new tokens, without the stop token; (length,) int64.
        log_probs: the model's log-probability of each, and of the stop token if there is one;
            (length,) or (length + 1,) nats. None if they were not asked for.
        stopped: what ended the text: `end` a stop token, `tokens` the maximum number, `length` the
            model's last position.
        filled_at: the step at which each token was written, (length,) int64; None where each was
            written after the one before it.
    """

    ids: Array
    log_probs: Array | None
    stopped: Stopped
    filled_at: Array | None = None


def groups_of_equal_length(
    starts: Sequence[Start], size: int, *, by_source: bool = False
) -> Iterator[list[int]]:
    """Yield the indices of starts of equal length, at most `size` at a time.

    With `by_source` their sources alone are of equal length.
    """
    groups: dict[tuple[int, int], list[int]] = {}
    for n, start in enumerate(starts):
        target = 0 if by_source else len(start.target)
        key = (-1 if start.source is None else len(start.source), target)
        groups.setdefault(key, []).append(n)
    for members in groups.values():
        for at in range(0, len(members), size):
            yield members[at : at + size]


def forbidden_tokens(prompted: TrainedModel, starts: Sequence[Start], stops: Array) -> Tensor:
    """Return the special tokens except stops and expected sentinels, (starts, vocab) bool."""
    forbidden = np.tile(prompted.vocab.is_special, (len(starts), 1))
    forbidden[:, stops] = False
    for row, start in zip(forbidden, starts, strict=True):
        if _may_have_sentinels(prompted, start):
            row[prompted.vocab.sentinels] = False
    return torch.from_numpy(forbidden).to(prompted.device)


def _may_have_sentinels(prompted: TrainedModel, start: Start) -> bool:
    """Return whether the text may have sentinels, even ones that its source does not have."""
    if start.source is None or len(start.target) or not prompted.uses_sentinels:
        return False
    text = start.source[1:]  # a mode token may be a sentinel too
    return not prompted.reads_plain or bool(np.isin(text, prompted.vocab.sentinels).any())


def next_token_batch(prompted: TrainedModel, starts: Sequence[Start]) -> Batch:
    """Return the batch whose last position predicts the token after each start.

    The layout arranges the target with one more token, the only one that is scored; the batch is
    cut after the position that predicts it.

    Args:
        prompted: the model.
        starts: starts of one length.

    Raises:
        UserError: a start is empty, or longer than the model can read.
    """
    target = np.stack([np.append(start.target, 0) for start in starts])
    weights = np.zeros(target.shape, dtype=np.float32)
    weights[:, -1] = 1.0
    sources = [start.source for start in starts if start.source is not None]
    source = unpadded_rows(np.stack(sources)) if sources else None
    example = Example(source, unpadded_rows(target), weights)
    batch = prompted.recipe.layout.arrange(example, prompted.vocab)
    where = np.flatnonzero(batch.weights[0])
    if not len(where):
        raise UserError("the prompt is empty, and this model requires a token to predict from")
    end = int(where[0]) + 1
    prompted.check_length(max(end, 0 if batch.source is None else batch.source.ids.shape[1]))
    return replace(
        batch,
        ids=batch.ids[:, :end],
        positions=batch.positions[:, :end],
        targets=None,
        weights=None,
    )


def unpadded_rows(ids: Array) -> Tokens:
    """Return rows of one document each, without padding."""
    positions = np.broadcast_to(np.arange(ids.shape[1]), ids.shape).copy()
    return Tokens(ids, np.zeros_like(ids), positions)
