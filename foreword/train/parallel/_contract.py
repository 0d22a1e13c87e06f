"""The contract of parallel training, the kinds in `train/parallel/`."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar

import torch
from torch import nn

from foreword.settings.ranges import Ranged


class Parallelism(Ranged, ABC):
    """How several processes train one model: a kind in `train/parallel/`.

    The rows of a step are divided among the processes, which add up their losses and gradients.
    Whatever the kind, the same run happens on any number of processes.
    """

    @property
    @abstractmethod
    def may_shard(self) -> bool:
        """Whether `choose` may return a kind that shards."""

    @abstractmethod
    def choose(self, needed: int, available: int) -> TrainingDivision:
        """Return the division to use: of most kinds, the kind itself.

        Args:
            needed: least bytes of a process that holds all.
            available: bytes of memory that each process has.
        """


class TrainingDivision(Parallelism):
    """A kind that divides a training among processes itself.

    Attributes:
        shards: whether a process holds a part of weights, gradients and optimizer alone.
    """

    shards: ClassVar[bool]

    @property
    def may_shard(self) -> bool:
        """Whether it shards."""
        return self.shards

    def choose(self, needed: int, available: int) -> TrainingDivision:
        """Return this kind."""
        return self

    @abstractmethod
    def wrap(self, module: nn.Module, device: torch.device, dtype: torch.dtype) -> nn.Module:
        """Return the module that computes a loss, with gradients averaged over processes.

        Called in each process of several, and not in a process alone.

        Args:
            module: the model with its objective, the same in each process; for a kind that shards,
                without weights (`foreword.nn.init.without_weights`), which it has no values of
                afterwards either, but memory for this process's rows.
            device: where it is computed.
            dtype: that it is computed in, by autocast.
        """
