"""Attention masks: `allows(b, h, i, j)` returns whether query `i` may attend to key `j`.

Masks combine with `&` and `|`. One description serves three engines: a dense tensor for SDPA
(`dense`), FlexAttention's block mask (`allows` is its `mask_mod`), and the tests' slow reference,
which asks one position at a time.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F


class Mask(ABC):
    """The pairs of query and key that attention may use."""

    @abstractmethod
    def allows(self, b: Any, h: Any, i: Any, j: Any) -> Any:
        """Return True where query `i` of head `h` in row `b` may attend to key `j`; broadcasts."""

    @property
    def sees_itself(self) -> bool:
        """Whether every query `i` sees key `i` for certain, so that no query is without keys."""
        return False

    def __and__(self, other: Mask) -> Mask:
        if isinstance(self, FullMask):
            return other
        return self if isinstance(other, FullMask) else AndMask(self, other)

    def __or__(self, other: Mask) -> Mask:
        return self if isinstance(self, FullMask) else OrMask(self, other)

    def dense(
        self, batch: int, queries: int, keys: int, device: torch.device, heads: int = 1
    ) -> Tensor:
        """Return the mask as a tensor, (batch or 1, heads or 1, queries, keys) bool.

        `heads` is the number of heads, for masks that differ between them.
        """
        b = torch.arange(batch, device=device)[:, None, None, None]
        h = torch.arange(heads, device=device)[None, :, None, None]
        i = torch.arange(queries, device=device)[None, None, :, None]
        j = torch.arange(keys, device=device)[None, None, None, :]
        allowed: Tensor = self.allows(b, h, i, j)
        return allowed.expand(*allowed.shape[:2], queries, keys)


@dataclass(frozen=True)
class FullMask(Mask):
    """All pairs: the encoder's mask."""

    def allows(self, b: Any, h: Any, i: Any, j: Any) -> Any:
        return (i >= 0) & (j >= 0)

    @property
    def sees_itself(self) -> bool:
        return True


@dataclass(frozen=True)
class CausalMask(Mask):
    """No later keys: the decoder's mask. `offset` keys precede the first query."""

    offset: int = 0

    def allows(self, b: Any, h: Any, i: Any, j: Any) -> Any:
        """Return whether the key is at or before the query."""
        return j <= i + self.offset

    @property
    def sees_itself(self) -> bool:
        """True unless keys are missing before the first query."""
        return self.offset >= 0


@dataclass(frozen=True)
class RaggedCausalMask(Mask):
    """`CausalMask` with an offset of each row: keys that precede its first query.

    Attributes:
        offsets: (batch,) int64.
    """

    offsets: Any

    def allows(self, b: Any, h: Any, i: Any, j: Any) -> Any:
        """Return whether the key is at or before the query."""
        return j <= i + self.offsets[b]


@dataclass(frozen=True)
class DocumentMask(Mask):
    """Keys of the query's own document, for several texts packed in one row.

    Attributes:
        queries: document of each query, (batch, queries) int64.
        keys: document of each key, (batch, keys) int64.
    """

    queries: Any
    keys: Any

    def allows(self, b: Any, h: Any, i: Any, j: Any) -> Any:
        """Return whether query and key share a document; padding (-1) sees padding."""
        return self.queries[b, i] == self.keys[b, j]

    @property
    def sees_itself(self) -> bool:
        """True where queries and keys are the same row."""
        return self.queries is self.keys

    def span_edges(self) -> Tensor:
        """Return where documents begin in the flattened rows, and where the last one ends.

        Documents are contiguous, and a row's padding is one. Empty spans at the end make the number
        of spans a power of two, since code is compiled for each number.

        Returns:
            (spans + 1,) int32.
        """
        documents = self.queries
        is_first = torch.ones_like(documents, dtype=torch.bool)
        is_first[:, 1:] = documents[:, 1:] != documents[:, :-1]
        starts = is_first.flatten().nonzero()[:, 0].to(torch.int32)
        spans: int = 1 << (len(starts) - 1).bit_length()
        return F.pad(starts, (0, spans + 1 - len(starts)), value=documents.numel())


