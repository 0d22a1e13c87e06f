"""HSDP: shards within a machine, copies between machines."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import nn
from torch.distributed.device_mesh import init_device_mesh

from foreword.errors import UserError
from foreword.settings.ranges import CountOrZero
from foreword.train import processes
from foreword.train.parallel._contract import TrainingDivision
from foreword.train.parallel._sharding import shard


@dataclass(frozen=True)
class HSDP(TrainingDivision):
    """As `fsdp` among some processes, as `ddp` between these groups.

    Shards are gathered within a group, whose connection is fast, and only gradients cross from one
    group to the others.

    Attributes:
        group: processes that share one copy of the model; 0 for those of a machine.
        reshard: as in `fsdp`.

    Also called: hybrid sharding.
    Reference: Zhao et al. 2023, "PyTorch FSDP", section 3.2.2.
    """

    shards: ClassVar[bool] = True

    group: CountOrZero = 0
    reshard: bool = True

    def wrap(self, module: nn.Module, device: torch.device, dtype: torch.dtype) -> nn.Module:
        """Shard the module within each group.

        Raises:
            UserError: the processes cannot be divided into such groups.
        """
        count, group = processes.count(), self.group or processes.local_count()
        if count % group:
            raise UserError(f"parallel.group: {count} processes are not groups of {group}")
        mesh = init_device_mesh(
            device.type, (count // group, group), mesh_dim_names=("copies", "shards")
        )
        return shard(module, mesh, device, dtype, reshards=self.reshard)
