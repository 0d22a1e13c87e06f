"""A model divided among processes by FSDP2.

Blocks are gathered in the precision that they are computed in, and gradients added up in float32:
autocast's copies of gathered weights would be a whole model in bf16 on each process.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh

from foreword.nn.block import Block


def shard(
    module: nn.Module,
    mesh: DeviceMesh,
    device: torch.device,
    dtype: torch.dtype,
    *,
    reshards: bool,
) -> nn.Module:
    """Let each process hold its rows of a module's parameters, in memory that is not yet set.

    Each Transformer block is gathered when it is computed, in the precision that it is computed
    in: else autocast would keep a copy of all weights from forward to backward. The rest is
    gathered once a step, in float32, and gradients are added up in float32.

    Args:
        module: built without weights.
        mesh: the processes: those that share shards, or copies times shards.
        device: where it is computed.
        dtype: that it is computed in.
        reshards: whether the whole weights of a block are dropped between forward and backward.
    """
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard  # takes a second

    policy = MixedPrecisionPolicy(dtype, torch.float32, cast_forward_inputs=False)
    for block in _separate_blocks(module):
        fully_shard(block, mesh=mesh, mp_policy=policy, reshard_after_forward=reshards)
    fully_shard(module, mesh=mesh, reshard_after_forward=False)

    def allocated(tensor: Tensor) -> Tensor:
        is_unset = tensor.is_meta
        return torch.empty_like(tensor, device=device) if is_unset else tensor.to(device)

    module._apply(allocated)  # type: ignore[no-untyped-call]
    return module


def _separate_blocks(module: nn.Module) -> list[Block]:
    """Return the blocks that share no weights; none if some do, as in ALBERT."""
    blocks = list(dict.fromkeys(m for m in module.modules() if isinstance(m, Block)))
    weights = [parameter for block in blocks for parameter in block.parameters()]
    uses = sum(
        len(m)
        for m in module.modules()
        if isinstance(m, nn.ModuleList) and len(m) and isinstance(m[0], Block)
    )
    is_shared = len(set(weights)) < len(weights) or uses > len(blocks)
    return [] if is_shared else blocks