@dataclass(frozen=True)
class PrefixMask(Mask):
    """Keys of the prefix, which all queries see: with `CausalMask() |`, the prefix decoder's mask.

    Attributes:
        is_prefix: (batch, keys) bool.
    """

    is_prefix: Any

    def allows(self, b: Any, h: Any, i: Any, j: Any) -> Any:
        return self.is_prefix[b, j] & (i >= 0)


@dataclass(frozen=True)
class WindowMask(Mask):
    """Keys at most `radius` positions away (Longformer's and ModernBERT's local attention)."""

    radius: int
    offset: int = 0

    def allows(self, b: Any, h: Any, i: Any, j: Any) -> Any:
        """Return whether the key is within the radius of the query."""
        return (i + self.offset - j <= self.radius) & (j - i - self.offset <= self.radius)

    @property
    def sees_itself(self) -> bool:
        """True unless the offset exceeds the radius."""
        return abs(self.offset) <= self.radius


@dataclass(frozen=True)
class GlobalMask(Mask):
    """The first `count` positions of a row see and are seen by all (Longformer)."""

    count: int
    offset: int = 0

    def allows(self, b: Any, h: Any, i: Any, j: Any) -> Any:
        return (i + self.offset < self.count) | (j < self.count)


@dataclass(frozen=True)
class BlockSparseMask(Mask):
    """Blocks of keys, for each block of queries (BigBird).

    Attributes:
        table: allowed blocks, (heads or 1, query blocks, key blocks) bool.
        size: positions in a block.
    """

    table: Any
    size: int

    def allows(self, b: Any, h: Any, i: Any, j: Any) -> Any:
        return self.table[h % self.table.shape[0], i // self.size, j // self.size]


@dataclass(frozen=True)
class PermutationMask(Mask):
    """Keys that come earlier in a given order of prediction (XLNet).

    Attributes:
        order: place of each position in the order, (batch, length) int64; -1 is seen by all.
        includes_self: whether a position sees itself: true where its token is read (content
            stream), false where it is predicted (query stream).
    """

    order: Any
    includes_self: bool = True

    def allows(self, b: Any, h: Any, i: Any, j: Any) -> Any:
        """Return whether the key's order is below the query's, or equal if `includes_self`."""
        query, key = self.order[b, i], self.order[b, j]
        return key <= query if self.includes_self else key < query

    @property
    def sees_itself(self) -> bool:
        return self.includes_self


@dataclass(frozen=True)
class MemoryMask(Mask):
    """The mask of a row with a memory: all queries see its `keys` keys (Transformer-XL).

    Attributes:
        mask: over the row itself.
        keys: length of the memory.
    """

    mask: Mask
    keys: int

    def allows(self, b: Any, h: Any, i: Any, j: Any) -> Any:
        """Return whether the key is in the memory or allowed by the row's own mask."""
        j_in_row = (j - self.keys).clamp(min=0)
        return (j < self.keys) | self.mask.allows(b, h, i, j_in_row)


@dataclass(frozen=True)
class AndMask(Mask):
    """The pairs that both masks allow."""

    left: Mask
    right: Mask

    def allows(self, b: Any, h: Any, i: Any, j: Any) -> Any:
        return self.left.allows(b, h, i, j) & self.right.allows(b, h, i, j)

    @property
    def sees_itself(self) -> bool:
        return self.left.sees_itself and self.right.sees_itself


@dataclass(frozen=True)
class OrMask(Mask):
    """The pairs that at least one of the masks allows."""

    left: Mask
    right: Mask

    def allows(self, b: Any, h: Any, i: Any, j: Any) -> Any:
        return self.left.allows(b, h, i, j) | self.right.allows(b, h, i, j)

    @property
    def sees_itself(self) -> bool:
        return self.left.sees_itself or self.right.sees_itself
