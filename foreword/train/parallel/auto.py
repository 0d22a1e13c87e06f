"""The kind that suits the model and the machine."""

from __future__ import annotations

from dataclasses import dataclass

from torch import nn

from foreword.train.parallel._contract import Parallelism
from foreword.train.parallel.ddp import DDP


@dataclass(frozen=True)
class Auto(Parallelism):
    """The kind that suits the model and the machine: DDP."""

    def wrap(self, loss_fn: nn.Module) -> nn.Module:
        """Return what `ddp` returns."""
        return DDP().wrap(loss_fn)
