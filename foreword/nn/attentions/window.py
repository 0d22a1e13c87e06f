"""Every query looks at its neighbours, and at a few places that are seen by all."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from foreword.nn import masks
from foreword.nn.attention import PreparedMask, prepare_mask, uses_flex
from foreword.nn.attention import attend as attend_densely
from foreword.nn.attention_kind import AttentionKind, AttentionMechanism
from foreword.nn.attentions._blocks import BlockLayout, BlockMask, attend, prepare_block_mask
from foreword.nn.masks import Mask
from foreword.ranges import Count, CountOrZero


@dataclass(frozen=True)
class Window(AttentionKind):
    """Local attention: time and memory grow with the length. Causal where the batch's mask is.

    Attributes:
        radius: how many places away a key may be, on each side: 64 is ModernBERT's window of 128.
        global_tokens: the first places of each row see all and are seen by all.

    Reference: Beltagy et al. 2020 (Longformer), section 3.1; Warner et al. 2024 (ModernBERT),
    section 2.1.2; Brown et al. 2020 (GPT-3), section 2.1; Child et al. 2019.
    Differs from the paper: Longformer's global attention has queries, keys and values of its own;
    here one set serves both, as in BigBird.
    """

    radius: Count = 64
    global_tokens: CountOrZero = 0

    @property
    def block(self) -> int:
        """Places of a block; small ones look at fewer keys in vain, large ones multiply faster."""
        return min(max(self.radius, 16), 128)

    @property
    def reach(self) -> int:
        """Blocks that a block looks at on each side."""
        return -(-self.radius // self.block)

    @property
    def short(self) -> int:
        """Up to so many places dense attention is as fast: half as many again as are gathered."""
        return 3 * (2 * self.reach + 1) * self.block // 2

    def mask(self, queries: int, keys: int) -> Mask:
        """Near, or seen by all."""
        offset = keys - queries
        near: Mask = masks.WindowMask(self.radius, offset)
        return near | masks.GlobalMask(self.global_tokens, offset) if self.global_tokens else near

    def prepare(
        self,
        mask: Mask,
        bias: Tensor | None,
        shape: tuple[int, int, int],
        like: Tensor,
        *,
        flex: bool,
    ) -> PreparedMask | BlockMask:
        """The mask at the pairs in reach; short rows, caches and CUDA take the dense engine."""
        batch, queries, keys = shape
        if uses_flex(flex) or queries != keys or keys <= self.short:
            return prepare_mask(mask & self.mask(queries, keys), bias, shape, like, flex=flex)
        near = mask & masks.WindowMask(self.radius)
        return prepare_block_mask(
            self._block_layout(keys, like.device), near, mask, bias, (batch, keys), like
        )

    def _block_layout(self, length: int, device: torch.device) -> BlockLayout:
        size = self.block
        count, reach = -(-length // size), self.reach
        own = torch.arange(count, device=device)[:, None]
        blocks = own + torch.arange(-reach, reach + 1, device=device)
        blocks = blocks.masked_fill((blocks < 0) | (blocks >= count), -1)
        everywhere = torch.arange(min(self.global_tokens, length), device=device)
        return BlockLayout(size, blocks[None], everywhere)

    def build(self, heads: int, d_head: int, layers: int) -> list[AttentionMechanism]:
        """One module without parameters for all layers."""
        return [WindowAttention(self)] * layers


class WindowAttention(AttentionMechanism):
    """Attends to what the pattern says, by blocks or densely."""

    def __init__(self, settings: Window) -> None:
        super().__init__()
        self.settings = settings

    def mask(self, queries: int, keys: int) -> Mask | None:
        """Near, or seen by all."""
        return self.settings.mask(queries, keys)

    def attend(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        prepared_mask: PreparedMask | BlockMask,
        scale: float,
        dropout: float,
        extra: Tensor | None,
    ) -> Tensor:
        """(batch, heads, queries, d_head), as `_blocks.attend` or dense attention has it."""
        if isinstance(prepared_mask, PreparedMask):
            return attend_densely(q, k, v, prepared_mask, scale, dropout, extra)
        return attend(q, k, v, prepared_mask, scale, dropout, extra)
