"""Attention that looks at some blocks of keys: time and memory grow with the length alone.

A row is cut into blocks of places. Each block of queries gathers the blocks of keys that it looks
at and asks the mask about these pairs only. Places that all look at, and that look at all, are
computed apart.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from foreword.errors import UserError
from foreword.nn.attention import PreparedMask
from foreword.nn.attention import attend as attend_densely
from foreword.nn.dropout import dropout as drop
from foreword.nn.masks import Mask


@dataclass(frozen=True)
class BlockLayout:
    """Where the queries of a row look.

    Attributes:
        size: places of a block.
        blocks: which blocks of keys each block of queries looks at, each at most once, -1 for
            none; (heads or 1, blocks, looked at) int64.
        everywhere: places that see all and are seen by all, (everywhere,) int64.
    """

    size: int
    blocks: Tensor
    everywhere: Tensor


@dataclass(frozen=True)
class BlockMask:
    """A look with the mask asked about it.

    Attributes:
        layout: where the queries look.
        near: added to the scores of the blocks gathered, (batch or 1, heads or 1, blocks, size,
            looked at * size).
        seen: added to the scores of the keys seen everywhere, (batch or 1, heads or 1, blocks,
            size, everywhere).
        seeing: the pattern of the queries that see everything; None if there are none.
        empty: queries without any key, (batch or 1, heads or 1, length, 1) bool; None if none.
    """

    layout: BlockLayout
    near: Tensor
    seen: Tensor
    seeing: PreparedMask | None
    empty: Tensor | None

    def of(self, queries: Tensor) -> BlockMask:
        """A second stream asks for single queries, which stand in no block.

        Raises:
            UserError: always.
        """
        raise UserError("model.attention: a second stream needs attention that is 'dense'")


def prepare_block_mask(
    layout: BlockLayout,
    mask: Mask,
    everywhere_mask: Mask,
    bias: Tensor | None,
    shape: tuple[int, int],
    like: Tensor,
) -> BlockMask:
    """Asks the mask about the pairs that the look brings together, and no others.

    Args:
        layout: where the queries look.
        mask: of the pairs in the blocks.
        everywhere_mask: of the pairs with a place that all see or that sees all.
        bias: added to the scores, (heads, length, length), or None.
        shape: batch, length.
        like: a tensor of the device and dtype of the scores.
    """
    batch, length = shape
    device, size, count = like.device, layout.size, layout.blocks.shape[1]
    places = torch.arange(count * size, device=device).view(1, 1, count, size, 1)
    b = torch.arange(batch, device=device).view(-1, 1, 1, 1, 1)
    h = torch.arange(len(layout.blocks), device=device).view(1, -1, 1, 1, 1)
    i = places.clamp(max=length - 1)
    inside = torch.arange(size, device=device)
    j = (layout.blocks[..., None] * size + inside).flatten(-2)[None, :, :, None]
    is_there = (j >= 0) & (j < length)
    j = j.clamp(0, length - 1)
    if len(layout.everywhere):
        apart = torch.zeros(length, dtype=torch.bool, device=device)
        apart[layout.everywhere] = True
        is_there &= ~apart[j]
    allowed = mask.allows(b, h, i, j) & is_there
    seen = everywhere_mask.allows(b, h, i, layout.everywhere.view(1, 1, 1, 1, -1))
    empty = ~(allowed.any(-1) | seen.any(-1)).flatten(2)[..., :length, None]
    seeing = None
    if len(layout.everywhere):
        seeing = _of_places(layout.everywhere, everywhere_mask, bias, shape, like)
        empty = empty.index_fill(2, layout.everywhere, False)  # these are computed apart
    near, far = _added(allowed, like), _added(seen, like)
    if bias is not None:
        heads = torch.arange(len(bias), device=device).view(1, -1, 1, 1, 1)
        near = near + bias[heads, i, j].to(like.dtype)
        far = far + bias[:, :, layout.everywhere][:, i.flatten()].to(like.dtype).view(
            1, len(bias), count, size, -1
        )
    return BlockMask(layout, near, far, seeing, empty if empty.any() else None)


def _of_places(
    places: Tensor, mask: Mask, bias: Tensor | None, shape: tuple[int, int], like: Tensor
) -> PreparedMask:
    """The pattern of these queries over the whole row."""
    batch, length = shape
    device = like.device
    allowed = mask.allows(
        torch.arange(batch, device=device).view(-1, 1, 1, 1),
        torch.zeros(1, 1, 1, 1, dtype=torch.long, device=device),
        places.view(1, 1, -1, 1),
        torch.arange(length, device=device),
    )
    empty = ~allowed.any(-1, keepdim=True)
    dense = _added(allowed, like)
    if bias is not None:
        dense = dense + bias[:, places].to(like.dtype)
    return PreparedMask(dense=dense, empty=empty if empty.any() else None)


def _added(allowed: Tensor, like: Tensor) -> Tensor:
    """0 where allowed, else half the least number: as dense attention has it."""
    added = torch.zeros(allowed.shape, dtype=like.dtype, device=allowed.device)
    return added.masked_fill_(~allowed, torch.finfo(like.dtype).min / 2)


def attend(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    block_mask: BlockMask,
    scale: float,
    dropout: float,
    extra: Tensor | None,
) -> Tensor:
    """softmax(scale (q k' + extra) + bias) v over the keys looked at.

    Args:
        q: (batch, heads, length, d_head).
        k: (batch, heads, length, d_head).
        v: (batch, heads, length, d_head).
        block_mask: which keys, and what is added.
        scale: of the scores.
        dropout: share of attention weights dropped.
        extra: of the scores, (batch, heads, length, length); or None.

    Returns:
        (batch, heads, length, d_head); zeros for a query without keys.
    """
    layout = block_mask.layout
    length, everywhere = q.shape[2], layout.everywhere
    where = _where(layout, q.shape[1])
    near_k, near_v = _gather(k, layout, where), _gather(v, layout, where)
    blocked = _blocked(
        q if scale == 1 else q * scale, layout
    )  # (batch, heads, blocks, size, d_head)
    scores = (blocked @ near_k.transpose(-2, -1)).add_(block_mask.near)
    if len(everywhere):
        far = blocked.flatten(2, 3) @ k[:, :, everywhere].transpose(-2, -1)
        far = far.view(*scores.shape[:-1], -1).add_(block_mask.seen)
        scores = torch.cat([scores, far], -1)
    if extra is not None:
        scores = scores + _extra(extra, layout) * scale
    weights = drop(torch.softmax(scores, -1).to(scores.dtype), dropout)
    count = near_k.shape[3]
    mixed = (weights[..., :count] @ near_v).flatten(2, 3)
    if len(everywhere):
        mixed = mixed + weights[..., count:].flatten(2, 3) @ v[:, :, everywhere]
    mixed = mixed[:, :, :length]
    if block_mask.empty is not None:
        mixed = mixed.masked_fill(block_mask.empty, 0.0)
    if block_mask.seeing is not None:
        added = None if extra is None else extra[:, :, everywhere]
        seeing = attend_densely(q[:, :, everywhere], k, v, block_mask.seeing, scale, dropout, added)
        mixed = mixed.index_copy(2, everywhere, seeing.to(mixed.dtype))
    return mixed


def _where(layout: BlockLayout, heads: int) -> Tensor:
    """The blocks looked at among those of all heads, flat; any will do for none."""
    count = layout.blocks.shape[1]
    first = torch.arange(heads, device=layout.blocks.device)[:, None, None] * count
    return (first + layout.blocks.clamp(min=0)).flatten()


def _blocked(x: Tensor, layout: BlockLayout) -> Tensor:
    """(batch, heads, length, d_head) -> (batch, heads, blocks, size, d_head), zeros behind."""
    count = layout.blocks.shape[1]
    missing = count * layout.size - x.shape[2]
    x = F.pad(x, (0, 0, 0, missing)) if missing else x
    return x.reshape(*x.shape[:2], count, layout.size, x.shape[3])


def _gather(x: Tensor, layout: BlockLayout, where: Tensor) -> Tensor:
    """Keys or values (batch, heads, length, d_head) of the blocks looked at.

    Returns:
        (batch, heads, blocks, looked at * size, d_head).
    """
    batch, heads, _, d_head = x.shape
    count, looked_at = layout.blocks.shape[1:]
    blocks = _blocked(x, layout).reshape(batch, heads * count, layout.size * d_head)
    return blocks[:, where].view(batch, heads, count, looked_at * layout.size, d_head)


def _extra(extra: Tensor, layout: BlockLayout) -> Tensor:
    """What is added to the scores, at the pairs that are looked at."""
    length, (count, _) = extra.shape[2], layout.blocks.shape[1:]
    i = torch.arange(count * layout.size, device=extra.device).clamp(max=length - 1)
    i = i.view(1, count, layout.size, 1)
    j = layout.blocks[..., None] * layout.size + torch.arange(layout.size, device=extra.device)
    j = j.flatten(-2)[:, :, None].clamp(0, length - 1)  # (heads or 1, blocks, 1, keys)
    h = torch.arange(extra.shape[1], device=extra.device).view(-1, 1, 1, 1)
    near = extra[:, h, i, j]
    far = extra[:, h, i, layout.everywhere.view(1, 1, 1, -1)]
    return torch.cat([near, far], -1)
