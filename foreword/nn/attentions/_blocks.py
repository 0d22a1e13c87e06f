"""Block-sparse attention: time and memory grow linearly with the length.

A row is cut into blocks of positions. Each block of queries gathers the blocks of keys that it
attends to and evaluates the mask on these pairs only. Global positions, which attend to all and are
attended to by all, are computed separately.
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
    """The blocks and positions that the queries of a row attend to.

    Attributes:
        size: positions in a block.
        blocks: blocks of keys that each block of queries attends to, each at most once, -1 for
            none; (heads or 1, blocks, attended blocks) int64.
        global_positions: positions that see all and are seen by all, (global positions,) int64.
    """

    size: int
    blocks: Tensor
    global_positions: Tensor


@dataclass(frozen=True)
class BlockMask:
    """A block layout with the mask evaluated on it.

    Attributes:
        layout: the blocks and global positions attended to.
        local_bias: added to the scores of the gathered blocks, (batch or 1, heads or 1, blocks,
            size, attended blocks * size).
        global_key_bias: added to the scores of the global keys, (batch or 1, heads or 1, blocks,
            size, global positions).
        global_query_mask: prepared mask of the global queries; None if there are none.
        empty: queries without any key, (batch or 1, heads or 1, length, 1) bool; None if none.
    """

    layout: BlockLayout
    local_bias: Tensor
    global_key_bias: Tensor
    global_query_mask: PreparedMask | None
    empty: Tensor | None

    def select_queries(self, queries: Tensor) -> BlockMask:
        """Refuse a query stream, whose single queries belong to no block.

        Raises:
            UserError: always.
        """
        raise UserError("model.attention: a query stream requires attention 'dense'")


def prepare_block_mask(
    layout: BlockLayout,
    mask: Mask,
    global_mask: Mask,
    bias: Tensor | None,
    shape: tuple[int, int],
    like: Tensor,
) -> BlockMask:
    """Return the mask evaluated on the pairs of a block layout, and on no others.

    Args:
        layout: the blocks and global positions attended to.
        mask: mask of the pairs in the blocks.
        global_mask: mask of the pairs with a global query or key.
        bias: added to the scores, (heads, length, length), or None.
        shape: batch, length.
        like: a tensor of the device and dtype of the scores.
    """
    batch, length = shape
    device, size, count = like.device, layout.size, layout.blocks.shape[1]
    # Indices of row, head, query and key that broadcast to (batch, heads, blocks, size, keys).
    queries = torch.arange(count * size, device=device).view(1, 1, count, size, 1)
    b = torch.arange(batch, device=device).view(-1, 1, 1, 1, 1)
    h = torch.arange(len(layout.blocks), device=device).view(1, -1, 1, 1, 1)
    i = queries.clamp(max=length - 1)
    offsets = torch.arange(size, device=device)
    j = (layout.blocks[..., None] * size + offsets).flatten(-2)[None, :, :, None]
    is_key = (j >= 0) & (j < length)  # not beyond the edges of the row
    j = j.clamp(0, length - 1)
    # Global keys are scored separately, so they are excluded from the blocks.
    if len(layout.global_positions):
        is_global = torch.zeros(length, dtype=torch.bool, device=device)
        is_global[layout.global_positions] = True
        is_key &= ~is_global[j]
    allowed = mask.allows(b, h, i, j) & is_key
    allowed_global = global_mask.allows(b, h, i, layout.global_positions.view(1, 1, 1, 1, -1))
    empty = ~(allowed.any(-1) | allowed_global.any(-1)).flatten(2)[..., :length, None]
    # Global queries attend to the whole row.
    global_query_mask = None
    if len(layout.global_positions):
        global_query_mask = _prepare_queries(
            layout.global_positions, global_mask, bias, shape, like
        )
        empty = empty.index_fill(2, layout.global_positions, False)  # computed separately
    # Masks become what is added to the scores, together with the position scheme's bias.
    local, far = _additive(allowed, like), _additive(allowed_global, like)
    if bias is not None:
        heads = torch.arange(len(bias), device=device).view(1, -1, 1, 1, 1)
        local = local + bias[heads, i, j].to(like.dtype)
        far = far + bias[:, :, layout.global_positions][:, i.flatten()].to(like.dtype).view(
            1, len(bias), count, size, -1
        )
    return BlockMask(layout, local, far, global_query_mask, empty if empty.any() else None)


def _prepare_queries(
    queries: Tensor, mask: Mask, bias: Tensor | None, shape: tuple[int, int], like: Tensor
) -> PreparedMask:
    """Return the prepared mask of some queries over the whole row."""
    batch, length = shape
    device = like.device
    allowed = mask.allows(
        torch.arange(batch, device=device).view(-1, 1, 1, 1),
        torch.zeros(1, 1, 1, 1, dtype=torch.long, device=device),
        queries.view(1, 1, -1, 1),
        torch.arange(length, device=device),
    )
    empty = ~allowed.any(-1, keepdim=True)
    dense = _additive(allowed, like)
    if bias is not None:
        dense = dense + bias[:, queries].to(like.dtype)
    return PreparedMask(dense=dense, empty=empty if empty.any() else None)


def _additive(allowed: Tensor, like: Tensor) -> Tensor:
    """Return 0 where allowed, else half the least number, as in dense attention."""
    additive = torch.zeros(allowed.shape, dtype=like.dtype, device=allowed.device)
    return additive.masked_fill_(~allowed, torch.finfo(like.dtype).min / 2)


def attend(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    block_mask: BlockMask,
    scale: float,
    dropout: float,
    position_scores: Tensor | None,
) -> Tensor:
    """Return softmax(scale (q k' + position_scores) + bias) v over the attended keys.

    Args:
        q: (batch, heads, length, d_head).
        k: (batch, heads, length, d_head).
        v: (batch, heads, length, d_head).
        block_mask: which keys, and what is added to their scores.
        scale: factor of the scores.
        dropout: share of attention weights dropped.
        position_scores: added to the scores, (batch, heads, length, length); or None.

    Returns:
        (batch, heads, length, d_head); zeros for a query without keys.
    """
    layout = block_mask.layout
    length, positions = q.shape[2], layout.global_positions
    # Each block of queries scores the keys of its blocks, then the global keys.
    index = _flat_blocks(layout, q.shape[1])
    local_k, local_v = _gather(k, layout, index), _gather(v, layout, index)
    scaled = q if scale == 1 else q * scale
    blocks = _split(scaled, layout)  # (batch, heads, blocks, size, d_head)
    scores = (blocks @ local_k.transpose(-2, -1)).add_(block_mask.local_bias)
    if len(positions):
        far = blocks.flatten(2, 3) @ k[:, :, positions].transpose(-2, -1)
        far = far.view(*scores.shape[:-1], -1).add_(block_mask.global_key_bias)
        scores = torch.cat([scores, far], -1)
    if position_scores is not None:
        scores = scores + _select_scores(position_scores, layout) * scale
    # One softmax over both kinds of keys; then the values of each.
    weights = drop(torch.softmax(scores, -1).to(scores.dtype), dropout)
    count = local_k.shape[3]
    output = (weights[..., :count] @ local_v).flatten(2, 3)
    if len(positions):
        output = output + weights[..., count:].flatten(2, 3) @ v[:, :, positions]
    output = output[:, :, :length]
    if block_mask.empty is not None:
        output = output.masked_fill(block_mask.empty, 0.0)
    # Global queries attend densely to the whole row.
    if block_mask.global_query_mask is not None:
        rows = None if position_scores is None else position_scores[:, :, positions]
        dense = attend_densely(
            q[:, :, positions], k, v, block_mask.global_query_mask, scale, dropout, rows
        )
        output = output.index_copy(2, positions, dense.to(output.dtype))
    return output


def _flat_blocks(layout: BlockLayout, heads: int) -> Tensor:
    """Return the attended blocks' indices among those of all heads, flat; any for -1."""
    count = layout.blocks.shape[1]
    first = torch.arange(heads, device=layout.blocks.device)[:, None, None] * count
    return (first + layout.blocks.clamp(min=0)).flatten()


def _split(x: Tensor, layout: BlockLayout) -> Tensor:
    """(batch, heads, length, d_head) -> (batch, heads, blocks, size, d_head), zeros behind."""
    count = layout.blocks.shape[1]
    missing = count * layout.size - x.shape[2]
    x = F.pad(x, (0, 0, 0, missing)) if missing else x
    return x.reshape(*x.shape[:2], count, layout.size, x.shape[3])


def _gather(x: Tensor, layout: BlockLayout, index: Tensor) -> Tensor:
    """Return the keys or values (batch, heads, length, d_head) of the attended blocks.

    Returns:
        (batch, heads, blocks, attended blocks * size, d_head).
    """
    batch, heads, _, d_head = x.shape
    count, attended = layout.blocks.shape[1:]
    blocks = _split(x, layout).reshape(batch, heads * count, layout.size * d_head)
    return blocks[:, index].view(batch, heads, count, attended * layout.size, d_head)


def _select_scores(position_scores: Tensor, layout: BlockLayout) -> Tensor:
    """Return the bias added to the scores at the attended pairs."""
    length, (count, _) = position_scores.shape[2], layout.blocks.shape[1:]
    i = torch.arange(count * layout.size, device=position_scores.device).clamp(max=length - 1)
    i = i.view(1, count, layout.size, 1)
    j = layout.blocks[..., None] * layout.size + torch.arange(
        layout.size, device=position_scores.device
    )
    j = j.flatten(-2)[:, :, None].clamp(0, length - 1)  # (heads or 1, blocks, 1, keys)
    h = torch.arange(position_scores.shape[1], device=position_scores.device).view(-1, 1, 1, 1)
    local = position_scores[:, h, i, j]
    far = position_scores[:, h, i, layout.global_positions.view(1, 1, 1, -1)]
    return torch.cat([local, far], -1)
