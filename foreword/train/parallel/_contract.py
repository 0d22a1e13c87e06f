"""The contract of parallel training, the kinds in `train/parallel/`."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import ClassVar

import torch
from torch import nn

from foreword.ranges import Ranged


class Parallelism(Ranged, ABC):
    """How several processes train one model: a kind in `train/parallel/`.

    The rows of a step are divided among the processes, which add up their losses and gradients.
    Whatever the kind, the same run happens on any number of processes.

    Attributes:
        shards: whether a process holds a part of weights, gradients and optimizer alone.
    """

    shards: ClassVar[bool] = False

    @property
    def may_shard(self) -> bool:
        """Whether `chosen` may return a kind that shards."""
        return self.shards

    def chosen(self, needed: int, available: int) -> Parallelism:
        """Return the kind to use.

        Args:
            needed: least bytes of a process that holds all.
            available: bytes of memory that each process has.
        """
        return self

    @abstractmethod
    def wrap(self, build: Callable[[], nn.Module], device: torch.device) -> nn.Module:
        """Return the module that computes a loss, with gradients averaged over processes.

        Called in each process of several, and not in a process alone.

        Args:
            build: returns the model with its objective, the same in each process: on `device`, or
                on the CPU for a kind that shards.
            device: where it is computed.
        """
