"""Pairs of parallel text: whole, all of them, in few rows, others together in each epoch."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from foreword.data.packing.parallel import Parallel
from foreword.data.shards import Shards
from foreword.errors import UserError
from foreword.types import Rows
from tests.data.packing import corpora

VOCAB = corpora.vocab()


def many(folder: Path) -> Shards:
    draw = np.random.default_rng(1)
    return corpora.write(folder, draw.integers(1, 6, (90, 2)).tolist())


def read(rows: Rows) -> list[tuple[list[int], list[int]]]:
    """The pairs of rows, taken apart by what stands in them."""
    assert rows.segments is not None
    pairs = []
    for ids, documents, segments in zip(rows.ids, rows.documents, rows.segments, strict=True):
        for number in range(documents.max() + 1):
            sides = [ids[(documents == number) & (segments == side)] for side in (0, 1)]
            pairs.append((sides[0].tolist(), sides[1].tolist()))
    return pairs


def test_rows_equal_the_docstrings(tmp_path: Path) -> None:
    packed = Parallel(10).open(corpora.write(tmp_path, [[2, 1], [1, 2]]), VOCAB, 1, 4)
    rows = packed.rows(np.arange(1))
    assert sorted(read(rows)) == [([10, 11], [12]), ([13], [14, 15])]
    assert (rows.documents == [[0, 0, 0, 1, 1, 1, -1, -1, -1, -1]]).all()
    assert (rows.ids[0, 6:] == 0).all()


@pytest.mark.parametrize("length", [12, 40])
def test_every_epoch_shows_every_pair_once(tmp_path: Path, length: int) -> None:
    shards = many(tmp_path)
    packed = Parallel(length).open(shards, VOCAB, 1, 4)
    starts = shards.sequence_starts + 10
    expected = [
        (list(range(a, b)), list(range(b, c)))
        for a, b, c in zip(starts[:-1:2], starts[1::2], starts[2::2], strict=True)
    ]
    seen = []
    for epoch in range(3):
        numbers = epoch * packed.rows_per_epoch + np.arange(packed.rows_per_epoch)
        rows = packed.rows(numbers)
        seen.append(read(rows))
        assert sorted(seen[-1]) == sorted(expected)
        pairs = rows.documents.max(1) + 1
        assert ((rows.documents >= 0).sum(1) + 2 * pairs <= length).all(), "room for the ends"
    assert seen[0] != seen[1] != seen[2]
    least = 0.9 if length == 40 else 0.8
    assert packed.tokens_per_epoch > least * length * packed.rows_per_epoch
    assert not packed.notes


def test_the_order_depends_on_the_seed(tmp_path: Path) -> None:
    shards = many(tmp_path)
    one, two = (Parallel(40).open(shards, VOCAB, seed, 4).rows(np.arange(4)) for seed in (1, 2))
    assert (one.ids != two.ids).any()


@pytest.mark.parametrize(
    ("sides", "kept"), [((3, 20), (3, 7)), ((20, 3), (7, 3)), ((9, 9), (5, 5)), ((5, 6), (5, 5))]
)
def test_a_pair_longer_than_a_row_is_cut_and_counted(
    tmp_path: Path, sides: tuple[int, int], kept: tuple[int, int]
) -> None:
    packed = Parallel(12).open(corpora.write(tmp_path, [list(sides), [2, 2]]), VOCAB, 1, 4)
    pairs = read(packed.rows(np.arange(packed.rows_per_epoch)))
    assert kept in [(len(source), len(target)) for source, target in pairs]
    assert packed.notes == ["1 pairs longer than a row are cut"]


def test_text_that_is_not_parallel_is_refused(tmp_path: Path) -> None:
    shards = corpora.write(tmp_path, [[2, 2], [3, 1, 4]])
    with pytest.raises(UserError, match=r"document 2 has 3 sequences .* read.target=de"):
        Parallel(12).open(shards, VOCAB, 1, 4)
