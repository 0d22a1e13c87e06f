"""Perplexity: windows for scoring long texts, and sums of log-probabilities."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields

from foreword.errors import UserError


@dataclass(frozen=True)
class ScoringWindow:
    """A window over a text, of which tokens `first` to `stop` - 1 are scored.

    The window has the tokens `start` to `start + width - 1`, or to the end of the text.
    """

    start: int
    first: int
    stop: int


def scoring_windows(
    length: int, width: int, stride: int, *, both_sides: bool
) -> list[ScoringWindow]:
    """Return windows that score each token of a text once, with as much context as possible.

    For a causal model, each token scored has at least `width - stride` tokens before it, except in
    the first window. With context on both sides, the tokens scored are in the middle of their
    window.

    Args:
        length: the number of tokens of the text.
        width: the width of a window; the last one is moved back to have it too.
        stride: the distance from one window to the next.
        both_sides: whether a token has context on both sides.

    Raises:
        UserError: the stride is not in 1 .. width.
    """
    if not 1 <= stride <= width:
        raise UserError(f"stride: must be in 1 .. {width} (a row), got {stride}")
    if length < 1:
        return []
    last = max(0, length - width)
    starts = [*range(0, last, stride), last]
    windows, first = [], 0
    for start, next_start in zip(starts, [*starts[1:], None], strict=True):
        stop = min(start + width, length)
        if both_sides and next_start is not None:
            stop = (stop + next_start) // 2
        windows.append(ScoringWindow(start, first, stop))
        first = stop
    return windows


@dataclass(frozen=True)
class ScoreTotals:
    """Sums over one or more texts, which give perplexity and bits per byte.

    Attributes:
        measure: `log-likelihood`, `pseudo-log-likelihood`, or a bound on the first; they are not
            comparable.
        nats: negative log-probability of all scored tokens.
        tokens: the number of scored tokens.
        bytes: the size of their text in UTF-8.
        documents: the number of texts.
        unscored: tokens that could not be scored: the first of a text if no token is before it.
        unknown: scored tokens that are [UNK]; these have a low loss, so many of them make the
            sums less comparable.
        ends: scored tokens that end a text and are not part of it.
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
        sums = {f.name: getattr(self, f.name) + getattr(other, f.name) for f in fields(self)[1:]}
        return ScoreTotals(self.measure, **sums)

    @property
    def loss(self) -> float:
        """Nats per token."""
        return self.nats / self.tokens if self.tokens else math.nan

    @property
    def bits(self) -> float:
        """The total number of bits."""
        return self.nats / math.log(2)

    @property
    def is_pseudo(self) -> bool:
        """Whether each token was scored given those after it too."""
        return self.measure.startswith("pseudo")

    @property
    def is_bound(self) -> bool:
        """Whether the texts' log-likelihood is at least this, as masked diffusion tells."""
        return self.measure.endswith("bound")

    @property
    def perplexity(self) -> float:
        """exp of the nats per token; a pseudo-perplexity for a pseudo-log-likelihood."""
        return math.exp(min(self.loss, 700.0))

    @property
    def bits_per_byte(self) -> float | None:
        """Bits per byte of text, comparable between models with different tokenizers.

        None for a pseudo-log-likelihood, which is not the length of a code.
        """
        return self.bits / self.bytes if self.bytes and not self.is_pseudo else None

    def as_row(self) -> dict[str, float | int | str | None]:
        """Return a row of a table or of JSON."""
        derived = ("loss", "perplexity", "bits_per_byte", "bits")
        sums = [f.name for f in fields(self)[1:]]
        return {name: getattr(self, name) for name in ("measure", *derived, *sums)}
