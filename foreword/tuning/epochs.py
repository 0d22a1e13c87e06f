"""The batches of fine-tuning, in a new order each epoch."""

from __future__ import annotations

import itertools
from collections.abc import Generator, Sequence
from dataclasses import dataclass

import numpy as np

from foreword.data.rng import permute
from foreword.tuning.features import ExampleSet, NetworkBatch
from foreword.types import Array


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
            count = len(self.numbers)
            order = permute(np.arange(count), count, (self.seed << 20) + epoch)
            batches = np.array_split(order, self._steps)  # whose sizes differ by at most 1
            for batch in batches[step % self._steps if epoch == step // self._steps else 0 :]:
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
