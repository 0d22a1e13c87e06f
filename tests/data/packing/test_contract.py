"""The contract of every packing; a new file in `data/packing/` is tested as soon as it exists."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from foreword import kinds
from foreword.data.packing.documents import Documents
from foreword.data.packing.stream import Stream
from foreword.data.rng import RowRng
from foreword.data.shards import Shards
from foreword.errors import UserError
from foreword.layouts.decoder import Decoder
from foreword.objectives.causal import Causal
from tests.data.packing import corpora

LENGTHS = [7, 30, 1, 0, 64, 12, 5, 90, 33, 2] * 4
KINDS = kinds.names("data/packing")


def opened(tmp_path: Path, kind: str, length: int = 16, seed: int = 1, batch: int = 4) -> Any:
    packing = kinds.load("data/packing", kind)(length=length)
    return packing.open(corpus(tmp_path, kind), corpora.vocab(), seed, batch)


def corpus(tmp_path: Path, kind: str) -> Shards:
    """Documents, or the same text in pairs for a packing that is of pairs."""
    needs_pairs = kinds.load("data/packing", kind).needs_pairs
    return (corpora.pairs if needs_pairs else corpora.shards)(tmp_path, LENGTHS)


@pytest.mark.parametrize("kind", KINDS)
def test_rows_do_not_depend_on_the_grouping(tmp_path: Path, kind: str) -> None:
    packed = opened(tmp_path, kind)
    numbers = np.arange(3 * packed.rows_per_epoch)
    whole = packed.rows(numbers)
    shuffled = np.random.default_rng(0).permutation(numbers)
    for group in np.array_split(shuffled, 11):
        rows = opened(tmp_path, kind).rows(group)
        assert (rows.numbers == group).all()
        for name in ("ids", "documents", "positions"):
            assert (getattr(rows, name) == getattr(whole, name)[group]).all(), name


@pytest.mark.parametrize("kind", KINDS)
def test_rows_have_the_documented_shapes_and_ranges(tmp_path: Path, kind: str) -> None:
    packed = opened(tmp_path, kind)
    rows = packed.rows(np.arange(50))
    for name in ("ids", "documents", "positions"):
        array = getattr(rows, name)
        assert array.shape == (50, 16)
        assert array.dtype == np.int64
    is_text = rows.documents >= 0
    assert ((rows.ids >= 0) & (rows.ids < corpora.vocab().size)).all()
    assert (rows.positions[is_text] >= 0).all()
    assert (rows.positions < 16).all()
    assert packed.tokens_per_epoch >= sum(LENGTHS)
    assert packed.rows_per_epoch >= 1


@pytest.mark.parametrize("kind", KINDS)
def test_positions_count_from_0_in_each_document(tmp_path: Path, kind: str) -> None:
    rows = opened(tmp_path, kind).rows(np.arange(50))
    for documents, positions in zip(rows.documents, rows.positions, strict=True):
        seen = documents[documents >= 0]
        assert sorted(set(seen.tolist())) == list(range(seen.max() + 1))
        for number in range(seen.max() + 1):
            places = np.flatnonzero(documents == number)
            assert (np.diff(places) == 1).all(), "a document is one run"
            assert positions[places].tolist() == list(range(len(places)))


@pytest.mark.parametrize("kind", KINDS)
def test_too_little_text_is_refused(tmp_path: Path, kind: str) -> None:
    with pytest.raises(UserError, match=r"only 1,[0-3]\d\d tokens.* needs [\d,]+; give more text"):
        opened(tmp_path, kind, length=100_000)


@pytest.mark.parametrize("kind", KINDS)
def test_shards_of_another_tokenizer_are_refused(tmp_path: Path, kind: str) -> None:
    packing = kinds.load("data/packing", kind)(length=16)
    packed = packing.open(corpus(tmp_path, kind), corpora.vocab(50), 1, 4)
    with pytest.raises(UserError, match="another"):
        packed.rows(np.arange(60))


@pytest.mark.parametrize("batch", [1, 3, 4])
@pytest.mark.parametrize(
    "packing",
    [Documents(16), Documents(16, "<s>"), Documents(16, document_mask=False), Stream(16)],
    ids=["documents", "begun", "joined", "stream"],
)
def test_text_read_once_is_predicted_to_its_end(tmp_path: Path, packing: Any, batch: int) -> None:
    vocab = corpora.vocab()
    packed = packing.open(corpora.shards(tmp_path, LENGTHS), vocab, 1, batch, once=True)
    rows = packed.rows(np.arange(packed.rows_per_epoch))
    example = Causal().corrupt(rows, RowRng(1, rows.numbers), vocab)
    found = Decoder().arrange(example, vocab)
    targets = found.targets[found.weights > 0]
    lengths = [n for n in LENGTHS if n]
    text = np.arange(10, 10 + sum(LENGTHS))
    firsts = 10 + np.cumsum([0, *lengths[:-1]])  # of documents
    before = vocab.id(packing.bos) if getattr(packing, "bos", "") else None
    if getattr(packing, "document_mask", False):
        # The first token of a document has nothing before it, unless it is given something.
        wanted = text if before else np.setdiff1d(text, firsts)
        ends = len(LENGTHS) if before else len(lengths)
    else:
        wanted, ends = text[1:], len(LENGTHS)
    plain = targets[targets >= 10]
    assert sorted(plain.tolist()) == wanted.tolist()
    assert (targets < 10).sum() == ends
    read = rows.ids[rows.documents >= 0]
    assert set(text.tolist()) <= set(read.tolist())


@pytest.mark.parametrize("kind", KINDS)
def test_text_read_once_ends_in_padding(tmp_path: Path, kind: str) -> None:
    packing = kinds.load("data/packing", kind)(length=16)
    packed = packing.open(corpus(tmp_path, kind), corpora.vocab(), 1, 4, once=True)
    rows = packed.rows(np.arange(packed.rows_per_epoch))
    is_text = rows.documents >= 0
    assert (rows.ids[~is_text] == corpora.vocab().special["[PAD]"]).all()
    assert (np.diff(is_text.astype(int), axis=1) <= 0).all(), "padding is at the end of a row"
