"""Pairing of sentences for an epoch, all pairs at once."""

from __future__ import annotations

from dataclasses import dataclass, fields
from itertools import pairwise

import numpy as np

from foreword.data.document_stream import ranges
from foreword.data.rng import RowRng
from foreword.data.shards import Shards
from foreword.types import Array

BLOCK = 1 << 20  # sentences paired at once, rounded to whole documents
TRIES = 4  # candidates sampled for each random second text


@dataclass(frozen=True)
class SentencePairs:
    """Pairs of texts, by their positions in the shards.

    Attributes:
        a_start: the first token of A, (pairs,) int64.
        a_size: tokens of A, (pairs,) int64.
        b_start: the first token of B, (pairs,) int64.
        b_size: tokens of B, 0 where A stands alone; (pairs,) int64.
        label: 1 where B is a random one, 0 where it follows A, -1 where A stands alone; (pairs,)
            int64.
    """

    a_start: Array
    a_size: Array
    b_start: Array
    b_size: Array
    label: Array

    def __getitem__(self, which: Array) -> SentencePairs:
        """Return some of the pairs."""
        return SentencePairs(*(getattr(self, f.name)[which] for f in fields(self)))

    @property
    def sizes(self) -> Array:
        """Tokens of each pair with its special tokens, (pairs,) int64."""
        return np.asarray(2 + self.a_size + self.b_size + (self.b_size > 0))


