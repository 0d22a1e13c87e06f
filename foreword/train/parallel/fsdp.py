"""FSDP: each process holds a part of weights, gradients and optimizer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import nn
from torch.distributed.device_mesh import init_device_mesh

from foreword.train import processes
from foreword.train.parallel._contract import TrainingDivision
from foreword.train.parallel._sharding import shard


@dataclass(frozen=True)
class FSDP(TrainingDivision):
    """Each process holds a part of weights, gradients and optimizer, and gathers block by block.

    For models that are too large for one process: of what a training holds besides activations,
    each of N processes holds the N-th part, and one block whole. It sends as much as `ddp` in
    bf16, half as much again in fp32.

    Attributes:
        reshard: drop the whole weights of a block between forward and backward; without it they
            are sent once instead of twice, and each process holds all of them during a step.

    Also called: ZeRO, fully sharded data parallel.
    Reference: Rajbhandari et al. 2020, "ZeRO"; Zhao et al. 2023, "PyTorch FSDP".
    """

    shards: ClassVar[bool] = True

    reshard: bool = True

    def wrap(self, module: nn.Module, device: torch.device, dtype: torch.dtype) -> nn.Module:
        mesh = init_device_mesh(device.type, (processes.count(),))
        return shard(module, mesh, device, dtype, reshards=self.reshard)
