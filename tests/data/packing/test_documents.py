from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from foreword.data import endless_stream
from foreword.data.document_stream import DocumentStream, ranges
from foreword.data.endless_stream import EndlessStream
from foreword.data.packing.documents import Documents
from foreword.errors import UserError
from foreword.types import Array, NextToken, Rows
from tests.data.packing import corpora

LENGTHS = [7, 30, 1, 0, 64, 12, 5]


def stream(lengths: list[int], before: list[int], after: list[int]) -> list[tuple[int, int]]:
    """The wrapped documents one token after the other, with the document's number."""
    tokens, at = [], 10
    for number, length in enumerate(lengths):
        ids = [*before, *range(at, at + length), *after]
        tokens += [(token, number) for token in ids]
        at += length
    return tokens


@pytest.mark.product
@pytest.mark.parametrize(("bos", "eos"), [("", "</s>"), ("<s>", "</s>"), ("[CLS]", ""), ("", "")])
@pytest.mark.parametrize("length", [1, 5, 16, 119])
def test_rows_are_the_endless_stream(tmp_path: Path, bos: str, eos: str, length: int) -> None:
    vocab = corpora.vocab()
    packing = Documents(length, bos, eos)
    packed = packing.open(corpora.shards(tmp_path, LENGTHS), vocab, 1, 4)
    once = stream(
        LENGTHS,
        [vocab.id(bos)] if bos else [],
        [vocab.id(eos)] if eos else [],
    )
    assert packed.tokens_per_epoch == len(once)
    assert packed.rows_per_epoch == len(once) // length
    epochs = 4
    # Which of an epoch's rows comes when is random, so what comes is compared as a set.
    count = packed.rows_per_epoch
    first = [tuple(t for t, _ in once[r * length : (r + 1) * length]) for r in range(count)]
    rows = packed.rows(np.arange(count))
    assert sorted(map(tuple, rows.ids.tolist())) == sorted(first)
    # Epochs that come in other orders show every token once, in the order of its document.
    numbers = np.arange(epochs * count)
    for start in range(0, len(numbers), 7):
        assert_pieces_of_documents(packed.rows(numbers[start : start + 7]), once)
    shown = packed.rows(numbers).ids.ravel()
    times = np.bincount(shown[shown >= 10], minlength=10 + sum(LENGTHS))[10:]
    whole = epochs * count * length // len(once)
    assert set(times) <= {whole, whole + 1}


def assert_pieces_of_documents(rows: Rows, once: list[tuple[int, int]]) -> None:
    """Check that each row is pieces of documents, numbered in order, with positions in each."""
    text = [token for token, _ in once]
    bounds = [0, *(n for n in range(1, len(once)) if once[n][1] != once[n - 1][1]), len(once)]
    pieces = {
        tuple(text[start:stop]): text[stop] if stop < end else -1
        for begin, end in pairwise(bounds)
        for start in range(begin, end)
        for stop in range(start + 1, end + 1)
    }
    following = rows.require(NextToken).ids
    for ids, documents, positions, after in zip(
        rows.ids, rows.documents, rows.positions, following, strict=True
    ):
        starts = np.flatnonzero(positions == 0)
        assert (documents == np.cumsum(positions == 0) - 1).all()
        for piece in np.split(ids, starts[1:]):
            assert tuple(piece.tolist()) in pieces
        if len(piece) > 1:  # a special token alone is in several documents
            assert after == pieces[tuple(piece.tolist())]


def test_each_later_epoch_has_its_documents_in_another_order(tmp_path: Path) -> None:
    stream = DocumentStream(corpora.shards(tmp_path, LENGTHS), corpora.vocab(), "", "")
    total = len(stream)
    read = [epoch_of(EndlessStream(stream, 1), epoch, total) for epoch in range(6)]
    assert (read[0] == np.arange(total)).all()
    for order in read[1:]:
        assert sorted(order) == list(range(total))
        jumps = np.flatnonzero(np.diff(order) != 1)
        assert set(order[jumps] + 1) <= set(stream.bounds)  # documents stay whole
    assert len({tuple(order) for order in read}) > 4
    assert (read[1] != epoch_of(EndlessStream(stream, 2), 1, total)).any()


def epoch_of(endless: EndlessStream, epoch: int, total: int) -> Array:
    """Return where the tokens of an epoch are in the text, read in spans of 9 tokens."""
    starts = epoch * total + np.arange(0, total, 9)
    lengths = np.minimum(9, (epoch + 1) * total - starts)
    source, sizes, which = endless.spans(starts, lengths)
    assert (np.bincount(which, sizes) == lengths).all()
    return ranges(source, sizes)[0]


