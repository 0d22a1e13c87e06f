"""Log-probabilities of given tokens: batches of them, windows over long texts, and their sums."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

import numpy as np
import torch

from foreword.errors import UserError
from foreword.evaluate.prompting import PromptedModel
from foreword.models.ngram import table_of
from foreword.types import Array, Batch, Example, Tokens

TOKENS_AT_ONCE = {"cpu": 1 << 12, "cuda": 1 << 16}
LOGITS_AT_ONCE = 1 << 24
CHUNK = 1024


@dataclass(frozen=True)
class Span:
    """A window over a text and what is scored in it: tokens `first` to `stop` - 1.

    The window itself is tokens `start` to `start + width - 1`, as many as the text has.
    """

    start: int
    first: int
    stop: int


def spans(length: int, width: int, stride: int, *, both_sides: bool) -> list[Span]:
    """Windows that score each token of a text exactly once, with as much context as they can.

    Read from left to right, each token of every window but the first has at least
    `width - stride` tokens before it. Read from both sides, the tokens scored stand in the middle
    of their window.

    Args:
        length: of the text, in tokens.
        width: of a window; the last one is moved back to be as wide as the others.
        stride: from one window to the next.
        both_sides: whether context stands on both sides.

    Raises:
        UserError: the stride is not in 1 .. width.
    """
    if not 1 <= stride <= width:
        raise UserError(f"stride: must be in 1 .. {width} (a row), got {stride}")
    last = max(0, length - width)
    starts = [*range(0, last, stride), last]
    found, first = [], 0
    for start, next_token in zip(starts, [*starts[1:], None], strict=True):
        stop = min(start + width, length)
        if both_sides and next_token is not None:
            stop = (stop + next_token) // 2
        found.append(Span(start, first, stop))
        first = stop
    return found


@dataclass(frozen=True)
class Item:
    """A piece of text and which of its tokens are scored.

    Attributes:
        target: the tokens; (length,) int64.
        is_scored: (length,) bool.
        source: what is read beside it: the same tokens with some hidden, for a model that
            predicts in place, or another text; (source length,) int64.
    """

    target: Array
    is_scored: Array
    source: Array | None = None


def log_probs(prompted: PromptedModel, items: Iterable[Item]) -> Iterator[Array]:
    """The log-probability of every scored token, in nats; (scored,) float64 for each item.

    Items of like length are computed together; what an item gets does not depend on the others.
    """
    iterator = iter(items)
    while chunk := list(islice(iterator, CHUNK)):
        found: dict[int, Array] = {}
        if prompted.is_count_based:  # no batch: one look-up for all of them
            yield from _look_up(prompted, chunk)
            continue
        for members in _batches(chunk, TOKENS_AT_ONCE.get(prompted.device.type, 1 << 12)):
            group = [chunk[n] for n in members]
            counts = np.cumsum([int(item.is_scored.sum()) for item in group])[:-1]
            found.update(zip(members, np.split(_score(prompted, group), counts), strict=True))
        yield from (found[n] for n in range(len(chunk)))


def _look_up(prompted: PromptedModel, items: Sequence[Item]) -> list[Array]:
    """The same by a table of counts."""
    stream = np.concatenate([item.target for item in items])
    is_scored = np.concatenate([item.is_scored for item in items])
    lengths = np.array([len(item.target) for item in items])
    ends = np.cumsum(lengths)
    is_first = np.zeros(len(stream), dtype=bool)
    is_first[(ends - lengths)[lengths > 0]] = True
    found = table_of(prompted.model).log_probs_of(stream, is_first=is_first)[is_scored]
    return np.split(found, np.cumsum(is_scored)[ends[:-1] - 1])


def _batches(items: Sequence[Item], tokens: int) -> Iterator[list[int]]:
    """Numbers of items to compute at once: sources of one length, targets of like length."""

    def key(n: int) -> tuple[int, int]:
        source = items[n].source
        return (0 if source is None else len(source), len(items[n].target))

    members: list[int] = []
    for n in sorted(range(len(items)), key=key):
        is_full = (len(members) + 1) * sum(key(n)) > tokens
        if members and (is_full or key(n)[0] != key(members[0])[0]):
            yield members
            members = []
        members.append(n)
    if members:
        yield members


def _score(prompted: PromptedModel, items: Sequence[Item]) -> Array:
    """Log-probabilities of the scored tokens, item after item."""
    target = side_by_side([item.target for item in items])
    weights = side_by_side([item.is_scored for item in items]).ids.astype(np.float32)
    sources = [item.source for item in items if item.source is not None]
    source = side_by_side(sources) if sources else None
    if prompted.fills_in_place:
        assert source is not None
        example = prompted.hidden(source, target, weights)
    else:
        example = Example(source, target, weights)
    batch = prompted.recipe.layout.arrange(example, prompted.vocab)
    scored = token_log_probs(prompted, batch)
    assert len(scored) == int(weights.sum()), "a token to be scored is not predicted"
    return scored


def side_by_side(rows: Sequence[Array]) -> Tokens:
    """Texts as rows of a batch, the shorter ones padded on the right."""
    width = max(map(len, rows))
    ids = np.zeros((len(rows), width), dtype=np.int64)
    documents = np.full_like(ids, -1)
    for n, row in enumerate(rows):
        ids[n, : len(row)] = row
        documents[n, : len(row)] = 0
    places = np.broadcast_to(np.arange(width), ids.shape).copy()
    return Tokens(ids, documents, places)


def token_log_probs(prompted: PromptedModel, batch: Batch) -> Array:
    """The log-probability of each target that counts, in nats, in the order of the batch.

    Returns:
        (predictions,) float64.
    """
    batch = batch.to(prompted.device)
    states = prompted.read(batch).states.flatten(0, 1)
    where = batch.weights.flatten().nonzero()[:, 0]
    targets = batch.targets.flatten()[where]
    rows = max(1, LOGITS_AT_ONCE // prompted.vocab.size)
    parts = []
    for start in range(0, len(where), rows):
        part = slice(start, start + rows)
        nats = prompted.logits(states[where[part]]).log_softmax(-1)
        parts.append(nats.gather(1, targets[part, None])[:, 0])
    found: Array = torch.cat(parts).cpu().double().numpy() if parts else np.empty(0)
    return found


@dataclass(frozen=True)
class Totals:
    """Sums over a text or many; perplexity and bits per byte follow from them.

    Attributes:
        measure: `log-likelihood` or `pseudo-log-likelihood`; the two do not compare.
        nats: negative log-probability of all scored tokens.
        tokens: how many were scored.
        bytes: of the text they make up, in UTF-8.
        documents: how many texts.
        unscored: tokens that could not be scored: the first of a text, where nothing stands
            before it.
        unknown: scored tokens that are [UNK]: text the tokenizer does not know costs little, so
            the more there are, the less the figures compare.
        ends: scored tokens that are no text but what ends one.
    """

    measure: str
    nats: float = 0.0
    tokens: int = 0
    bytes: int = 0
    documents: int = 0
    unscored: int = 0
    unknown: int = 0
    ends: int = 0

    def __add__(self, other: Totals) -> Totals:
        return Totals(
            self.measure,
            self.nats + other.nats,
            self.tokens + other.tokens,
            self.bytes + other.bytes,
            self.documents + other.documents,
            self.unscored + other.unscored,
            self.unknown + other.unknown,
            self.ends + other.ends,
        )

    @property
    def loss(self) -> float:
        """Nats per token."""
        return self.nats / self.tokens if self.tokens else math.nan

    @property
    def bits(self) -> float:
        """Bits in all."""
        return self.nats / math.log(2)

    @property
    def is_pseudo(self) -> bool:
        """Whether each token was scored with those after it in sight."""
        return self.measure.startswith("pseudo")

    @property
    def perplexity(self) -> float:
        """exp of the nats per token; a pseudo-perplexity where the measure is a pseudo one."""
        return math.exp(min(self.loss, 700.0))

    @property
    def bits_per_byte(self) -> float | None:
        """Bits per byte of text: compares models with different tokenizers.

        None of a pseudo-log-likelihood, which is no code for the text.
        """
        return self.bits / self.bytes if self.bytes and not self.is_pseudo else None

    def as_row(self) -> dict[str, float | int | str | None]:
        """Flat, for tables and JSON."""
        return {
            "measure": self.measure,
            "loss": self.loss,
            "perplexity": self.perplexity,
            "bits_per_byte": self.bits_per_byte,
            "bits": self.bits,
            "nats": self.nats,
            "tokens": self.tokens,
            "bytes": self.bytes,
            "documents": self.documents,
            "unscored": self.unscored,
            "unknown": self.unknown,
            "ends": self.ends,
        }
