"""Cached features, which a frozen backbone computes once for all epochs, and batches of examples.

An epoch has the texts, or their features, in a new order.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Generator, Iterator, Sequence, Sized
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from foreword.data.rng import permute
from foreword.nn.model import ModelSettings
from foreword.runs.sizes import memory_of
from foreword.train.device import autocast
from foreword.tuning.encoded import state_counts
from foreword.tuning.network import Network
from foreword.tuning.packed_examples import CHUNK, PackedExamples, PooledBatch
from foreword.tuning.tasks._contract import Task
from foreword.tuning.windows import drawn
from foreword.types import Array, to_tensors

MEMORY_DIVISOR = 8  # cached features may use this fraction, 1/8, of the machine's memory


@dataclass(frozen=True)
class FeatureBatch:
    """The features of some examples.

    Attributes:
        cached: (layers, states, width) float32.
        numbers: the example that each output belongs to, (outputs,) int64.
        targets: the target of each output, (outputs,).
        windows: how many states make each output, as in `PooledBatch`.
    """

    cached: Tensor
    numbers: Any
    targets: Any
    windows: Any = None

    @property
    def token_count(self) -> int:
        return 0  # since the backbone reads nothing

    def to(self, device: Any) -> FeatureBatch:
        return to_tensors(self, device)

    def features(self, network: Network) -> Tensor:
        return self.cached

    def features_and_loss(self, network: Network) -> tuple[Tensor, Tensor | float]:
        return self.cached, 0.0


@dataclass(frozen=True)
class Features:
    """The features of all examples, in their order.

    Attributes:
        features: (layers, states, width) float32, in the machine's memory: a state for each output,
            or for each window of a text that has one output.
        targets: the target of each output, (outputs,).
        begins: where the outputs of each example begin, and where the last ones end,
            (examples + 1,) int64.
        edges: where the states of each output begin, and where the last ones end, (outputs + 1,).
        backbone_batches: the outputs of each batch that the backbone read, by number.
    """

    features: Tensor
    targets: Array
    begins: Array
    edges: Array
    backbone_batches: tuple[Array, ...]

    @classmethod
    def compute(
        cls,
        network: Network,
        examples: PackedExamples,
        device: torch.device,
        dtype: torch.dtype,
        done: Callable[[], None],
    ) -> Features:
        """Compute the features of each example, in evaluation mode and without gradients.

        Args:
            done: called after each of `count_chunks(examples)` chunks.
        """
        network.eval()
        features_by_batch, numbers, targets, windows = [], [], [], []
        with torch.inference_mode():
            for chunk in examples.chunks():
                for batch in examples.batches(chunk, device.type):
                    with autocast(device, dtype):
                        features_by_batch.append(batch.to(device).features(network).cpu())
                    numbers.append(batch.numbers)
                    targets.append(batch.targets)
                    is_one = batch.windows is None
                    windows.append(np.ones_like(batch.numbers) if is_one else batch.windows)
                done()
        # Batches are packed in another order than that of the examples: restore it.
        joined = np.concatenate(numbers)
        order = np.argsort(joined, kind="stable")
        counts = np.bincount(joined, minlength=len(examples))
        states = _edges(np.concatenate(windows))
        rows = torch.from_numpy(np.concatenate(_runs(states, order)))
        features = torch.cat(features_by_batch, dim=1)[:, rows]
        batch_ends = np.cumsum([len(batch_numbers) for batch_numbers in numbers])[:-1]
        together = tuple(np.split(np.argsort(order), batch_ends))
        edges = _edges(np.diff(states)[order])
        return cls(features, np.concatenate(targets)[order], _edges(counts), edges, together)

    def __len__(self) -> int:
        return len(self.begins) - 1

    def batches(
        self, numbers: Array, device: str, epoch: int | None = None
    ) -> Iterator[FeatureBatch]:
        """Yield the features of the examples `numbers`, as one batch."""
        yield self._batch(np.concatenate(_runs(self.begins, numbers)), epoch)

    def _batch(self, outputs: Array, epoch: int | None = None) -> FeatureBatch:
        states = [drawn(run, epoch) for run in _runs(self.edges, outputs)]
        windows = np.asarray(list(map(len, states)))
        return FeatureBatch(
            self.features[:, torch.from_numpy(np.concatenate(states))],
            np.searchsorted(self.begins, outputs, side="right") - 1,
            self.targets[outputs],
            windows if (windows > 1).any() else None,
        )

    def scoring_batches(self, device: str) -> Iterator[FeatureBatch]:
        """Yield all features, in the batches in which the backbone computed them.

        A head rounds a product of many rows differently from one of few, so only these batches
        give bit for bit what backbone and head would give together.
        """
        yield from map(self._batch, self.backbone_batches)


# Examples as a network reads them, in batches: texts, or features of a frozen backbone.
ExampleSet = PackedExamples | Features
NetworkBatch = PooledBatch | FeatureBatch


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


def _edges(counts: Array) -> Array:
    """Return where runs of so many items begin, and where the last one ends."""
    return np.concatenate([[0], np.cumsum(counts)])


def _runs(edges: Array, numbers: Array) -> list[Array]:
    """Return the indices of each of the runs `numbers`, which begin and end at `edges`."""
    return [np.arange(edges[n], edges[n + 1]) for n in numbers]


def count_chunks(*parts: Sized) -> int:
    """Return the number of chunks of all parts."""
    return sum(-(-len(part) // CHUNK) for part in parts)


def fits_in_memory(settings: ModelSettings, task: Task, *parts: PackedExamples) -> bool:
    """Return whether the features of all examples fit in memory, for a backbone of `settings`."""
    layers = settings.layers + 1 if task.needs.mix_layers else 1
    states = sum(int(state_counts(part.encoded).sum()) for part in parts)
    size = 4 * layers * states * settings.state_width
    return size <= memory_of(torch.device("cpu")) // MEMORY_DIVISOR
