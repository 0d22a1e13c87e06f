"""Pairs of whole sentences that follow each other or do not, all of them, in few rows."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

from foreword.data.packing._binned import into_bins
from foreword.data.packing.pairs import Pairs
from foreword.data.shard_writer import ShardWriter
from foreword.data.shards import Shards
from foreword.errors import UserError
from foreword.types import PairLabels, Rows
from tests.data.packing import corpora

CLS, SEP, PAD = 2, 3, 0
VOCAB = corpora.vocab(60_000)


def corpus(folder: Path, documents: list[list[int]]) -> Shards:
    """Write documents of sentences of the given lengths; tokens count up from 10."""
    with ShardWriter(folder / "train", 60_000) as writer:
        at = 10
        for sentences in documents:
            lengths = np.array(sentences, dtype=int)
            ids = np.arange(at, at + lengths.sum())
            writer.add(ids, lengths, np.array([len(lengths)]))
            at += len(ids)
    return Shards.open(folder / "train")


def many(folder: Path, seed: int = 1, documents: int = 80) -> Shards:
    draw = np.random.default_rng(seed)
    made = [draw.integers(1, 12, draw.integers(0, 15)).tolist() for _ in range(documents)]
    return corpus(folder, made)


class Pair(NamedTuple):
    first: list[int]
    second: list[int]
    label: int


def read(rows: Rows) -> list[Pair]:
    """The pairs of rows, taken apart by what stands in them."""
    assert rows.segments is not None
    of_pairs = rows.require(PairLabels).labels
    pairs = []
    for ids, documents, positions, segments, labels in zip(
        rows.ids, rows.documents, rows.positions, rows.segments, of_pairs, strict=True
    ):
        assert (ids[documents < 0] == PAD).all()
        for number in range(documents.max() + 1):
            where = np.flatnonzero(documents == number)
            assert ids[where[0]] == CLS
            assert positions[where].tolist() == list(range(len(where)))
            assert (labels[where[1:]] == -1).all()
            one = ids[where][segments[where] == 0].tolist()
            two = ids[where][segments[where] == 1].tolist()
            assert one[-1] == SEP
            assert not two or two[-1] == SEP
            assert not {CLS, SEP} & {*one[1:-1], *two[:-1]}
            pairs.append(Pair(one[1:-1], two[:-1], int(labels[where[0]])))
        assert (labels[documents < 0] == -1).all()
    return pairs


def epoch(packed: Any, number: int = 0) -> Rows:
    first = sum(len(packed._epoch(n).order) for n in range(number))
    return packed.rows(np.arange(first, first + len(packed._epoch(number).order)))


def whole(shards: Shards, text: list[int]) -> bool:
    """Whether a text is whole sentences, one after the other."""
    edges = set((shards.sequence_starts + 10).tolist())
    return text == list(range(text[0], text[-1] + 1)) and {text[0], text[-1] + 1} <= edges


def document(shards: Shards, token: int) -> int:
    return int(np.searchsorted(shards.document_starts, token - 10, side="right"))


@pytest.mark.parametrize("length", [16, 40, 128])
def test_second_texts_follow_or_come_from_another_document(tmp_path: Path, length: int) -> None:
    shards = many(tmp_path)
    for pair in read(epoch(Pairs(length).open(shards, VOCAB, 1, 4))):
        assert whole(shards, pair.first)
        one = document(shards, pair.first[0])
        if pair.label == -1:
            assert not pair.second
        elif pair.label == 0:
            assert whole(shards, pair.second)
            assert pair.second[0] == pair.first[-1] + 1
            assert document(shards, pair.second[0]) == one
        else:
            assert document(shards, pair.second[0]) == document(shards, pair.second[-1]) != one
            assert pair.second[0] - 10 in shards.sequence_starts


@pytest.mark.parametrize("random", [0.0, 0.5, 1.0])
def test_every_epoch_shows_every_token_once_besides_random_texts(
    tmp_path: Path, random: float
) -> None:
    shards = many(tmp_path)
    packed = Pairs(48, random=random).open(shards, VOCAB, 1, 4)
    for number in range(3):
        pairs = read(epoch(packed, number))
        own = [p.first + (p.second if p.label == 0 else []) for p in pairs]
        shown = sorted(token for text in own for token in text)
        assert shown == list(range(10, 10 + shards.tokens_total))


def test_random_second_texts_have_their_share(tmp_path: Path) -> None:
    shards = many(tmp_path, documents=600)
    for random in (0.0, 0.5, 0.8):
        pairs = read(epoch(Pairs(64, random=random).open(shards, VOCAB, 1, 4)))
        labels = np.array([pair.label for pair in pairs])
        assert (labels[labels >= 0] == 1).mean() == pytest.approx(random, abs=0.05)
        sizes = np.array([len(pair.second) for pair in pairs])
        if random == 0.5:  # the length does not tell
            assert sizes[labels == 1].mean() == pytest.approx(sizes[labels == 0].mean(), rel=0.15)


def test_epochs_and_seeds_differ_in_boundaries_and_random_texts(tmp_path: Path) -> None:
    shards = many(tmp_path)
    packed = [Pairs(48).open(shards, VOCAB, seed, 4) for seed in (1, 2)]
    sets = [
        {(tuple(p.first), tuple(p.second)) for p in read(epoch(one, n))}
        for one in packed
        for n in (0, 1)
    ]
    for n, one in enumerate(sets):
        for other in sets[n + 1 :]:
            assert len(one & other) < 0.5 * len(one)


def test_short_pairs_change_the_boundaries(tmp_path: Path) -> None:
    shards = many(tmp_path)
    firsts = [
        {p.first[0] for p in read(epoch(Pairs(48, random=0.0).open(shards, VOCAB, 1, 4), n))}
        for n in (0, 1)
    ]
    assert firsts[0] != firsts[1]


def test_a_sentence_longer_than_a_row_is_cut_and_none_is_lost(tmp_path: Path) -> None:
    shards = corpus(tmp_path, [[100, 3, 2], [4, 4, 50]])
    pairs = read(epoch(Pairs(16, random=0.0).open(shards, VOCAB, 1, 4)))
    assert sorted(t for p in pairs for t in p.first + p.second) == list(range(10, 173))


def test_rows_equal_the_docstrings(tmp_path: Path) -> None:
    with ShardWriter(tmp_path / "train", 100) as writer:
        writer.add(np.array([7, 8, 9]), np.array([2, 1]), np.array([2]))
        writer.add(np.array([4, 5, 6]), np.array([1, 2]), np.array([2]))
    vocab = replace(corpora.vocab(100), special={"[PAD]": 0, "[CLS]": 1, "[SEP]": 2})
    rows = []
    for seed in range(200):
        packed = Pairs(8).open(Shards.open(tmp_path / "train"), vocab, seed, 4)
        rows.append({tuple(ids) for ids in epoch(packed).ids.tolist()})
    expected = {(1, 7, 8, 2, 9, 2, 0, 0), (1, 4, 2, 7, 8, 2, 0, 0), (1, 5, 6, 2, 0, 0, 0, 0)}
    assert expected in rows


def test_a_row_does_not_depend_on_earlier_requests(tmp_path: Path) -> None:
    shards = many(tmp_path)
    late = Pairs(32).open(shards, VOCAB, 1, 4).rows(np.array([700, 3]))
    packed = Pairs(32).open(shards, VOCAB, 1, 4)
    early = packed.rows(np.arange(701))
    assert (late.ids == early.ids[[700, 3]]).all()
    labels = early.require(PairLabels).labels
    assert (late.require(PairLabels).labels == labels[[700, 3]]).all()


def test_text_without_pairs_is_refused(tmp_path: Path) -> None:
    alone = corpus(tmp_path, [[9]] * 30)
    with pytest.raises(UserError, match="a pair objective on a corpus whose documents have one"):
        Pairs(16).open(alone, VOCAB, 1, 4)


def test_random_texts_of_one_document_come_from_elsewhere_in_it(tmp_path: Path) -> None:
    one = corpus(tmp_path, [[5] * 90])
    pairs = read(epoch(Pairs(32).open(one, VOCAB, 1, 4)))
    ones = [pair for pair in pairs if pair.label == 1]
    assert 0.3 * len(pairs) < len(ones) < 0.7 * len(pairs)
    assert all(pair.second[0] != pair.first[-1] + 1 for pair in ones)
    few = corpus(tmp_path, [[5, 5, 5]])
    assert [pair.label for pair in read(epoch(Pairs(18, short=0.0).open(few, VOCAB, 1, 4)))] == [0]


def test_a_single_document_is_noted(tmp_path: Path) -> None:
    alone = corpus(tmp_path, [[5] * 40, []])
    (note,) = Pairs(32).open(alone, VOCAB, 1, 4).notes
    assert "the text is one document" in note
    assert not Pairs(32, random=0.0).open(alone, VOCAB, 1, 4).notes
    two = corpus(tmp_path, [[5] * 20, [5] * 20])
    assert not Pairs(32).open(two, VOCAB, 1, 4).notes


def test_texts_without_a_second_text_are_noted(tmp_path: Path) -> None:
    lone = corpus(tmp_path, [*[[5]] * 36, [5, 5], [5, 5]])
    (note,) = Pairs(32).open(lone, VOCAB, 1, 4).notes
    assert note.startswith("95% of the texts have no second text")
    assert not Pairs(32).open(corpus(tmp_path, [[5, 5]] * 20), VOCAB, 1, 4).notes


def test_a_pair_without_a_beginning_is_refused() -> None:
    with pytest.raises(ValueError, match="bos: a pair requires"):
        Pairs(bos="")


@pytest.mark.parametrize("seed", range(5))
def test_bins_are_filled_within_their_length(seed: int) -> None:
    draw = np.random.default_rng(seed)
    sizes = draw.integers(1, 33, 500)
    bins = into_bins(sizes, 32)
    filled = np.bincount(bins, sizes)
    assert (np.unique(bins) == np.arange(len(filled))).all()
    assert filled.max() <= 32
    # Best fit decreasing: at most 11/9 of the best and 4/9 of a bin more (Johnson 1973).
    assert len(filled) <= 11 / 9 * np.ceil(sizes.sum() / 32) + 4