def test_a_row_does_not_depend_on_the_epochs_that_were_read_before(tmp_path: Path) -> None:
    shards = corpora.shards(tmp_path, LENGTHS)
    packed = Documents(16).open(shards, corpora.vocab(), 1, 4)
    numbers = np.arange(60)
    ahead = packed.rows(numbers).ids
    for number in reversed(numbers):
        fresh = Documents(16).open(shards, corpora.vocab(), 1, 4)
        assert (packed.rows(numbers[[number]]).ids == ahead[number]).all()
        assert (fresh.rows(numbers[[number]]).ids == ahead[number]).all()


def test_many_documents_are_shuffled_in_groups_of_neighbours(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(endless_stream, "UNITS", 20)
    stream = DocumentStream(corpora.shards(tmp_path, [3] * 50), corpora.vocab(), "", "")
    order = epoch_of(EndlessStream(stream, 1), 1, len(stream))
    jumps = np.flatnonzero(np.diff(order) != 1)
    assert sorted(order) == list(range(150))
    assert 10 < len(jumps) < 20
    assert all(order[jumps + 1] % 9 == 0)


def test_rows_equal_the_docstrings(tmp_path: Path) -> None:
    """The table of the docstring."""
    shards = corpora.shards(tmp_path, [3, 1, 2])
    packed = Documents(4).open(shards, corpora.vocab(), 0, 1)
    rows = {
        tuple(ids): (documents, positions)
        for numbers in (range(2), range(2, 4))
        for ids, documents, positions in zip(
            *(
                getattr(packed.rows(np.array(numbers)), name).tolist()
                for name in ("ids", "documents", "positions")
            ),
            strict=True,
        )
    }
    assert rows == {
        (10, 11, 12, 6): ([0, 0, 0, 0], [0, 1, 2, 3]),
        (13, 6, 14, 15): ([0, 0, 1, 1], [0, 1, 0, 1]),
        (6, 14, 15, 6): ([0, 1, 1, 1], [0, 0, 1, 2]),
        (13, 6, 10, 11): ([0, 0, 1, 1], [0, 1, 0, 1]),
    }


def test_an_epoch_has_every_token_once(tmp_path: Path) -> None:
    packed = Documents(17, eos="").open(
        corpora.shards(tmp_path, [50, 0, 100, 20]), corpora.vocab(), 9, 4
    )
    assert packed.rows_per_epoch == 10
    ids = packed.rows(np.arange(10)).ids
    assert sorted(ids.ravel().tolist()) == list(range(10, 180))


def test_the_order_depends_on_epoch_and_seed(tmp_path: Path) -> None:
    shards = corpora.shards(tmp_path, [17 * 40])
    orders = {
        tuple(packed.rows(np.arange(e * 40, e * 40 + 40)).ids[:, 0])
        for seed in (1, 2)
        for packed in [Documents(17, eos="").open(shards, corpora.vocab(), seed, 4)]
        for e in (0, 1)
    }
    assert len(orders) == 4
    assert tuple(range(10, 690, 17)) not in orders


def test_rows_that_are_cut_once_show_every_token_once_in_each_epoch(tmp_path: Path) -> None:
    packing = Documents(17, eos="", shuffle="rows")
    packed = packing.open(corpora.shards(tmp_path, [50, 0, 100, 20, 3]), corpora.vocab(), 9, 4)
    assert (packed.rows_per_epoch, packed.tokens_per_epoch) == (11, 173)
    epochs = [packed.rows(epoch * 11 + np.arange(11)) for epoch in range(3)]
    for rows in epochs:
        assert sorted(rows.ids[rows.documents >= 0].tolist()) == list(range(10, 183))
        assert (rows.documents < 0).sum() == 14
    firsts = [rows.ids[:, 0].tolist() for rows in epochs]
    assert sorted(firsts[0]) == sorted(firsts[1]) == sorted(firsts[2])
    assert firsts[0] != firsts[1] != firsts[2]


def test_without_document_mask_a_row_is_one_document(tmp_path: Path) -> None:
    shards = corpora.shards(tmp_path, LENGTHS)
    apart = Documents(16).open(shards, corpora.vocab(), 1, 4).rows(np.arange(20))
    joint = (
        Documents(16, document_mask=False).open(shards, corpora.vocab(), 1, 4).rows(np.arange(20))
    )
    assert (joint.ids == apart.ids).all()
    assert (joint.documents == 0).all()
    assert (joint.positions == np.arange(16)).all()


def test_an_unknown_special_token_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no special token <S>"):
        Documents(bos="<S>").open(corpora.shards(tmp_path, LENGTHS), corpora.vocab(), 1, 4)
