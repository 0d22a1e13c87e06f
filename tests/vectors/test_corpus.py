"""The words of a corpus, their windows, and the subsampling of frequent ones."""

from __future__ import annotations

import numpy as np
import pytest

from foreword.errors import UserError
from foreword.vectors import corpus as module
from foreword.vectors.corpus import WordCorpus

from .texts import SIZE, is_word, topics


def test_special_tokens_are_dropped_and_leave_no_gap_in_windows() -> None:
    tokens = np.array([5, 0, 6, 1, 7, 8])
    words = WordCorpus.of(tokens, np.array([0, 4, 6]), is_word())
    assert words.counts[[0, 1, 5, 6, 7, 8]].tolist() == [0, 0, 1, 1, 1, 1]
    assert [text.tolist() for text in words.texts()] == [[5, 6], [7, 8]]
    windows = next(words.windows(1, 1, 0.0, seed=1))
    assert windows.ids.tolist() == [5, 6, 7, 8]
    assert windows.left.tolist() == [0, 1, 0, 1]
    assert windows.right.tolist() == [1, 0, 1, 0]


def test_windows_stay_in_their_text_and_have_every_size_up_to_the_maximum() -> None:
    tokens, starts = topics(texts=50, length=9)
    windows = next(WordCorpus.of(tokens, starts, is_word()).windows(1, 4, 0.0, seed=1))
    position = np.arange(len(windows)) % 9
    assert (windows.left <= position).all() and (windows.right <= 8 - position).all()
    middle = position == 4
    assert (windows.left[middle] == windows.right[middle]).all()
    assert np.bincount(windows.left[middle]).tolist()[0] == 0
    assert set(windows.left[middle]) == {1, 2, 3, 4}


def test_subsampling_follows_the_formula_of_the_released_word2vec() -> None:
    tokens = np.repeat([2, 3], [9_000, 1_000])
    words = WordCorpus.of(tokens, np.array([0, 10_000]), is_word())
    probabilities = words.keep_probabilities(0.01)
    assert probabilities[2] == pytest.approx((0.01 / 0.9) ** 0.5 + 0.01 / 0.9)
    assert words.keep_probabilities(0.0)[2] == 1.0
    ids = next(words.windows(1, 2, 0.01, seed=1)).ids
    assert (ids == 2).sum() == pytest.approx(9_000 * probabilities[2], rel=0.1)
    assert (ids == 3).sum() == pytest.approx(1_000 * probabilities[3], rel=0.15)


def test_windows_are_reproducible_and_differ_between_epochs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "CHUNK", 700)
    words = WordCorpus.of(*topics(), is_word())
    first, again = (list(words.windows(2, 3, 0.05, seed=4)) for _ in range(2))
    assert len(first) == 2 * -(-4_000 // 700)
    for one, other in zip(first, again, strict=True):
        assert np.array_equal(one.ids, other.ids) and np.array_equal(one.left, other.left)
    assert not np.array_equal(first[0].left, first[len(first) // 2].left)
    assert [w.progress for w in first] == sorted(w.progress for w in first)
    assert sum(len(text) for text in words.texts()) == words.total == 4_000


def test_a_text_with_one_different_word_is_refused() -> None:
    with pytest.raises(UserError, match="fewer than two different words"):
        WordCorpus.of(np.array([3, 3, 3, 0]), np.array([0, 4]), np.arange(SIZE) > 1)
