"""Hooks: what happens between steps, a number of times over the budget."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from foreword.train.loop import Loop


class Hook(ABC):
    """An action between steps; derive from it to add your own.

        class Norms(Hook):
            times = 10

            def run(self, loop):
                print(loop.state.spent.steps, sum(p.norm() for p in loop.model.parameters()))

    Attributes:
        times: number of times over the budget.
    """

    times: float = 1

    def begin(self, loop: Loop) -> None:  # noqa: B027 - most need none
        """Called once, before the first step of this process."""

    def is_due(self, before: float, after: float, loop: Loop) -> bool:
        """Return whether to run after a step.

        Args:
            before: share of the budget spent before the step.
            after: share spent now.
            loop: the loop that took the step.
        """
        return passes(before, after, self.times)

    @abstractmethod
    def run(self, loop: Loop) -> None:
        """Run the action; its time does not count as training speed."""

    def end(self, loop: Loop) -> None:  # noqa: B027 - most need none
        """Called once, after the last step, also when a signal ends the run."""


def passes(before: float, after: float, times: float) -> bool:
    """Return whether one of `times` equal parts of the budget ended between two moments."""
    return math.floor(before * times + 1e-9) < math.floor(after * times + 1e-9)
