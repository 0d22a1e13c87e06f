"""A claim that a grid is to decide: which cells differ in what, by how much, in which direction."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from foreword.comparison.margins import PRETRAINED
from foreword.settings.ranges import Ranged, Signed


@dataclass(frozen=True)
class ClaimTerm(Ranged):
    """A measured number of a cell, over its seeds.

    Attributes:
        cell: the name of the cell; "" for a baseline without a model.
        measure: a number of the runs, or the name of a task or probe; default: the claim's.
        start: "pretrained", "from scratch" (of a probe: random weights) or the name of a baseline.
    """

    cell: str
    measure: str = ""
    start: str = PRETRAINED

    def __str__(self) -> str:
        return self.cell if self.start == PRETRAINED else f"{self.cell} {self.start}".strip()


@dataclass(frozen=True)
class Claim(Ranged):
    """A sentence of a lecture, and the prediction by which an experiment decides it.

    The prediction is that a number is greater than `by`: the sum of the measured `higher` less that
    of the `lower`; or the slope along `rises` or `falls`. Two cells of each are a difference of
    differences: where one thing matters more.

    Attributes:
        sentence: what is claimed, in one sentence.
        source: where the lectures' claim comes from, such as a paper and its table.
        measure: what is measured: a number of the runs (bits_per_byte, heldout_loss, perplexity,
            tokens_per_second, seconds, flops, tokens, parameters, bytes, memory), or the name of a
            task or probe of the same file.
        higher: the cells that should have more of it, by name, or as tables of cell, measure and
            start.
        lower: the cells that should have less of it.
        rises: instead, a number for each of several cells, along which what is measured rises.
        falls: instead, numbers along which it falls.
        by: the smallest difference that would matter; below 0, the largest that would not: "costs
            little". Of ratios the factor; of slopes, per doubling, or the exponent.
        ratio: whether to compare ratios: logarithms are compared, and a slope is an exponent.
    """

    sentence: str
    source: str
    measure: str = "bits_per_byte"
    higher: tuple[str | ClaimTerm, ...] = ()
    lower: tuple[str | ClaimTerm, ...] = ()
    rises: dict[str, Any] = field(default_factory=dict)
    falls: dict[str, Any] = field(default_factory=dict)
    by: Signed | None = None
    ratio: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        ways = [bool(self.higher or self.lower), bool(self.rises), bool(self.falls)]
        if sum(ways) != 1:
            raise ValueError("claim: give higher and lower, or rises, or falls")
        if ways[0] and len(self.higher) != len(self.lower):
            raise ValueError("claim.lower: as many cells as higher, or there is no difference")
        for name in ("rises", "falls"):
            along = getattr(self, name)
            is_positive = all(isinstance(x, int | float) and x > 0 for x in along.values())
            if along and not (len(set(along.values())) > 1 and is_positive):
                raise ValueError(f"claim.{name}: needs two or more different numbers above 0")
        if self.is_factor and self.least <= 0:
            raise ValueError(f"claim.by: a factor is above 0, got {self.least:g}")

    @property
    def is_trend(self) -> bool:
        """Whether the number is a slope."""
        return not self.higher

    @property
    def is_factor(self) -> bool:
        """Whether the number is the logarithm of a factor."""
        return self.ratio and not self.is_trend

    @property
    def least(self) -> float:
        """What the number must be greater than; of ratios as a factor."""
        return float(self.is_factor) if self.by is None else self.by

    @property
    def threshold(self) -> float:
        """What the number must be greater than; of ratios as a logarithm."""
        return math.log(self.least) if self.is_factor else self.least

    @property
    def weighted(self) -> list[tuple[float, ClaimTerm]]:
        """The terms of the number, each with its weight.

        A slope is the least-squares one of the cells' means over the logarithms of their numbers.
        """
        if not self.is_trend:
            sides = ((1.0, self.higher), (-1.0, self.lower))
            return [(weight, self._term(one)) for weight, side in sides for one in side]
        along, sign = (self.rises, 1.0) if self.rises else (self.falls, -1.0)
        xs = [math.log(x) / (1 if self.ratio else math.log(2)) for x in along.values()]
        mean = sum(xs) / len(xs)
        square = sum((x - mean) ** 2 for x in xs)
        return [
            (sign * (x - mean) / square, self._term(name))
            for name, x in zip(along, xs, strict=True)
        ]

    def renamed(self, cells: Mapping[str, str], measures: Mapping[str, str]) -> Claim:
        """Return the claim with other names of cells and measures."""

        def named(one: str | ClaimTerm) -> ClaimTerm:
            term = self._term(one)
            cell, measure = cells.get(term.cell, term.cell), term.measure
            return ClaimTerm(cell, measures.get(measure, measure), term.start)

        def all_of(terms: Sequence[str | ClaimTerm]) -> tuple[ClaimTerm, ...]:
            return tuple(map(named, terms))

        return replace(
            self,
            measure=measures.get(self.measure, self.measure),
            higher=all_of(self.higher),
            lower=all_of(self.lower),
            rises={cells[name]: x for name, x in self.rises.items()},
            falls={cells[name]: x for name, x in self.falls.items()},
        )

    def _term(self, one: str | ClaimTerm) -> ClaimTerm:
        term = ClaimTerm(one) if isinstance(one, str) else one
        return replace(term, measure=term.measure or self.measure)

    def prediction(self) -> str:
        """Return what is predicted, in words."""
        what, least = self.measure.replace("_", " "), f"{self.least:g}"
        if self.is_trend:
            way, along = ("rises", self.rises) if self.rises else ("falls", self.falls)
            cells = ", ".join(f"{name} ({x:g})" for name, x in along.items())
            per = f"an exponent above {least}" if self.ratio else f"more than {least} per doubling"
            return f"{what} {way} along {cells} by {per}"
        measures = {term.measure for _, term in self.weighted}
        sides = [
            " + ".join(
                f"{term} ({term.measure})" if len(measures) > 1 else str(term)
                for weight, term in self.weighted
                if weight * sign > 0
            )
            for sign in (1, -1)
        ]
        return f"{what}: {sides[0]} {'over' if self.ratio else 'less'} {sides[1]} is above {least}"
