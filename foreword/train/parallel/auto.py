"""The kind that suits the model and the machine."""

from __future__ import annotations

from dataclasses import dataclass

from foreword.train.parallel._contract import Parallelism, TrainingDivision
from foreword.train.parallel.ddp import DDP

MOST = 0.5  # share of the memory that weights, gradients, optimizer and one row may take


@dataclass(frozen=True)
class Auto(Parallelism):
    """By memory: `ddp` if the model takes at most half of each process's memory, else `fsdp`."""

    @property
    def may_shard(self) -> bool:
        return True

    def choose(self, needed: int, available: int) -> TrainingDivision:
        if needed <= MOST * available:
            return DDP()
        from foreword.train.parallel.fsdp import FSDP  # its imports take a second

        return FSDP()
