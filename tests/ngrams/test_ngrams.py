"""N-gram counts, smoothings and tables."""

from __future__ import annotations

import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from foreword.errors import UserError
from foreword.ngrams import scratch
from foreword.ngrams.counting import Level, count
from foreword.ngrams.scratch import Scratch
from foreword.ngrams.table import NgramTable
from foreword.settings import kinds
from foreword.types import Array

from .texts import END, START, VOCAB, SlowKneserNey, ngrams, stream

SMOOTHINGS = kinds.names("ngrams/smoothing")
every_smoothing = pytest.mark.parametrize("name", SMOOTHINGS)


def smoothing(name: str) -> Any:
    return kinds.load("ngrams/smoothing", name)()


def table(folder: Path, name: str = "modified_kneser_ney", order: int = 3) -> NgramTable:
    levels = counts(stream(), order, VOCAB, folder)
    return smoothed_table(levels, smoothing(name), VOCAB, folder)


def counts(words: Array, order: int, vocab: int, folder: Path) -> list[Level]:
    return count(words, order, vocab, START, Scratch(folder, scratch.CHUNK))


def smoothed_table(levels: list[Level], by: Any, vocab: int, folder: Path) -> NgramTable:
    is_word = np.arange(vocab) != START
    return NgramTable.of(levels, START, by, is_word, Scratch(folder, scratch.CHUNK))


def distribution(made: NgramTable, contexts: Array) -> Array:
    """Return the log-probabilities of every word after each row of words, (rows, vocab)."""
    words = contexts.ravel()
    is_first = (words == START) | (np.arange(len(words)) % contexts.shape[1] == 0)
    numbers = np.array(made.find(words, is_first)[: made.header.order - 1])
    return made.distribution(numbers.reshape(-1, *contexts.shape)[:, :, -1].T)


def contexts(words: Array, at: int) -> list[int]:
    """Return the words before position `at` in its text."""
    first = max(np.flatnonzero(words[:at] == START))
    before: list[int] = words[first:at].tolist()
    return before


