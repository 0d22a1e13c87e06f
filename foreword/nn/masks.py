"""A mask is a function: `allows(b, h, i, j)` says whether query `i` may look at key `j`.

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


class Mask(ABC):
    """Which query may look at which key."""

    @abstractmethod
    def allows(self, b: Any, h: Any, i: Any, j: Any) -> Any:
        """True where query `i` of head `h` in row `b` may look at key `j`; broadcasts."""

    @property
    def sees_itself(self) -> bool:
        """Whether every query `i` is known to see key `i`, so that no query is without keys."""
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
        """The mask as a tensor, (batch or 1, heads or 1, queries, keys) bool.

        `heads` is for masks that differ between them.
        """
        b = torch.arange(batch, device=device)[:, None, None, None]
        h = torch.arange(heads, device=device)[None, :, None, None]
        i = torch.arange(queries, device=device)[None, None, :, None]
        j = torch.arange(keys, device=device)[None, None, None, :]
        allowed: Tensor = self.allows(b, h, i, j)
        return allowed.expand(*allowed.shape[:2], queries, keys)


@dataclass(frozen=True)
class FullMask(Mask):
    """Everything sees everything: the encoder."""

    def allows(self, b: Any, h: Any, i: Any, j: Any) -> Any:
        """Always."""
        return (i >= 0) & (j >= 0)

    @property
    def sees_itself(self) -> bool:
        """Always."""
        return True


@dataclass(frozen=True)
class CausalMask(Mask):
    """No look into the future: the decoder. `offset` keys stand before the first query."""

    offset: int = 0

    def allows(self, b: Any, h: Any, i: Any, j: Any) -> Any:
        """Key at or before the query."""
        return j <= i + self.offset

    @property
    def sees_itself(self) -> bool:
        """Unless keys are missing before the first query."""
        return self.offset >= 0


@dataclass(frozen=True)
class DocumentMask(Mask):
    """Texts packed in one row do not see each other.

    Attributes:
        queries: document of each query, (batch, queries) int64.
        keys: document of each key, (batch, keys) int64.
    """

    queries: Any
    keys: Any

    def allows(self, b: Any, h: Any, i: Any, j: Any) -> Any:
        """Query and key in the same document; padding (-1) sees padding, so no row is empty."""
        return self.queries[b, i] == self.keys[b, j]

    @property
    def sees_itself(self) -> bool:
        """Where queries and keys are the same row."""
        return self.queries is self.keys


@dataclass(frozen=True)
class PrefixMask(Mask):
    """Keys in the prefix are seen by all: with `Causal() |`, the prefix decoder.

    Attributes:
        is_prefix: (batch, keys) bool.
    """

    is_prefix: Any

    def allows(self, b: Any, h: Any, i: Any, j: Any) -> Any:
        """Key in the prefix."""
        return self.is_prefix[b, j] & (i >= 0)


@dataclass(frozen=True)
class WindowMask(Mask):
    """Only keys at most `radius` positions away (Longformer's and ModernBERT's local attention)."""

    radius: int
    offset: int = 0

    def allows(self, b: Any, h: Any, i: Any, j: Any) -> Any:
        """Key near the query."""
        return (i + self.offset - j <= self.radius) & (j - i - self.offset <= self.radius)

    @property
    def sees_itself(self) -> bool:
        """Unless the queries stand further on than it reaches."""
        return abs(self.offset) <= self.radius


@dataclass(frozen=True)
class GlobalMask(Mask):
    """The first `places` of a row see and are seen by all (Longformer)."""

    places: int
    offset: int = 0

    def allows(self, b: Any, h: Any, i: Any, j: Any) -> Any:
        """Query or key among the first."""
        return (i + self.offset < self.places) | (j < self.places)


@dataclass(frozen=True)
class BlockSparseMask(Mask):
    """Blocks of queries see whole blocks of keys (BigBird).

    Attributes:
        table: which block of keys, (heads or 1, query blocks, key blocks) bool.
        size: places of a block.
    """

    table: Any
    size: int

    def allows(self, b: Any, h: Any, i: Any, j: Any) -> Any:
        """Key in a block that the query's block sees."""
        return self.table[h % self.table.shape[0], i // self.size, j // self.size]


@dataclass(frozen=True)
class PermutationMask(Mask):
    """Only what comes earlier in a given order of prediction (XLNet).

    Attributes:
        order: of each place, (batch, length) int64; -1 is seen by all.
        includes_self: whether a position sees itself: true where its token is read (content
            stream), false where it is predicted (query stream).
    """

    order: Any
    includes_self: bool = True

    def allows(self, b: Any, h: Any, i: Any, j: Any) -> Any:
        """Key of an order below the query's, or the same where `itself`."""
        query, key = self.order[b, i], self.order[b, j]
        return key <= query if self.includes_self else key < query

    @property
    def sees_itself(self) -> bool:
        """As `itself` says."""
        return self.includes_self


@dataclass(frozen=True)
class MemoryMask(Mask):
    """`keys` keys of the row before stand before the row's own, and all see them (Transformer-XL).

    Attributes:
        mask: over the row itself.
        keys: how many were carried over.
    """

    mask: Mask
    keys: int

    def allows(self, b: Any, h: Any, i: Any, j: Any) -> Any:
        """A key carried over, or one that the row's own mask allows."""
        own = (j - self.keys).clamp(min=0)
        return (j < self.keys) | self.mask.allows(b, h, i, own)


@dataclass(frozen=True)
class AndMask(Mask):
    """What both masks allow."""

    left: Mask
    right: Mask

    def allows(self, b: Any, h: Any, i: Any, j: Any) -> Any:
        """Allowed by the left and by the right."""
        return self.left.allows(b, h, i, j) & self.right.allows(b, h, i, j)

    @property
    def sees_itself(self) -> bool:
        """Where both do."""
        return self.left.sees_itself and self.right.sees_itself


@dataclass(frozen=True)
class OrMask(Mask):
    """What one of the masks allows."""

    left: Mask
    right: Mask

    def allows(self, b: Any, h: Any, i: Any, j: Any) -> Any:
        """Allowed by the left or by the right."""
        return self.left.allows(b, h, i, j) | self.right.allows(b, h, i, j)

    @property
    def sees_itself(self) -> bool:
        """Where one does."""
        return self.left.sees_itself or self.right.sees_itself