@dataclass(frozen=True)
class Sentences:
    """The sentences of a corpus, none empty and none longer than `room`.

    Attributes:
        starts: the first token of each sentence, and the end; (sentences + 1,) int64.
        documents: the first sentence of each document, and the end; (documents + 1,) int64.
        room: the most tokens that A and B have together.
    """

    starts: Array
    documents: Array
    room: int

    @classmethod
    def of(cls, shards: Shards, room: int) -> Sentences:
        """Return the sentences of the shards, those longer than `room` cut into several."""
        lengths = np.asarray(shards.sequence_lengths, np.int64)
        counts = -(-lengths // room)  # none of an empty one
        within, sequences = ranges(np.zeros_like(counts), counts)
        starts = shards.sequence_starts[sequences] + within * room
        before = np.concatenate([[0], np.cumsum(counts)])
        end = shards.sequence_starts[-1:]
        return cls(np.concatenate([starts, end]), before[shards.document_index], room)

    @property
    def is_one_document(self) -> bool:
        """Whether there is no other document to draw a random text from."""
        return bool(np.count_nonzero(np.diff(self.documents)) == 1)

    def pair_up(self, key: int, random: float, short: float) -> SentencePairs:
        """Return the pairs of an epoch.

        Args:
            key: random key of the epoch.
            random: share of the pairs with a random B.
            short: share of the pairs of a random length.
        """
        # Blocks of whole documents, of about BLOCK sentences each.
        bounds = np.arange(0, self.documents[-1] + BLOCK, BLOCK)
        cuts = np.unique(self.documents[np.searchsorted(self.documents, bounds[:-1])])
        cuts = np.append(cuts, self.documents[-1])
        blocks = [
            self._pair_block(int(low), int(high), key, random, short)
            for low, high in pairwise(cuts)
        ]
        if len(blocks) == 1:
            return blocks[0]
        return SentencePairs(
            *(
                np.concatenate([getattr(block, f.name) for block in blocks])
                for f in fields(SentencePairs)
            )
        )

    def _pair_block(
        self, low: int, high: int, key: int, random: float, short: float
    ) -> SentencePairs:
        """Return the pairs of the sentences `low` to `high`, which are whole documents.

        Each sentence gets the pair that would begin with it; then the pairs are chained from the
        first sentence on.
        """
        # Where each pair would end: at its target length, in its document, with two sentences.
        starts, room = self.starts, self.room
        first = np.arange(low, high)
        end = self._document_end(first)
        is_short, length, where, is_random = RowRng(key, first).uniform(4).T
        target = np.where(is_short < short, 2 + (length * (room - 1)).astype(np.int64), room)
        stop = np.searchsorted(starts, starts[first] + target, side="right") - 1
        two = np.minimum(first + 2, end)
        stop = np.where(starts[two] - starts[first] <= room, np.maximum(stop, two), stop)
        stop = np.clip(stop, first + 1, end)
        stop -= (end - stop == 1) & (stop - first > 2)  # else the last sentence would be left alone
        # Where A ends, and whether B is a random text.
        count = stop - first
        split = first + 1 + (where * (count - 1)).astype(np.int64)
        split = np.where(count > 1, split, stop)
        has_others = len(starts) - 1 > count  # not all of the text is in this pair
        label = np.where(count > 1, ((is_random < random) & has_others).astype(np.int64), -1)
        # Keep the pairs that follow one another, and find their texts.
        chain = _follow(np.where(label == 1, split, stop) - low)
        first, split, stop, label = (x[chain] for x in (first, split, stop, label))
        a_size, rest = starts[split] - starts[first], starts[stop] - starts[split]
        b_start, b_size = starts[split].copy(), rest.copy()
        is_one = label == 1
        b_start[is_one], b_size[is_one] = self._sample_texts(
            first[is_one], stop[is_one], rest[is_one], room - a_size[is_one], key
        )
        return SentencePairs(starts[first], a_size, b_start, b_size, label)

    def _sample_texts(
        self, first: Array, stop: Array, like: Array, most: Array, key: int
    ) -> tuple[Array, Array]:
        """Sample texts from other documents than the pairs from `first` to `stop`, (pairs,) each.

        In a text of one document (`is_one_document`) they come from elsewhere in it.

        Each is whole sentences from a random one on, as near as possible to `like` tokens, the
        size of the pair's own B; of `TRIES` candidates the nearest is chosen, so that sizes do not
        give random texts away. A sentence is cut only if no candidate has at most `most` tokens.

        Returns:
            First tokens and numbers of tokens.
        """
        # Candidates: random sentences outside of the pair's document.
        starts, end = self.starts, self._document_end(first)
        begin = self.documents[np.searchsorted(self.documents, first, side="right") - 1]
        if self.is_one_document:
            begin, end = first, stop
        others = int(self.documents[-1]) - (end - begin)
        uniform = RowRng(key ^ 0xB, first).uniform(TRIES)
        candidates = (uniform * others[:, None]).astype(np.int64)  # (pairs, tries)
        candidates += np.where(candidates >= begin[:, None], (end - begin)[:, None], 0)
        # For each candidate the number of sentences nearest to the size of the pair's own B.
        like, most = like[:, None], most[:, None]
        start, last = starts[candidates], self._document_end(candidates)
        below = np.searchsorted(starts, start + like, side="right") - 1
        below = np.clip(below, candidates + 1, last)
        above = np.minimum(below + 1, last)
        is_nearer = starts[above] - start - like < like - (starts[below] - start)
        stop = np.where(is_nearer & (starts[above] - start <= most), above, below)
        # The best candidate of each pair.
        size = starts[stop] - start
        best = np.where(size <= most, np.abs(size - like), self.room + 1).argmin(1)[:, None]
        size = np.minimum(np.take_along_axis(size, best, 1), most)
        return np.take_along_axis(start, best, 1)[:, 0], size[:, 0]

    def _document_end(self, sentences: Array) -> Array:
        """Return the end of each sentence's document."""
        return np.asarray(self.documents[np.searchsorted(self.documents, sentences, side="right")])


def _follow(following: Array) -> Array:
    """Return the indices visited from 0 on, each followed by its successor in `following`."""
    successors, index, visited = following.tolist(), 0, []
    while index < len(successors):
        visited.append(index)
        index = successors[index]
    return np.asarray(visited, dtype=np.int64)