@pytest.fixture(params=[(1 << 22, 1), (7, 1), (1 << 22, 3)], ids=["once", "chunks", "cores"])
def chunk(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    size, cores = request.param
    monkeypatch.setattr(scratch, "CHUNK", size)
    monkeypatch.setattr(scratch, "LEAST", 1)
    monkeypatch.setattr(scratch, "CORES", cores)
    return int(size)


@pytest.mark.usefixtures("chunk")
def test_counts_equal_those_of_a_dictionary(tmp_path: Path) -> None:
    words = stream()
    levels = counts(words, 4, VOCAB, tmp_path)
    grams = [(word,) for word in range(VOCAB)]
    for n, level in enumerate(levels, start=1):
        if n > 1:
            below = grams
            grams = [(*below[key // VOCAB], int(key % VOCAB)) for key in level.keys]
            assert [below[s] for s in level.suffixes] == [gram[1:] for gram in grams]
        counted = {gram: int(c) for gram, c in zip(grams, level.counts, strict=True) if c}
        assert counted == dict(ngrams(words, n))
        assert level.is_initial.tolist() == [gram[0] == START for gram in grams]


@pytest.mark.product
@pytest.mark.usefixtures("chunk")
@pytest.mark.parametrize("order", [1, 2, 3, 4])
def test_modified_kneser_ney_equals_the_reference_implementation(
    tmp_path: Path, order: int
) -> None:
    slow, unseen = SlowKneserNey(stream(), order), stream(12, seed=2)
    actual = table(tmp_path, order=order).log_probs_of(unseen)
    for at, word in enumerate(unseen):
        expected = 0.0 if word == START else np.log(slow.prob(contexts(unseen, at), word))
        assert actual[at] == pytest.approx(expected, abs=1e-5)


@pytest.mark.product
@every_smoothing
@pytest.mark.usefixtures("chunk")
def test_the_distribution_after_a_context_holds_the_scores_of_single_words(
    tmp_path: Path, name: str
) -> None:
    made, unseen = table(tmp_path, name), stream(12, seed=2)
    scores = made.log_probs_of(unseen)
    for at in np.flatnonzero(unseen != START):
        before = unseen[max(0, at - 2) : at][None]
        assert distribution(made, before)[0, unseen[at]] == pytest.approx(scores[at], abs=1e-6)


@every_smoothing
def test_probabilities_sum_to_1_if_the_smoothing_is_normalised(tmp_path: Path, name: str) -> None:
    made = table(tmp_path, name)
    pairs = [[a, b] for a in range(VOCAB) for b in range(2, VOCAB)] + [[END, START]]
    totals = np.exp(distribution(made, np.array(pairs))).sum(1)
    if name == "maximum_likelihood":  # all 0 after an unseen context
        totals = totals[totals > 0]
    assert (np.abs(totals - 1).max() < 1e-5) == smoothing(name).is_normalised


@every_smoothing
def test_a_loaded_table_equals_the_saved_one(tmp_path: Path, name: str) -> None:
    made, unseen = table(tmp_path, name), stream(12, seed=2)
    (tmp_path / "saved").mkdir()
    made.save(tmp_path / "saved")
    loaded = NgramTable.load(tmp_path / "saved")
    assert loaded.header == made.header
    assert np.array_equal(loaded.log_probs_of(unseen), made.log_probs_of(unseen))


def test_discounts_that_cannot_be_estimated_are_the_fallback(tmp_path: Path) -> None:
    """Every pair of words occurs twice and none once."""
    words = np.array([START, 2, 3, END] * 2 + [START, 4, 5, END] * 2)
    levels = counts(words, 2, 6, tmp_path)
    for name, discount in (("modified_kneser_ney", 1.0), ("kneser_ney", 0.75)):
        made = smoothed_table(levels, smoothing(name), 6, tmp_path)
        assert any("too few 2-grams" in note for note in made.header.notes)
        totals = np.exp(distribution(made, np.array([[2], [4]]))).sum(1)
        assert totals == pytest.approx(1.0, abs=1e-6)
        # 3 occurs twice after 2; the discount goes to the unigrams.
        backoff = np.exp(made.log_backoffs[0][2])
        assert backoff == pytest.approx(discount / 2)


def test_add_one_gives_probabilities_computed_by_hand(tmp_path: Path) -> None:
    words = np.array([START, 2, 3, 2, 3, END, START, 2, END])
    levels = counts(words, 2, 5, tmp_path)
    made = smoothed_table(levels, smoothing("add_k"), 5, tmp_path)
    # After 2, 3 occurs twice and END once; four words are possible: END, 2, 3, 4.
    expected = np.log(np.array([2, 1, 3, 1]) / (3 + 4))
    assert distribution(made, np.array([[2]]))[0, 1:] == pytest.approx(expected, abs=1e-6)


def test_stupid_backoff_gives_scores_computed_by_hand(tmp_path: Path) -> None:
    words = np.array([START, 2, 3, 2, 3, END, START, 2, END])
    levels = counts(words, 3, 5, tmp_path)
    made = smoothed_table(levels, smoothing("stupid_backoff"), 5, tmp_path)
    scores = np.exp(distribution(made, np.array([[3, 2], [4, 4]])))
    assert scores[0, 3] == pytest.approx(1.0)  # 3 2 3, once after 3 2, seen once
    assert scores[0, END] == pytest.approx(0.4 * 1 / 3)  # 2 END, one of three after 2
    assert scores[1, 3] == pytest.approx(0.4 * 0.4 * 2 / 7)  # neither 4 4 nor 4 is seen


def test_unseen_bigrams_have_probability_0_by_maximum_likelihood(tmp_path: Path) -> None:
    made = table(tmp_path, "maximum_likelihood", order=2)
    levels = counts(stream(), 2, VOCAB, tmp_path)
    is_seen = np.zeros((VOCAB, VOCAB), dtype=bool)
    is_seen[np.divmod(levels[1].keys, VOCAB)] = True
    log_probs = distribution(made, np.arange(VOCAB)[:, None])
    assert np.array_equal(np.isfinite(log_probs), is_seen)


def test_find_returns_a_number_for_seen_trigrams_alone(tmp_path: Path) -> None:
    made, unseen = table(tmp_path), stream(12, seed=2)
    known = ngrams(stream(), 3)
    for at, number in enumerate(made.find(unseen)[2]):
        gram = tuple(unseen[max(0, at - 2) : at + 1].tolist())
        assert (number >= 0) == (gram in known)


def test_a_damaged_table_is_refused(tmp_path: Path) -> None:
    made, folder = table(tmp_path), tmp_path / "saved"
    folder.mkdir()
    made.save(folder)
    keys = folder / "keys-3.npy"
    keys.write_bytes(keys.read_bytes()[:-9])
    with pytest.raises(UserError, match="damaged"):
        NgramTable.load(folder)


def test_texts_shorter_than_the_order_have_no_ngrams_of_it(tmp_path: Path) -> None:
    words = np.array([START, 2, END] * 40)
    levels = count(words, 5, VOCAB, START, Scratch(tmp_path, 7))
    assert [len(level) for level in levels] == [VOCAB, 2, 1, 0, 0]
    assert smoothed_table(levels, smoothing("modified_kneser_ney"), VOCAB, tmp_path).header.sizes[
        3:
    ] == (
        0,
        0,
    )


def test_memory_does_not_grow_with_the_text(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scratch, "CORES", 1)
    vocab, folder = 60, Scratch(tmp_path, 6000)
    words = np.random.default_rng(1).integers(START + 1, vocab, 80_000)
    words[::9] = START
    is_word = np.arange(vocab) != START

    def peaks(text: Array) -> dict[str, int]:
        """Return the peak memory of counting and of each smoothing, in bytes."""
        traced = {}
        tracemalloc.start()
        try:
            levels = count(text, 3, vocab, START, folder)
            traced["count"] = tracemalloc.get_traced_memory()[1]
            for name in SMOOTHINGS:
                tracemalloc.reset_peak()
                NgramTable.of(levels, START, smoothing(name), is_word, folder)
                traced[name] = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
        return traced

    peaks(words[:90])  # imports on first use
    small, large = peaks(words[:20_000]), peaks(words)
    for name, size in large.items():
        assert size < 1.25 * small[name], name


@pytest.mark.parametrize("name", SMOOTHINGS)
def test_the_way_of_backing_off_adds_up_to_the_log_probability(tmp_path: Path, name: str) -> None:
    made, words = table(tmp_path, name), np.array([START, 2, 3, 4, 3, 2, 5, 5, 2])
    ways = made.back_off(words, top=3)
    totals = [sum(step.nats for step in way) for way in ways]
    first = np.arange(len(words)) == 0
    np.testing.assert_allclose(totals, made.log_probs_of(words, is_first=first)[1:], atol=1e-5)
    for way, word in zip(ways, words[1:].tolist(), strict=True):
        assert [step.is_seen for step in way] == [False] * (len(way) - 1) + [True]
        assert [step.order for step in way] == list(range(way[0].order, way[-1].order - 1, -1))
        last = way[-1]
        if last.followers <= 3:
            assert word in dict(last.after)
