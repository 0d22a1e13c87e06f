"""A model divided among processes by FSDP2, one process after another."""

from __future__ import annotations

from collections.abc import Callable

from torch import distributed, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import fully_shard

from foreword.nn.block import Block
from foreword.train import processes


def shard_in_turn(build: Callable[[], nn.Module], mesh: DeviceMesh, *, reshards: bool) -> nn.Module:
    """Build a module and keep this process's shards of it, in each process in turn.

    So only one process at a time holds it whole, in the CPU's memory. Each Transformer block is
    gathered when it is computed, and the rest once a step.

    Args:
        build: returns the module.
        mesh: the processes: those that share shards, or copies times shards.
        reshards: whether the whole weights of a block are dropped between forward and backward.
    """
    module: nn.Module | None = None
    for turn in range(processes.count()):
        if turn == processes.rank():
            module = build()
            for block in _separate_blocks(module):
                fully_shard(block, mesh=mesh, reshard_after_forward=reshards)
            fully_shard(module, mesh=mesh, reshard_after_forward=False)
        distributed.barrier()
    assert module is not None
    return module


def _separate_blocks(module: nn.Module) -> list[Block]:
    """Return the blocks that share no weights; none if some do, as in ALBERT."""
    blocks = list(dict.fromkeys(one for one in module.modules() if isinstance(one, Block)))
    weights = [parameter for block in blocks for parameter in block.parameters()]
    uses = sum(
        len(one)
        for one in module.modules()
        if isinstance(one, nn.ModuleList) and len(one) and isinstance(one[0], Block)
    )
    is_shared = len(set(weights)) < len(weights) or uses > len(blocks)
    return [] if is_shared else blocks
