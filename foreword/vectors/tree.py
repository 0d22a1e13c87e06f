"""A Huffman tree over words: frequent words are near its root."""

from __future__ import annotations

import heapq
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from foreword.types import Array


@dataclass(frozen=True)
class HuffmanTree:
    """A binary tree of inner nodes (forks), numbered from the deepest, with words as leaves.

    Attributes:
        words: the tokens that are its leaves, the most frequent first; (words,) int64.
        parents: the fork above each fork and then above each word, -1 above the root;
            (forks + words,) int64.
        sides: which child of its parent each is, 0 or 1; (forks + words,) int64.
    """

    words: Array
    parents: Array
    sides: Array

    @classmethod
    def of(cls, counts: Array) -> HuffmanTree:
        """Build the tree of the tokens with a count above 0; there must be at least two."""
        words = np.flatnonzero(counts > 0)
        words = words[np.argsort(-counts[words], kind="stable")]
        forks = len(words) - 1
        parents = np.full(forks + len(words), -1, dtype=np.int64)
        sides = np.zeros(forks + len(words), dtype=np.int64)
        heap = [(int(counts[word]), forks + n) for n, word in enumerate(words)]
        heapq.heapify(heap)
        for fork in range(forks):
            total = 0
            for side in (0, 1):
                count, node = heapq.heappop(heap)
                parents[node], sides[node], total = fork, side, total + count
            heapq.heappush(heap, (total, fork))
        return cls(words, parents, sides)

    @property
    def forks(self) -> int:
        """The number of forks: one less than of words."""
        return len(self.words) - 1

    @cached_property
    def levels(self) -> list[Array]:
        """The nodes below the root (as indices into `parents`), level by level."""
        depth = np.zeros(len(self.parents), dtype=np.int64)
        for node in range(self.forks - 2, -1, -1):
            depth[node] = depth[self.parents[node]] + 1
        leaves = np.arange(self.forks, len(self.parents))
        depth[leaves] = depth[self.parents[leaves]] + 1
        order = np.argsort(depth, kind="stable")
        return np.split(order, np.searchsorted(depth[order], np.arange(1, depth.max() + 1)))[1:]

    def path(self, index: int) -> tuple[list[int], list[int]]:
        """Return the forks from the root to the word at an index of `words`, and the sides."""
        forks, sides, node = [], [], self.forks + index
        while self.parents[node] >= 0:
            sides.append(int(self.sides[node]))
            node = int(self.parents[node])
            forks.append(node)
        return forks[::-1], sides[::-1]
