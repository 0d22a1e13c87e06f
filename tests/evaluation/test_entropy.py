from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

from foreword.data.shard_writer import ShardWriter
from foreword.data.shards import Shards
from foreword.errors import UserError
from foreword.evaluation.entropy import BigramCounts, baselines, bits_per_byte
from foreword.types import Array


def write(folder: Path, name: str, documents: list[list[int]], vocab: int = 10) -> Shards:
    lengths = np.array([len(document) for document in documents])
    with ShardWriter(folder / name, vocab) as writer:
        tokens = np.array([token for document in documents for token in document])
        writer.add(tokens, lengths, np.ones(len(documents), dtype=np.int64))
    return Shards.open(folder / name)


def entropy(counts: list[int]) -> float:
    return -sum(c / sum(counts) * math.log(c / sum(counts)) for c in counts)


def test_entropies_equal_those_computed_by_hand(tmp_path: Path) -> None:
    counts = BigramCounts.of(write(tmp_path, "a", [[1, 2, 1, 2], [1, 3, 1]]), 10)
    assert counts.unigram_entropy == pytest.approx(entropy([4, 2, 1]))
    # Pairs 12 twice, 21, 13, 31; the pair over the end of the first document is none.
    assert sorted(counts.pairs.tolist()) == [12, 13, 21, 31]
    assert counts.bigram_entropy == pytest.approx(3 / 5 * entropy([2, 1]))


def test_a_deterministic_chain_has_bigram_entropy_0(tmp_path: Path) -> None:
    counts = BigramCounts.of(write(tmp_path, "a", [[1, 2, 3, 4, 1, 2, 3, 4, 1]]), 10)
    assert counts.bigram_entropy == pytest.approx(0.0, abs=1e-12)


def all_pairs(first: int, vocab: int) -> Array:
    return first * vocab + np.arange(vocab)


def test_smoothed_probabilities_sum_to_1(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    documents = [random.integers(0, 8, n).tolist() for n in (30, 1, 12)]
    counts = BigramCounts.of(write(tmp_path, "a", documents), 10)
    assert np.exp(-counts.unigram_nats(np.arange(10))).sum() == pytest.approx(1.0)
    for first in range(10):  # 8 and 9 never occur
        p = np.exp(-counts.bigram_nats(all_pairs(first, 10)))
        assert p.sum() == pytest.approx(1.0)
        assert p.min() > 0


def test_baselines_equal_those_computed_by_hand(tmp_path: Path) -> None:
    train = write(tmp_path, "a", [[1, 2, 1, 2, 1, 3], [1, 2]])
    heldout = write(tmp_path, "b", [[1, 2, 9], [2]])
    losses = baselines(train, heldout, 10)
    unigram = {1: 5 / 18, 2: 4 / 18, 9: 1 / 18}
    nats = -sum(math.log(unigram[token]) for token in (1, 2, 9, 2))
    assert losses.unigram == pytest.approx(nats / 4)
    # Pairs: 12 three times, 21 twice, 13 once; n1 = n2 = 1, so each gives up 1/3.
    p_12 = (3 - 1 / 3 + 2 / 3 * unigram[2]) / 4
    p_29 = 1 / 3 * unigram[9] / 2
    bigram = -sum(math.log(p) for p in (unigram[1], p_12, p_29, unigram[2]))
    assert losses.bigram == pytest.approx(bigram / 4)
    assert (losses.tokens, losses.counted) == (4, 8)


def test_at_most_max_tokens_are_counted(tmp_path: Path) -> None:
    shards = write(tmp_path, "a", [[1, 2, 1, 2, 5, 5]])
    counts = BigramCounts.of(shards, 10, max_tokens=4)
    assert counts.tokens == 4 and counts.unigrams[5] == 0
    assert baselines(shards, shards, 10, max_tokens=4).counted == 4


def test_ids_beyond_the_vocabulary_are_refused(tmp_path: Path) -> None:
    shards = write(tmp_path, "a", [[1, 9]])
    with pytest.raises(UserError, match="token 9"):
        baselines(shards, shards, 5)


def test_bits_per_byte_divide_nats_by_bytes() -> None:
    assert bits_per_byte(2 * math.log(2), 4.0) == pytest.approx(0.5)
