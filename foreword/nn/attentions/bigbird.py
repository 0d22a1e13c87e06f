"""BigBird: blocks of queries attend to neighbours, both ends of the row and random blocks."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from foreword.errors import UserError
from foreword.nn.attention import PreparedMask, prepare_mask, uses_flex
from foreword.nn.attention import attend as attend_densely
from foreword.nn.attentions._blocks import BlockLayout, BlockMask, attend, prepare_block_mask
from foreword.nn.attentions._contract import AttentionKind, AttentionMechanism
from foreword.nn.masks import BlockSparseMask, FullMask, Mask
from foreword.settings.ranges import Count, CountOrZero, Seed
from foreword.types import Array

PAPER = (1_024, 3_072, 4_096)  # the paper's lengths, for which its code has a separate plan


@dataclass(frozen=True)
class BigBird(AttentionKind):
    """Window, global and random blocks: time and memory are linear in the length.

    Rows too short to leave anything out get full attention. Random blocks are sampled once for each
    layer.

    Attributes:
        block: positions in a block.
        window: number of blocks around each block that it attends to, itself included; odd.
        ends: blocks at each end of the row that see all and are seen by all.
        random: number of random blocks, none of them in the window or at the ends.
        random_from: `row` samples from the whole row; `start` from its first window + 2 ends +
            2 random blocks, and in rows of 1,024, 3,072 and 4,096 positions (the paper's) from its
            first 1,024 positions, as the released code does.
        per_head: whether each head samples its own.
        seed: seed of the random blocks; layer n uses seed + n.

    Also called: big_bird, random attention.
    Reference: Zaheer et al. 2020, section 2 and appendix D.
    Differs from the paper: the released code draws within the start of the row, and there `start`
    with seed 0 gives its very blocks; in rows of 1,024 it may draw the last block, which then
    counts twice there and once here. Its port in `transformers` replaces the random blocks by the
    first block when it does not train.
    """

    block: Count = 64
    window: Count = 3
    ends: CountOrZero = 1
    random: CountOrZero = 3
    random_from: Literal["row", "start"] = "row"
    per_head: bool = True
    seed: Seed = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.window % 2 == 0:
            raise ValueError(
                f"window: counts the block itself and as many on each side, so it must be odd, got "
                f"{self.window}"
            )

    @property
    def least_blocks(self) -> int:
        """Rows of at most this many blocks get full attention."""
        return self.window + 2 * self.ends + 2 * self.random

    @property
    def sparse_length(self) -> int:
        """A length of row that leaves blocks out."""
        return (self.least_blocks + 1) * self.block + 1

    def prepare(
        self,
        mask: Mask,
        bias: Tensor | None,
        shape: tuple[int, int, int],
        like: Tensor,
        *,
        flex: bool,
    ) -> PreparedMask | DeferredMask:
        """Prepare the mask; for long rows, defer it to the layers with their random blocks.

        Raises:
            UserError: queries follow a cache or a memory beyond the length of full attention: the
                blocks of a row depend on its end.
        """
        batch, queries, keys = shape
        if keys <= self.least_blocks * self.block:
            return prepare_mask(mask, bias, shape, like, flex=flex)
        if queries != keys:
            raise UserError(
                f"model.attention: 'bigbird' reads whole rows at once; after a cache or memory it "
                f"reaches {self.least_blocks * self.block} positions, got {keys}"
            )
        return DeferredMask(mask, bias, batch, keys, like, flex)

    def build(self, heads: int, d_head: int, layers: int) -> list[AttentionMechanism]:
        """Return a module without parameters for each layer."""
        return [BigBirdAttention(self, heads if self.per_head else 1, n) for n in range(layers)]


@dataclass(frozen=True)
class DeferredMask:
    """The inputs from which each layer prepares a mask of its own; see `BigBird.prepare`."""

    mask: Mask
    bias: Tensor | None
    batch: int
    length: int
    like: Tensor
    flex: bool

    def select_queries(self, queries: Tensor) -> DeferredMask:
        """Refuse a query stream, whose single queries belong to no block.

        Raises:
            UserError: always.
        """
        raise UserError("model.attention: a query stream requires attention 'dense'")


class BigBirdAttention(AttentionMechanism):
    """The blocks of one layer.

    Args:
        settings: number of blocks of each type.
        heads: number that sample their own blocks; 1 if all share.
        layer: index of the block in its stack.
    """

    def __init__(self, settings: BigBird, heads: int, layer: int) -> None:
        super().__init__()
        self.settings, self.heads, self.layer = settings, heads, layer
        self._prepare = _uncompiled_prepare()

    def mask(self, queries: int, keys: int) -> Mask | None:
        """Return the mask of window, end and random blocks; the full mask in a short row."""
        s = self.settings
        if keys <= s.least_blocks * s.block:
            return FullMask()
        return self.mask_of(keys, torch.device("cpu"))

    def mask_of(self, length: int, device: torch.device) -> Mask:
        """Return the mask of window, end and random blocks of rows of `length` tokens."""
        s = self.settings
        count = -(-length // s.block)
        block_mask = attended_blocks(s, count, self.layer, self.heads)
        table = np.zeros((self.heads, count, count + 1), dtype=bool)
        np.put_along_axis(
            table, block_mask, True, axis=2
        )  # none is -1 and falls into the last column
        table = table[:, :, :count]
        for end in (slice(s.ends), slice(count - s.ends, count)):
            table[:, end] = True
            table[:, :, end] = True
        return BlockSparseMask(torch.from_numpy(table).to(device), s.block)

    def block_layout(self, length: int, device: torch.device) -> BlockLayout:
        """Return the blocks that each block of queries attends to, and the ends of the row."""
        s = self.settings
        count = -(-length // s.block)
        blocks = torch.from_numpy(attended_blocks(s, count, self.layer, self.heads)).to(device)
        end = torch.arange(s.ends * s.block, device=device)
        last = torch.arange(min((count - s.ends) * s.block, length), length, device=device)
        return BlockLayout(s.block, blocks, torch.cat([end, last]))

    def forward(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        prepared_mask: PreparedMask | DeferredMask,
        scale: float,
        dropout: float,
        position_scores: Tensor | None,
    ) -> Tensor:
        """Return (batch, heads, queries, d_head), by `_blocks.attend` or densely."""
        prepared = (
            self._prepare(self, prepared_mask)
            if isinstance(prepared_mask, DeferredMask)
            else prepared_mask
        )
        if isinstance(prepared, BlockMask):
            return attend(q, k, v, prepared, scale, dropout, position_scores)
        return attend_densely(q, k, v, prepared, scale, dropout, position_scores)


Prepare = Callable[[BigBirdAttention, DeferredMask], PreparedMask | BlockMask]


@functools.cache
def _uncompiled_prepare() -> Prepare:
    """Return `_prepare` as torch's compiler leaves it alone, since it samples with numpy.

    The compiler takes seconds to import, so only a model that has this attention does.
    """
    function: Prepare = torch.compiler.disable(_prepare)  # type: ignore[no-untyped-call]
    return function


def _prepare(attention: BigBirdAttention, pending: DeferredMask) -> PreparedMask | BlockMask:
    """Return the mask of a layer's blocks, prepared for the engine in use."""
    mask, bias, like, length = pending.mask, pending.bias, pending.like, pending.length
    if uses_flex(pending.flex):
        whole = mask & attention.mask_of(length, like.device)
        shape = (pending.batch, length, length)
        return prepare_mask(whole, bias, shape, like, flex=True, heads=attention.heads)
    layout = attention.block_layout(length, like.device)
    return prepare_block_mask(layout, mask, mask, bias, (pending.batch, length), like)


@functools.lru_cache(maxsize=256)
def attended_blocks(settings: BigBird, count: int, layer: int, heads: int) -> Array:
    """Return the window and random blocks of each block, without those at the ends.

    Returns:
        (heads, count, window + random) int64, -1 for none.
    """
    s = settings
    is_of_paper = s.random_from == "start" and count * s.block in PAPER
    random = np.random.RandomState(s.seed + layer)
    blocks = np.full((heads, count, s.window + s.random), -1, dtype=np.int64)
    for n in range(s.ends, count - s.ends):
        window = [m for m in _near(s, n) if s.ends <= m < count - s.ends]
        blocks[:, n, : len(window)] = window
    draw = _sample_blocks_as_in_paper if is_of_paper else _sample_blocks
    for head, n, drawn in draw(s, count, heads, random):
        inside = [m for m in drawn[: s.random] if m < count - s.ends]
        blocks[head, n, s.window : s.window + len(inside)] = inside
    return blocks


def _near(settings: BigBird, n: int) -> range:
    """Return the window of block `n`, which may exceed the edges of the row."""
    return range(n - settings.window // 2, n + settings.window // 2 + 1)


# The order matters: it reproduces the released code's samples, with a generator for each layer.


def _sample_blocks(
    settings: BigBird, count: int, heads: int, random: np.random.RandomState
) -> Iterator[tuple[int, int, list[int]]]:
    """Yield head, block and its random blocks, block by block and in each head by head."""
    s = settings
    reach = min(count, s.least_blocks) if s.random_from == "start" else count
    for n in range(s.ends, count - s.ends):
        illegal = {*_near(s, n), *range(s.ends), *range(reach - s.ends, reach)}
        # The released code excludes these for the two blocks next to the ends.
        illegal |= {reach - s.ends - 1} if n == s.ends else set()
        illegal |= {s.ends} if n == reach - s.ends - 1 else set()
        for head in range(heads):
            yield head, n, [m for m in random.permutation(reach).tolist() if m not in illegal]


def _sample_blocks_as_in_paper(
    settings: BigBird, count: int, heads: int, random: np.random.RandomState
) -> Iterator[tuple[int, int, list[int]]]:
    """Yield head, block and its random blocks, head by head, as for the paper's longest row."""
    s, longest = settings, max(PAPER) // settings.block
    reach = min(PAPER) // s.block if min(PAPER) > 2 * s.block else longest - s.ends
    for head in range(heads):
        for n in range(s.ends, longest - s.ends):
            legal = [m for m in range(s.ends, reach) if m not in _near(s, n)]
            drawn = random.permutation(legal).tolist()
            if n < count - s.ends:
                yield head, n, drawn
