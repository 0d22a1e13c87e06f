"""Word vectors from counts of neighbours."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.linalg import svd

from foreword.types import Array
from foreword.vectors import cooccurrence
from foreword.vectors.cooccurrence import learn_vectors

from .texts import SIZE, SPECIAL, gap, is_word, topics


def information(tokens: Array) -> Array:
    """Return positive pointwise mutual information by its definition, (words, positions * words).

    All words are contexts: log(p(word, context) / (p(word) p(context)^0.75 / norm)), or 0.
    """
    words, reach = SIZE - SPECIAL, cooccurrence.REACH
    share = np.bincount(tokens, minlength=SIZE)[SPECIAL:] / (tokens >= SPECIAL).sum()
    smoothed = share**0.75 / (share**0.75).sum()
    parts = []
    for distance in [*range(-reach, 0), *range(1, reach + 1)]:
        counts = np.zeros((words, words))
        for at, word in enumerate(tokens):
            beside = at + distance
            if 0 <= beside < len(tokens) and min(word, tokens[beside]) >= SPECIAL:
                counts[word - SPECIAL, tokens[beside] - SPECIAL] += 1
        with np.errstate(divide="ignore"):
            ratio = np.log(counts / counts.sum() / share[:, None] / smoothed)
        parts.append(np.maximum(ratio, 0))
    return np.concatenate(parts, axis=1)


def text() -> Array:
    """Return tokens with a special one in between, and every word."""
    tokens, _ = topics(texts=60)
    tokens[::37] = 1
    return tokens


def test_vectors_are_the_singular_vectors_of_the_information_of_neighbours(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(cooccurrence, "ITERATIONS", 30)  # until it has converged
    tokens, width = text(), 6
    left, values, _ = svd(information(tokens))
    rows = left[:, :width] * np.sqrt(values[:width])
    expected = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    learned = learn_vectors([(tokens, len(tokens))], is_word(), width, seed=1)
    assert learned is not None and learned.tokens == len(tokens) and learned.flops > 0
    vectors = learned.vectors[SPECIAL:]
    # Signs of columns are arbitrary, so cosines are compared.
    np.testing.assert_allclose(vectors @ vectors.T, expected @ expected.T, atol=1e-4)
    assert learned.is_known.tolist() == is_word().tolist()


def test_words_of_one_topic_come_close() -> None:
    tokens, _ = topics()
    learned = learn_vectors([(tokens, len(tokens))], is_word(), 4, seed=1)
    assert learned is not None and gap(learned.vectors) > 0.4


def test_what_is_before_a_word_and_what_is_behind_it_are_apart() -> None:
    rng = np.random.default_rng(1)
    subject, verb = rng.integers(2, 8, 2_000), rng.integers(8, 14, 2_000)
    tokens = np.stack([subject, verb, np.full(2_000, 14)], axis=1).ravel()
    learned = learn_vectors([(tokens, len(tokens))], np.arange(15) >= 2, 6, seed=1)
    assert learned is not None
    cosines = learned.vectors @ learned.vectors.T
    within = cosines[2:8, 2:8].min(), cosines[8:14, 8:14].min()
    assert min(within) > cosines[2:8, 8:14].max() + 0.3


def test_pieces_of_a_long_text_are_evenly_spaced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cooccurrence, "PIECE", 10)
    monkeypatch.setattr(cooccurrence, "BLOCK", 30)
    blocks = list(cooccurrence._blocks([(np.arange(1_000), 80)]))
    starts = np.concatenate(blocks).reshape(-1, 10)[:, 0]
    assert len(starts) == 8 and starts[0] == 0 and starts[-1] == 990
    assert np.ptp(np.diff(starts)) <= 1
    whole = np.concatenate(list(cooccurrence._blocks([(np.arange(1_003), 1_003)])))
    assert whole.tolist() == list(range(1_003))


@pytest.mark.parametrize("number", [0, 1, 9, 10, 11, 99, 100, 101, 254])
def test_as_many_tokens_are_counted_as_asked_for(
    number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cooccurrence, "PIECE", 10)
    monkeypatch.setattr(cooccurrence, "BLOCK", 20)
    text, empty = np.arange(100), np.arange(0)
    read = [*cooccurrence._blocks([(text, number), (empty, 5), (text + 100, 7)])]
    counts = np.bincount(np.concatenate(read), minlength=200)
    assert counts[:100].sum() == number and counts[100:].sum() == 7
    assert counts[:100].max() - counts[:100].min() <= 1  # again where there are fewer


def test_many_words_and_wide_vectors_have_contexts_enough() -> None:
    for words, width in ((250_000, 768), (140_000, 1024), (32_000, 4096), (8_192, 128)):
        assert 2 * width <= cooccurrence.contexts_of(words, width) * 2 * cooccurrence.REACH
    assert cooccurrence.contexts_of(8_192, 128) == cooccurrence.CONTEXTS


def test_counts_of_blocks_add_up(monkeypatch: pytest.MonkeyPatch) -> None:
    tokens, width = text(), 6
    whole = learn_vectors([(tokens, len(tokens))], is_word(), width, seed=1)
    monkeypatch.setattr(cooccurrence, "PIECE", 200)
    monkeypatch.setattr(cooccurrence, "BLOCK", 200)
    cut = learn_vectors([(tokens, len(tokens))], is_word(), width, seed=1)
    assert whole is not None and cut is not None
    same = whole.vectors @ whole.vectors.T, cut.vectors @ cut.vectors.T
    np.testing.assert_allclose(*same, atol=0.1)  # neighbours across the cuts are not counted


def test_too_few_words_for_the_width_have_no_vectors() -> None:
    tokens, _ = topics()
    assert learn_vectors([(tokens, len(tokens))], is_word(), 64, seed=1) is None
    assert learn_vectors([(tokens[:0], len(tokens[:0]))], is_word(), 4, seed=1) is None
