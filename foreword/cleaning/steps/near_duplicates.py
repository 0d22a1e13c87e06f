"""Duplicates with small differences."""

from __future__ import annotations

import functools
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from foreword.cleaning.statistics import key_of
from foreword.cleaning.steps._contract import CorpusStep
from foreword.disk import stored
from foreword.settings.ranges import Count, Seed, Share

REPLACED = (0.01, 0.02, 0.05, 0.1, 0.15, 0.2, 0.3)  # shares of words


@dataclass(frozen=True)
class NearDuplicates(CorpusStep):
    """Drop documents that share many sequences of words with one that stays, by MinHash.

    Two documents are compared if all hashes of one of the buckets agree. Of pairs that share a
    share s of their sequences, that finds 1 - (1 - s^hashes)^buckets: with the defaults 92 % of
    those with s = 0.8, and 8 % of those with s = 0.5. Documents with fewer words than an n-gram are
    never duplicates.

    Reference: Broder 1997, On the resemblance and containment of documents; with the settings of
    Penedo et al. 2024, The FineWeb Datasets, https://arxiv.org/abs/2406.17557.

    Differs from Penedo et al.: documents are compared before one is dropped, and each is compared
    with those that stay, where they keep one of each connected component.

    Attributes:
        ngram: words of a sequence.
        buckets: number of buckets.
        hashes: hashes in each bucket.
        min_similarity: the least share of sequences that duplicates have in common, of all
            different ones of both (Jaccard similarity); 0 to drop without comparing.
        seed: the seed of the hash functions.
    """

    ngram: Count = 5
    buckets: Count = 14
    hashes: Count = 8
    min_similarity: Share = 0.5
    seed: Seed = 1

    @property
    def _config(self) -> Any:
        from datatrove.pipeline.dedup.minhash import MinhashConfig
        from datatrove.utils.hashing import HashConfig

        return MinhashConfig(
            n_grams=self.ngram,
            num_buckets=self.buckets,
            hashes_per_bucket=self.hashes,
            seed=self.seed,
            hash_config=HashConfig(hash_fc="sha1"),
        )

    def signer(self, folder: Path) -> Any:
        from foreword.cleaning.minhash import Signatures
        from foreword.cleaning.words import WORDS

        return Signatures(str(folder / "signatures"), self._config, language=WORDS)

    def searches(self, folder: Path, read: Any, tasks: int) -> list[tuple[Any, int]]:
        from datatrove.pipeline.dedup.minhash import MinhashDedupBuckets

        from foreword.cleaning.minhash import Join, StoreShingles

        found, shingles = folder / "found", folder / "shingles"
        buckets = MinhashDedupBuckets(
            str(folder / "signatures"), str(found), config=self._config, lines_to_buffer=1000
        )
        store = StoreShingles(read, self.signer(folder), found, shingles)
        join = Join(found, shingles, folder / "removed", self.min_similarity)
        return [(buckets, self.buckets), (store, tasks), (join, 1)]

    def remover(self, folder: Path, dropped: Any) -> Any:
        from datatrove.pipeline.dedup.minhash import MinhashDedupFilter

        return MinhashDedupFilter(str(folder / "removed"), exclusion_writer=dropped)

    def group(self, folder: Path, rank: int, number: int, document: Any) -> str:
        cluster = _clusters(folder / "removed", rank).get(number)
        if not cluster:  # none, or the largest, which comes first
            return "" if cluster is None else "0" * 16
        return key_of(str(cluster))

    def facts(self, folder: Path) -> Mapping[str, Any]:
        joined = stored.read(folder / "removed" / "joined.json")
        names = ("largest_group", "details")
        return {"expected": self.expected(), **{name: joined[name] for name in names}}

    def expected(self) -> list[dict[str, Any]]:
        """Return the copies that are found, by the words in them that were replaced at random.

        If a share p of the words is replaced, (1 - p)^ngram of the sequences stay as they were.
        """
        rows = []
        for replaced in REPLACED:
            same = (1 - replaced) ** self.ngram
            similarity = same / (2 - same)
            found = 1 - (1 - similarity**self.hashes) ** self.buckets
            if similarity < self.min_similarity:
                found = 0.0
            row = {"words replaced": replaced, "similarity": similarity, "found": found}
            rows.append(row)
        return rows


@functools.lru_cache(maxsize=1)
def _clusters(folder: Path, rank: int) -> dict[int, int]:
    """Return the cluster of each document of a task that has near duplicates."""
    file = folder / f"{rank:06d}.clusters"
    return dict(struct.iter_unpack("<2I", file.read_bytes())) if file.exists() else {}
