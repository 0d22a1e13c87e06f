"""Near duplicates: MinHash signatures, and the comparison of what they find.

Texts whose hashes agree in a bucket form a group, which says only that they may be alike. So the
sequences of words of all such texts are stored, and a text is dropped if it shares enough of them
with a text of its group that stays: a chain of texts, each a little unlike the one before, does not
become one cluster, and whatever is dropped has its like among what stays.
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from datatrove.pipeline.base import PipelineStep
from datatrove.pipeline.dedup.minhash import MinhashDedupSignature

from foreword.disk import stored
from foreword.types import Array

AT_ONCE = 8192  # sequences whose hashes are held in memory
MOST = 200  # texts that stay with which a text is compared: the latest of its groups
OPEN = 64  # files of sequences
JOINED = "joined.json"


class Signatures(MinhashDedupSignature):  # type: ignore[misc]
    """datatrove's signatures, computed in pieces: a book takes no more memory than a page."""

    def get_signature(self, shingles: Array) -> Any:
        """Return the hashes of each bucket, from the hashes of all sequences (sequences, 1)."""
        pieces = [
            super(Signatures, self).get_signature(shingles[start : start + AT_ONCE])
            for start in range(0, len(shingles), AT_ONCE)
        ]
        return pieces[0] if len(pieces) == 1 else np.min(np.array(pieces), axis=0).tolist()


class StoreShingles(PipelineStep):  # type: ignore[misc]
    """Store the sequences of words of the documents that share a bucket with another.

    Args:
        read: the block that reads the documents of a task.
        signer: what hashes sequences.
        found: folder of the pairs that datatrove found in the buckets.
        shingles: folder for the hashes, in ascending order, of one document after the other.
    """

    name, type = "Foreword: store shingles", "search"

    def __init__(self, read: Any, signer: Signatures, found: Path, shingles: Path) -> None:
        super().__init__()
        self.read, self.signer, self.found, self.shingles = read, signer, found, shingles

    def run(self, data: Any = None, rank: int = 0, world_size: int = 1) -> None:
        """Store those of the documents of a task."""
        wanted: set[int] = set()
        for pairs in _pairs(self.found):
            for file, document in (pairs[:, :2].T, pairs[:, 2:].T):
                wanted.update(document[file == rank].tolist())
        self.shingles.mkdir(parents=True, exist_ok=True)
        sizes = []
        with (self.shingles / f"{rank:05}.hashes").open("wb") as out:
            for number, document in enumerate(self.read.run(None, rank, world_size)):
                if number in wanted:
                    hashes = np.unique(self.signer.get_shingles(document.text))
                    sizes.append(len(hashes))
                    hashes.tofile(out)
        np.save(self.shingles / f"{rank:05}.npy", np.array(sizes, np.int64))


