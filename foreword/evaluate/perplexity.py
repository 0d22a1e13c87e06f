"""Perplexity: windows over long texts, and sums of log-probabilities over texts."""

from __future__ import annotations

import math
from dataclasses import dataclass

from foreword.errors import UserError


@dataclass(frozen=True)
class ScoringWindow:
    """A window over a text and what is scored in it: tokens `first` to `stop` - 1.

    The window itself is tokens `start` to `start + width - 1`, as many as the text has.
    """

    start: int
    first: int
    stop: int


def scoring_windows(
    length: int, width: int, stride: int, *, both_sides: bool
) -> list[ScoringWindow]:
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
        found.append(ScoringWindow(start, first, stop))
        first = stop
    return found


@dataclass(frozen=True)
class ScoreTotals:
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

    def __add__(self, other: ScoreTotals) -> ScoreTotals:
        return ScoreTotals(
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
