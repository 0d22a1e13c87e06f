"""Hooks: what the loop calls between steps to log, measure and save."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from foreword.train.loop import Loop


class Hook(ABC):
    """Called between training steps; subclass it to add your own.

        class Norms(Hook):
            times = 10

            def run(self, loop):
                print(loop.state.spent.steps, sum(p.norm() for p in loop.model.parameters()))

    Where weights are averaged at the end (`train.average`), `loop.model` has the average while a
    hook begins, runs or ends, and the weights that are trained in `after_step`.

    Attributes:
        times: how many times it runs over the whole budget.
    """

    times: float = 1

    def begin(self, loop: Loop) -> None:  # noqa: B027 - most need no beginning
        """Called before the first step of this process."""

    def after_step(self, loop: Loop) -> None:  # noqa: B027 - most need no single step
        """Called after every step, skipped ones too, before `is_due`."""

    def is_due(self, before: float, after: float, loop: Loop) -> bool:
        """Return whether to run after a step.

        Args:
            before: share of the budget spent before the step.
            after: share spent after it.
            loop: the loop that took it.
        """
        return crosses_interval(before, after, self.times)

    @abstractmethod
    def run(self, loop: Loop) -> None:
        """Run the hook. Time spent here does not count as training speed."""

    def end(self, loop: Loop) -> None:  # noqa: B027 - most need no end
        """Called after the last step, also when a signal stops the training."""


def crosses_interval(before: float, after: float, times: float) -> bool:
    """Return whether one of `times` equal parts of the budget ended between two moments."""
    return math.floor(before * times + 1e-9) < math.floor(after * times + 1e-9)