class Join(PipelineStep):  # type: ignore[misc]
    """Compare the documents of each group, and list those to remove.

    Args:
        found: folder of the pairs that datatrove found in the buckets.
        shingles: folder of the hashes of their documents.
        removed: folder for the lists, as datatrove's filter reads them.
        min_similarity: the share of sequences in common, of all of both, of duplicates.
    """

    name, type = "Foreword: join", "search"

    def __init__(self, found: Path, shingles: Path, removed: Path, min_similarity: float) -> None:
        super().__init__()
        self.found, self.shingles, self.removed = found, shingles, removed
        self.min_similarity = min_similarity

    def run(self, data: Any = None, rank: int = 0, world_size: int = 1) -> None:
        """Compare all."""
        documents, members, begins = _groups(self.found)
        hashes = _Hashes(self.shingles, documents)
        places = np.argsort(members, kind="stable")  # of the first document, of the second, ...
        ends = np.cumsum([0, *np.bincount(members)])  # of each document's among them
        like = np.arange(len(documents))  # the document that stays for each
        counts: Counter[str] = Counter()
        for number, (begin, end) in enumerate(pairwise(ends)):
            groups = [members[begins[place] : place] for place in places[begin:end]]
            earlier = np.unique(np.concatenate(groups))
            earlier = earlier[like[earlier] == earlier]
            counts["pairs not compared"] += max(0, len(earlier) - MOST)
            for other in earlier[-MOST:]:
                counts["pairs compared"] += 1
                if _similarity(hashes[number], hashes[other]) >= self.min_similarity:
                    like[number] = other
                    break
                counts["pairs compared and unlike"] += 1
        self._write(documents, like, {name: n for name, n in counts.items() if n})

    def _write(self, documents: Array, like: Array, counts: dict[str, int]) -> None:
        """Write the documents to remove, and the cluster of each that has a duplicate.

        Clusters are numbered from the largest.
        """
        sizes = np.bincount(like, minlength=len(documents))
        cluster = np.argsort(np.argsort(-sizes, kind="stable"), kind="stable")[like]
        is_removed, has_duplicate = like != np.arange(len(documents)), sizes[like] > 1
        files, numbers = documents >> 32, (documents & 0xFFFFFFFF).astype("<u4")
        self.removed.mkdir(parents=True, exist_ok=True)
        for file in np.unique(files[has_duplicate]).tolist():
            here = has_duplicate & (files == file)
            clusters = np.stack([numbers[here], cluster[here].astype("<u4")], axis=1)
            clusters.tofile(self.removed / f"{file:06}.clusters")
            numbers[here & is_removed].tofile(self.removed / f"{file:06}.remove")
        largest = int(sizes.max(initial=0))
        stored.write(self.removed / JOINED, {"largest_group": largest, "details": counts})


class _Hashes:
    """The hashes of documents, read when they are asked for.

    Args:
        folder: the folder of the hashes.
        documents: numbers of the stored documents, in the order of the files.
    """

    def __init__(self, folder: Path, documents: Array) -> None:
        sizes = [np.load(file) for file in sorted(folder.glob("*.npy"))]
        self._ends = [np.cumsum(some) for some in sizes]
        self._files = (documents >> 32).tolist()
        begins = np.cumsum([0, *map(len, sizes)])
        self._numbers = [n - int(begins[file]) for n, file in enumerate(self._files)]

        @functools.lru_cache(OPEN)
        def opened(file: int) -> Array:
            return np.memmap(folder / f"{file:05}.hashes", np.uint64, "r")

        self._opened = opened

    def __getitem__(self, document: int) -> Array:
        file, number = self._files[document], self._numbers[document]
        ends = self._ends[file]
        return self._opened(file)[ends[number - 1] if number else 0 : ends[number]]


def _pairs(folder: Path) -> Iterator[Array]:
    """Yield the pairs found in each bucket (pairs, 4): file and document of both."""
    for file in sorted(folder.glob("*.dups")):
        yield np.fromfile(file, "<u4").reshape(-1, 4)


def _groups(folder: Path) -> tuple[Array, Array, Array]:
    """Return the documents in groups, the members of each group in order, and its beginning.

    Each document of a group is paired with the next, so a pair that does not begin with the second
    document of the pair before it begins a group.

    Returns:
        The documents, file << 32 | number, ascending; the index among them of each member of the
        first group, of the second, ...; and for each member the position of its group's first.
    """
    keys, groups, count = [], [], 0
    for pairs in _pairs(folder):
        first, second = (
            pairs[:, side].astype(np.int64) << 32 | pairs[:, side + 1] for side in (0, 2)
        )
        is_new = np.ones(len(pairs), bool)
        is_new[1:] = first[1:] != second[:-1]
        group = count + np.cumsum(is_new)
        keys += [first[is_new], second]
        groups += [group[is_new], group]
        count += int(is_new.sum())
    key, group = (np.concatenate([np.zeros(0, np.int64), *some]) for some in (keys, groups))
    order = np.lexsort((key, group))
    documents, members = np.unique(key[order], return_inverse=True)
    group = group[order]
    return documents, members, np.searchsorted(group, group)


def _similarity(some: Array, others: Array) -> float:
    """Return the Jaccard similarity of two sets of hashes."""
    common = len(np.intersect1d(some, others, assume_unique=True))
    return common / (len(some) + len(others) - common)
