"""The contract of parallel training, the kinds in `train/parallel/`."""

from __future__ import annotations

from abc import ABC, abstractmethod

from torch import nn

from foreword.ranges import Ranged


class Parallelism(Ranged, ABC):
    """How several processes train one model: a kind in `train/parallel/`.

    The rows of a step are divided among the processes, which add up their losses and gradients.
    Whatever the kind, the same run happens on any number of processes.
    """

    @abstractmethod
    def wrap(self, loss_fn: nn.Module) -> nn.Module:
        """Return the module that computes a loss, with gradients averaged over processes.

        Called in each process of several, and not in a process alone.

        Args:
            loss_fn: the model with its objective, the same in each process, on its device.
        """
