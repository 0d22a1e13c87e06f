"""Cached features: a frozen backbone reads each example once for all epochs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sized
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from foreword.nn.model import ModelSettings
from foreword.runs.sizes import memory_of
from foreword.train.device import autocast
from foreword.tuning.encoded import output_counts
from foreword.tuning.network import Network
from foreword.tuning.rows import CHUNK, PackedExamples
from foreword.tuning.tasks._contract import Task
from foreword.types import Array, to_tensors

MEMORY_DIVISOR = 8  # cached features may use this fraction, 1/8, of the machine's memory


@dataclass(frozen=True)
class FeatureBatch:
    """The features of some examples.

    Attributes:
        cached: (layers, outputs, width) float32.
        numbers: the example that each output belongs to, (outputs,) int64.
        targets: the target of each output, (outputs,).
    """

    cached: Tensor
    numbers: Any
    targets: Any

    @property
    def token_count(self) -> int:
        """0, since the backbone reads nothing."""
        return 0

    def to(self, device: Any) -> FeatureBatch:
        """Return the batch as tensors on `device`."""
        return to_tensors(self, device)

    def features(self, network: Network) -> Tensor:
        """Return the features."""
        del network
        return self.cached

    def features_and_loss(self, network: Network) -> tuple[Tensor, Tensor | float]:
        """Return the features, without an auxiliary loss."""
        return self.features(network), 0.0


@dataclass(frozen=True)
class Features:
    """The features of all examples, in their order.

    Attributes:
        features: (layers, outputs, width) float32, in the machine's memory.
        targets: the target of each output, (outputs,).
        begins: where the outputs of each example begin, and where the last ones end,
            (examples + 1,) int64.
        backbone_batches: the outputs of each batch that the backbone read, as indices into
            `features`.
    """

    features: Tensor
    targets: Array
    begins: Array
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
            network: the network, whose backbone computes them.
            dtype: the dtype to compute in.
            done: called after each of `count_chunks(examples)` chunks.
        """
        network.eval()
        features_by_batch, numbers, targets = [], [], []
        with torch.inference_mode():
            for chunk in examples.chunks():
                for batch in examples.batches(chunk, device.type):
                    with autocast(device, dtype):
                        features_by_batch.append(batch.to(device).features(network).cpu())
                    numbers.append(batch.numbers)
                    targets.append(batch.targets)
                done()
        # Batches are packed in another order than that of the examples: restore it.
        joined = np.concatenate(numbers)
        order = np.argsort(joined, kind="stable")
        counts = np.bincount(joined, minlength=len(examples))
        features = torch.cat(features_by_batch, dim=1)[:, torch.from_numpy(order)]
        begins = np.concatenate([[0], counts.cumsum()])
        edges = np.cumsum([len(batch_numbers) for batch_numbers in numbers])[:-1]
        together = tuple(np.split(np.argsort(order), edges))
        return cls(features, np.concatenate(targets)[order], begins, together)

    def __len__(self) -> int:
        return len(self.begins) - 1

    def batches(self, numbers: Array, device: str) -> Iterator[FeatureBatch]:
        """Yield the features of the examples `numbers`, as one batch."""
        begins, ends = self.begins[numbers], self.begins[numbers + 1]
        example_numbers = np.repeat(numbers, ends - begins)
        pieces = [np.arange(begin, end) for begin, end in zip(begins, ends, strict=True)]
        rows = np.concatenate(pieces)
        yield FeatureBatch(
            self.features[:, torch.from_numpy(rows)], example_numbers, self.targets[rows]
        )

    def scoring_batches(self, device: str) -> Iterator[FeatureBatch]:
        """Yield all features, in the batches in which the backbone computed them.

        A head rounds a product of many rows differently from one of few, so only these batches
        give bit for bit what backbone and head would give together.
        """
        example_numbers = np.repeat(np.arange(len(self)), np.diff(self.begins))
        for rows in self.backbone_batches:
            yield FeatureBatch(
                self.features[:, torch.from_numpy(rows)], example_numbers[rows], self.targets[rows]
            )


def count_chunks(*parts: Sized) -> int:
    """Return the number of chunks of all parts."""
    return sum(-(-len(part) // CHUNK) for part in parts)


def fits_in_memory(settings: ModelSettings, task: Task, *parts: PackedExamples) -> bool:
    """Return whether the features of all examples fit in memory, for a backbone of `settings`."""
    layers = settings.layers + 1 if task.needs.mix_layers else 1
    outputs = sum(int(output_counts(part.encoded).sum()) for part in parts)
    size = 4 * layers * outputs * settings.state_width
    return size <= memory_of(torch.device("cpu")) // MEMORY_DIVISOR
