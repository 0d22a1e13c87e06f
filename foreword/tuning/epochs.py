"""The epochs of fine-tuning: their batches, the scores after each, and whose weights are kept."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass

import numpy as np
from torch import Tensor, nn

from foreword.data.rng import permute
from foreword.train.finite import require_finite
from foreword.train.hooks import Hook
from foreword.train.loop import Loop
from foreword.tuning.features import ExampleSet, NetworkBatch
from foreword.tuning.scores import Scores, as_gain
from foreword.tuning.settings import TuneSettings
from foreword.tuning.tasks._contract import Task
from foreword.types import Array


class ScoreEpochs(Hook):
    """A hook that scores the dev examples after epochs and reports each step.

    Args:
        settings: how many epochs there are, which are scored, and which one is kept.
        train_parts: chooses by the progress, before each step, what is trained.
        score: returns the scores of an epoch from its number, mean loss and the steps skipped so
            far.

    Attributes:
        curve: the scores of each epoch so far.
        kept: the number in `curve` of the one whose weights the network has at the end.
    """

    def __init__(
        self,
        network: nn.Module,
        settings: TuneSettings,
        train_parts: Callable[[float], None],
        score: Callable[[int, float, int], Scores],
        step_done: Callable[[], None],
        scored: Callable[[Scores], None],
        task: Task,
    ) -> None:
        self.times, self._epoch = settings.epochs, 0
        self.curve: list[Scores] = []
        self.kept = -1
        self._network, self._settings, self._task = network, settings, task
        self._train_parts, self._score = train_parts, score
        self._step_done, self._scored = step_done, scored
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
        if self._epoch % self._settings.score_every and self._epoch < self.times:
            return
        mean = float(np.mean(self._losses)) if self._losses else math.nan
        self.curve.append(self._score(self._epoch, mean, loop.state.skipped))
        self._scored(self.curve[-1])
        self._losses.clear()
        self._choose(loop)

    def _choose(self, loop: Loop) -> None:
        """Keep the weights of the last or best epoch; stop after `patience` epochs without gain."""
        now, settings = len(self.curve) - 1, self._settings
        if settings.keep == "last":
            self.kept = now
            return
        metric = self.curve[now].chosen_metric(settings.metric)
        gains = [as_gain(metric, scores[metric], self._task) for scores in self.curve]
        if self.kept < 0 or gains[now] > gains[self.kept]:
            self.kept = now
            self._weights = [p.detach().clone() for p in _parameters(loop)]
        elif settings.patience is not None and now - self.kept >= settings.patience:
            loop.stop()

    def end(self, loop: Loop) -> None:
        """Give the network the weights of the epoch that is kept."""
        if self._weights and self.kept < len(self.curve) - 1:
            for parameter, weights in zip(_parameters(loop), self._weights, strict=True):
                parameter.data.copy_(weights)
        self._weights = []


def _parameters(loop: Loop) -> list[nn.Parameter]:
    """Return the parameters that are trained at any time."""
    return [p for group in loop.optimizer.param_groups for p in group["params"]]


@dataclass(frozen=True)
class ExampleBatches:
    """The batches of fine-tuning, in a new order each epoch (implements `Batches`).

    Attributes:
        numbers: the numbers of the examples to train on, (numbers,) int64.
        seed: seed of the order.
        device: type of the network's device.
    """

    examples: ExampleSet
    numbers: Array
    size: int
    seed: int
    device: str

    def ahead(self, step: int) -> Generator[list[NetworkBatch]]:
        """Yield the micro-batches of `step`, `step` + 1, ..."""
        for epoch in itertools.count(step // self._steps):
            order = shuffled_batches(len(self.numbers), self.size, self.seed, epoch)
            for batch in order[step % self._steps if epoch == step // self._steps else 0 :]:
                examples = self.examples.batches(self.numbers[batch], self.device, epoch)
                yield list(examples)

    def epochs(self, steps: int) -> float:
        """Return how often each example has been seen after `steps` steps."""
        return steps / self._steps

    def count_tokens(self, batches: Sequence[NetworkBatch]) -> int:
        """Return the tokens that the network reads; cached features count none."""
        return sum(batch.token_count for batch in batches)

    @property
    def _steps(self) -> int:
        return -(-len(self.numbers) // self.size)


def shuffled_batches(count: int, batch: int, seed: int, epoch: int) -> list[Array]:
    """Return the shuffled examples of an epoch, in batches whose sizes differ by at most 1."""
    order = permute(np.arange(count), count, (seed << 20) + epoch)
    return np.array_split(order, -(-count // batch))
