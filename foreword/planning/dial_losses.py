"""The losses that the dial's models reached, and from these the one to expect of a budget.

Between two measured budgets the loss is interpolated, linearly in the logarithms of both, as
scaling laws are drawn (Kaplan et al. 2020). The interval says how well that works: each inner
measurement is predicted from the others, and the largest relative error bounds the expectation on
both sides. `benchmarks/dial.py` measures again.

No power law is fitted: five budgets leave it few degrees of freedom, and the sizes change on the
way. No loss is expected of a budget far beyond the measured ones (`MARGIN`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from types import MappingProxyType

from foreword.formatting import power

MARGIN = 1.5  # how far beyond the measured budgets one is expected, as a factor


@dataclass(frozen=True)
class MeasuredLosses:
    """Held-out losses of a family's dial on Simple English Wikipedia, one run for each budget.

    Attributes:
        unit: the unit of the losses.
        vocab: the vocabulary that they hold for; None where the unit does not depend on it.
        by_flops: losses by budget in FLOPs, ascending; three at least.
    """

    unit: str
    vocab: int | None
    by_flops: Mapping[float, float]

    def expected(self, flops: float) -> tuple[float, float, float] | None:
        """Return the loss to expect of a budget and its bounds; None too far from all measured."""
        budgets = list(self.by_flops)
        if not budgets[0] / MARGIN <= flops <= budgets[-1] * MARGIN:
            return None
        loss, error = _line(self.by_flops, flops), self.error
        return loss, loss / (1 + error), loss * (1 + error)

    @property
    def error(self) -> float:
        """The largest relative error of a measurement that is predicted from the others."""
        points = list(self.by_flops.items())
        errors = []
        for index in range(1, len(points) - 1):
            flops, loss = points[index]
            others = dict(points[:index] + points[index + 1 :])
            errors.append(abs(_line(others, flops) / loss - 1))
        return max(errors)


def _line(by_flops: Mapping[float, float], flops: float) -> float:
    """Return the loss of a budget on the line through the two nearest measured ones."""
    (low, first), (high, second) = _neighbours(list(by_flops.items()), flops)
    share = math.log(flops / low) / math.log(high / low)
    return float(first * (second / first) ** share)


def _neighbours(
    points: Sequence[tuple[float, float]], flops: float
) -> tuple[tuple[float, float], tuple[float, float]]:
    pairs = list(pairwise(points))
    return next((pair for pair in pairs if flops <= pair[1][0]), pairs[-1])


def expected_loss(family: str, flops: float, vocab: int, *, is_repeated: bool) -> str:
    """Return what is known of the loss, in words.

    Args:
        family: a key of `MEASURED`.
        flops: the budget.
        vocab: the model's vocabulary.
        is_repeated: whether the text is read too often for the measurements, which read theirs
            about once, to say anything.
    """
    measured = MEASURED[family]
    if is_repeated:
        return "none has been measured on a text that is read so often"
    if measured.vocab not in (None, vocab):
        return f"none has been measured with this vocabulary, but with {measured.vocab:,}"
    budgets = list(measured.by_flops)
    expected = measured.expected(flops)
    if expected is None:
        between = f"{power(budgets[0])} and {power(budgets[-1])}"
        return f"none has been measured for {power(flops)} FLOPs, but between {between}"
    loss, low, high = expected
    return (
        f"{loss:.2f} {measured.unit} ({low:.2f} to {high:.2f}) on Simple English Wikipedia, where "
        f"{len(budgets)} budgets were measured; another text has another loss"
    )


# Not all are today's dial's: at 3e13 and 8e13 the first step had the full rate; 9.5e13 is 128 x 2,
# where the dial takes 192 x 3; 2.8e14 and 1.2e15 began with random embeddings (docs/dial.md).
MEASURED: Mapping[str, MeasuredLosses] = MappingProxyType(
    {
        "encoder": MeasuredLosses(
            "nats per prediction",
            16_384,
            {3e12: 5.12, 1e13: 4.62, 3e13: 4.42, 1.4e14: 4.01, 1.2e15: 3.37},
        ),
        "decoder": MeasuredLosses(
            "bits per byte",
            None,
            {3e12: 2.124, 1e13: 1.922, 3e13: 1.772, 9.5e13: 1.652, 2.8e14: 1.597},
        ),
        "encoder_decoder": MeasuredLosses(
            "nats per prediction", 16_384, {3e12: 3.73, 1e13: 3.19, 8e13: 2.88}
        ),
    }
)
