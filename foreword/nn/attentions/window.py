"""Sliding-window attention: each query attends to its neighbours and a few global positions."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from foreword.nn import masks
from foreword.nn.attention import PreparedMask, prepare_mask, uses_flex
from foreword.nn.attention import attend as attend_densely
from foreword.nn.attentions._blocks import BlockLayout, BlockMask, attend, prepare_block_mask
from foreword.nn.attentions._contract import AttentionKind, AttentionMechanism
from foreword.nn.masks import Mask
from foreword.settings.ranges import Count, CountOrZero


@dataclass(frozen=True)
class Window(AttentionKind):
    """Local attention, in time and memory linear in the length. Causal if the batch's mask is.

    Attributes:
        radius: maximum distance of a key, on each side; 64 is ModernBERT's window of 128.
        global_tokens: number of first positions of each row that see all and are seen by all.

    Also called: local, sliding window.
    Reference: Beltagy et al. 2020 (Longformer), section 3.1; Warner et al. 2024 (ModernBERT),
    section 2.1.2; Brown et al. 2020 (GPT-3), section 2.1; Child et al. 2019.
    Differs from the paper: Longformer's global attention has separate queries, keys and values;
    here one set serves both, as in BigBird.
    """

    radius: Count = 64
    global_tokens: CountOrZero = 0

    @property
    def block(self) -> int:
        """Positions in a block: small ones waste fewer keys, large ones multiply faster."""
        return min(max(self.radius, 16), 128)

    @property
    def reach(self) -> int:
        """Blocks that a block attends to on each side."""
        return -(-self.radius // self.block)

    @property
    def short(self) -> int:
        """Length up to which dense attention is as fast: 1.5 times the gathered keys."""
        return 3 * (2 * self.reach + 1) * self.block // 2

    @property
    def sparse_length(self) -> int:
        """A length of row that is computed by blocks."""
        return self.short + self.block + 1

    def mask(self, queries: int, keys: int) -> Mask:
        """Return the mask of local and global keys."""
        offset = keys - queries
        local: Mask = masks.WindowMask(self.radius, offset)
        return local | masks.GlobalMask(self.global_tokens, offset) if self.global_tokens else local

    def prepare(
        self,
        mask: Mask,
        bias: Tensor | None,
        shape: tuple[int, int, int],
        like: Tensor,
        *,
        flex: bool,
    ) -> PreparedMask | BlockMask:
        """Prepare the mask by blocks; short rows, caches and CUDA use the dense engine."""
        batch, queries, keys = shape
        if (
            uses_flex(flex)
            or queries != keys
            or torch.compiler.is_exporting()
            or keys <= self.short
        ):
            return prepare_mask(mask & self.mask(queries, keys), bias, shape, like, flex=flex)
        local = mask & masks.WindowMask(self.radius)
        return prepare_block_mask(
            self._block_layout(keys, like.device), local, mask, bias, (batch, keys), like
        )

    def _block_layout(self, length: int, device: torch.device) -> BlockLayout:
        size = self.block
        count, reach = -(-length // size), self.reach
        diagonal = torch.arange(count, device=device)[:, None]
        blocks = diagonal + torch.arange(-reach, reach + 1, device=device)
        blocks = blocks.masked_fill((blocks < 0) | (blocks >= count), -1)
        global_positions = torch.arange(min(self.global_tokens, length), device=device)
        return BlockLayout(size, blocks[None], global_positions)

    def build(self, heads: int, d_head: int, layers: int) -> list[AttentionMechanism]:
        """Return one module without parameters for all layers."""
        return [WindowAttention(self)] * layers


class WindowAttention(AttentionMechanism):
    """Sliding-window attention, computed by blocks or densely."""

    def __init__(self, settings: Window) -> None:
        super().__init__()
        self.settings = settings

    def mask(self, queries: int, keys: int) -> Mask | None:
        """Return the mask of local and global keys."""
        return self.settings.mask(queries, keys)

    def forward(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        prepared_mask: PreparedMask | BlockMask,
        scale: float,
        dropout: float,
        position_scores: Tensor | None,
    ) -> Tensor:
        """Return (batch, heads, queries, d_head), by `_blocks.attend` or densely."""
        if isinstance(prepared_mask, PreparedMask):
            return attend_densely(q, k, v, prepared_mask, scale, dropout, position_scores)
        return attend(q, k, v, prepared_mask, scale, dropout, position_scores)
