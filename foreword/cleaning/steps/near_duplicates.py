"""Duplicates with small differences."""

from __future__ import annotations

import functools
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from foreword.cleaning.steps._contract import CorpusStep
from foreword.ranges import Count, Seed


@dataclass(frozen=True)
class NearDuplicates(CorpusStep):
    """Keep one of several documents that share most sequences of words, by MinHash.

    Two documents are near duplicates if all hashes of one of the buckets agree: with the defaults
    that finds 92 % of pairs that share 80 % of their 5-grams, and 8 % of those that share half.
    Documents with fewer words than an n-gram are never duplicates.

    Reference: Broder 1997, On the resemblance and containment of documents; with the settings of
    Penedo et al. 2024, The FineWeb Datasets, https://arxiv.org/abs/2406.17557.

    Attributes:
        ngram: words of a sequence.
        buckets: number of buckets.
        hashes: hashes in each bucket.
        seed: of the hash functions.
    """

    ngram: Count = 5
    buckets: Count = 14
    hashes: Count = 8
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

    def searches(self, folder: Path) -> list[tuple[Any, int]]:
        from datatrove.pipeline.dedup.minhash import MinhashDedupBuckets, MinhashDedupCluster

        matches, removed = str(folder / "found"), str(folder / "removed")
        buckets = MinhashDedupBuckets(
            str(folder / "signatures"), matches, config=self._config, lines_to_buffer=1000
        )
        clusters = MinhashDedupCluster(
            matches, removed, config=self._config, save_cluster_id=True, lines_to_buffer=1000
        )
        return [(buckets, self.buckets), (clusters, 1)]

    def remover(self, folder: Path, dropped: Any) -> Any:
        from datatrove.pipeline.dedup.minhash import MinhashDedupFilter

        return MinhashDedupFilter(str(folder / "removed"), exclusion_writer=dropped)

    def group(self, folder: Path, rank: int, number: int, document: Any) -> str:
        cluster = _clusters(folder / "removed", rank).get(number)
        return "" if cluster is None else str(cluster)


@functools.lru_cache(maxsize=1)
def _clusters(folder: Path, rank: int) -> dict[int, int]:
    """Return the cluster of each document of a task that has near duplicates."""
    file = folder / f"{rank:06d}.clusters"
    return dict(struct.iter_unpack("<2I", file.read_bytes())) if file.exists() else {}
