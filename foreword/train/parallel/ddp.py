"""DDP: each process holds the whole model and computes some rows of a step."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from foreword.train.parallel._contract import TrainingDivision


@dataclass(frozen=True)
class DDP(TrainingDivision):
    """Each process holds the whole model and computes some rows of a step.

    Gradients are averaged while backward still runs. It is the fastest where model, gradients and
    optimizer fit in the memory of each process.

    Also called: data parallel.
    Reference: Li et al. 2020, "PyTorch Distributed".
    """

    shards: ClassVar[bool] = False

    def wrap(self, module: nn.Module, device: torch.device, dtype: torch.dtype) -> nn.Module:
        warnings.filterwarnings("ignore", "find_unused_parameters=True was specified")
        warnings.filterwarnings("ignore", "`broadcast_buffers` is deprecated")  # from torch 2.13
        # A term of the loss may have no predictions in one process, so its head no gradient.
        return DistributedDataParallel(
            module,
            broadcast_buffers=False,  # they are constant
            find_unused_parameters=True,
            gradient_as_bucket_view=True,
        )
