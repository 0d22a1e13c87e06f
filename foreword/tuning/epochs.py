"""The epochs of fine-tuning: scores after each, and which one's weights are kept."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from torch import Tensor, nn

from foreword.train.finite import require_finite
from foreword.train.hooks import Hook
from foreword.train.loop import Loop
from foreword.tuning.result import Row, as_gain, chosen_metric
from foreword.tuning.tasks._contract import Task


@dataclass(frozen=True)
class BestEpoch:
    """How the scores choose the epoch that is kept.

    Attributes:
        metric: the score that chooses; default: the task's first.
        patience: epochs without a better score after which training stops; None for never.
        task: the task, which knows the scores of which the lower one is better.
    """

    metric: str = ""
    patience: int | None = None
    task: Task | None = None


class ScoreEpochs(Hook):
    """A hook that scores the dev examples after epochs and reports each step.

    Args:
        network: the network that trains.
        epochs: number of epochs.
        train_parts: chooses by the progress, before each step, what is trained.
        score: returns the row of an epoch from its number, mean loss and the steps skipped so far.
        step_done: called after each step.
        scored: called with the row of each epoch.
        best: how the epoch that is kept is chosen; None for the last.
        every: epochs from one score to the next; the last is scored too.

    Attributes:
        curve: a row for each epoch so far.
        kept_row: the number of the row whose weights the network has at the end.
    """

    def __init__(
        self,
        network: nn.Module,
        epochs: int,
        train_parts: Callable[[float], None],
        score: Callable[[int, float, int], Row],
        step_done: Callable[[], None],
        scored: Callable[[Row], None],
        best: BestEpoch | None,
        every: int = 1,
    ) -> None:
        self.times, self._every, self._epoch = epochs, every, 0
        self.curve: list[Row] = []
        self.kept_row = -1
        self._network, self._train_parts, self._score = network, train_parts, score
        self._step_done, self._scored, self._best = step_done, scored, best
        self._losses: list[float] = []
        self._weights: list[Tensor] = []

    def begin(self, loop: Loop) -> None:
        """Choose what the first step trains."""
        self._train_parts(loop.progress)

    def after_step(self, loop: Loop) -> None:
        """Record the loss of the step and report it."""
        assert loop.last is not None
        if loop.last.is_finite:
            self._losses.append(loop.last.loss)
        self._train_parts(loop.progress)
        self._step_done()

    def run(self, loop: Loop) -> None:
        """Score the epoch if it is its turn, and keep its weights if none was better.

        Raises:
            NotFiniteError: a weight is not finite.
        """
        require_finite(dict(self._network.named_parameters()))
        self._epoch += 1
        if self._epoch % self._every and self._epoch < self.times:
            return
        mean = float(np.mean(self._losses)) if self._losses else math.nan
        self.curve.append(self._score(self._epoch, mean, loop.state.skipped))
        self._scored(self.curve[-1])
        self._losses.clear()
        self._choose(loop)

    def _choose(self, loop: Loop) -> None:
        """Keep the weights of the last or best epoch; stop after `patience` epochs without gain."""
        now, best = len(self.curve) - 1, self._best
        if best is None:
            self.kept_row = now
            return
        metric = chosen_metric(self.curve[now], best.metric)
        scores = [as_gain(metric, row[metric], best.task) for row in self.curve]
        if self.kept_row < 0 or scores[now] > scores[self.kept_row]:
            self.kept_row = now
            self._weights = [p.detach().clone() for p in _parameters(loop)]
        elif best.patience is not None and now - self.kept_row >= best.patience:
            loop.stop()

    def end(self, loop: Loop) -> None:
        """Give the network the weights of the epoch that is kept."""
        if self._weights and self.kept_row < len(self.curve) - 1:
            for parameter, weights in zip(_parameters(loop), self._weights, strict=True):
                parameter.data.copy_(weights)
        self._weights = []


def _parameters(loop: Loop) -> list[nn.Parameter]:
    """Return the parameters that are trained at any time."""
    return [p for group in loop.optimizer.param_groups for p in group["params"]]
