"""The contract of packings: a function for each promise."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import fields, is_dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, cast

import numpy as np

from foreword.data.packing._contract import Packed, Packing
from foreword.data.shard_writer import ShardWriter
from foreword.data.shards import Shards
from foreword.errors import UserError
from foreword.testing.cases import vocab as small_vocab
from foreword.text import special
from foreword.types import Vocab

DOCUMENTS = [7, 30, 1, 0, 64, 12, 5, 90, 33, 2] * 4  # tokens of each
LENGTH, BATCH, ROWS = 16, 4, 50
FIRST = len(special.ALL)


def check_packing(packing: Packing) -> None:
    """Check all that a packing promises, in rows of 16 tokens where it has a setting `length`.

    Raises:
        AssertionError: a promise is broken.
    """
    assert is_dataclass(type(packing)), "a packing is a frozen dataclass"
    for check in PACKING_CHECKS:
        check(packing)


def vocab(size: int = 2_000) -> Vocab:
    """Return a vocabulary that has an id for each token of the corpus."""
    is_special = np.arange(size) < FIRST
    return replace(small_vocab(), size=size, is_special=is_special, starts_word=~is_special)


def write_corpus(folder: Path, documents: Sequence[Sequence[int]], first: int = FIRST) -> Shards:
    """Write documents, given as the lengths of their sequences; ids count up from `first`."""
    with ShardWriter(folder / "train", 2_000) as writer:
        token = first
        for sequences in documents:
            length = sum(sequences)
            ids = np.arange(token, token + length)
            writer.add(ids, np.array(sequences, dtype=int), np.array([len(sequences)]))
            token += length
    return Shards.open(folder / "train")


def corpus(folder: Path, packing: Packing) -> Shards:
    """Write text for a packing: documents of sentences, or pairs if it needs pairs."""
    if packing.needs_pairs:
        short = [part for n in DOCUMENTS for part in [12] * (n // 12) + [n % 12] if part > 1]
        return write_corpus(folder, [[n // 2, n - n // 2] for n in short])
    return write_corpus(folder, [[4] * (n // 4) + [n % 4] * (n % 4 > 0) for n in DOCUMENTS])


def _open(packing: Packing, folder: str, **more: Any) -> Packed:
    prefix = Path(folder) / "train"
    shards = Shards.open(prefix) if prefix.with_suffix(".idx").exists() else None
    shards = shards or corpus(Path(folder), packing)
    return packing.open(shards, vocab(), 1, BATCH, **more)


def _with_length(packing: Packing, length: int) -> Packing:
    names = {field.name for field in fields(cast(Any, packing))}
    return replace(cast(Any, packing), length=length) if "length" in names else packing


def check_rows_do_not_depend_on_the_grouping(packing: Packing) -> None:
    """Check that a row does not depend on the rows read with it, and is equal after reopening."""
    packing = _with_length(packing, LENGTH)
    with TemporaryDirectory() as folder:
        packed = _open(packing, folder)
        numbers = np.arange(3 * packed.rows_per_epoch)
        whole = packed.rows(numbers)
        shuffled = np.random.default_rng(0).permutation(numbers)
        for group in np.array_split(shuffled, 11):
            rows = _open(packing, folder).rows(group)
            assert (rows.numbers == group).all(), "rows do not know their numbers"
            for name in ("ids", "documents", "positions"):
                is_same = (getattr(rows, name) == getattr(whole, name)[group]).all()
                assert is_same, f"{name} depend on the rows that are read together"


def check_shapes_and_ranges(packing: Packing) -> None:
    """Check shapes, types and ranges of rows, and the counts of an epoch."""
    packing = _with_length(packing, LENGTH)
    with TemporaryDirectory() as folder:
        packed = _open(packing, folder)
        rows = packed.rows(np.arange(ROWS))
        for name in ("ids", "documents", "positions"):
            array = getattr(rows, name)
            assert array.shape == (ROWS, packing.length), f"{name} are of shape {array.shape}"
            assert array.dtype == np.int64, f"{name} are of {array.dtype}"
        assert ((rows.ids >= 0) & (rows.ids < vocab().size)).all()
        assert (rows.positions[rows.documents >= 0] >= 0).all()
        assert (rows.positions < packing.length).all()
        assert packed.tokens_per_epoch >= sum(DOCUMENTS)
        assert packed.rows_per_epoch >= 1


def check_documents_are_contiguous(packing: Packing) -> None:
    """Check that a row's documents are numbered from 0, contiguous, with positions from 0."""
    packing = _with_length(packing, LENGTH)
    with TemporaryDirectory() as folder:
        rows = _open(packing, folder).rows(np.arange(ROWS))
        for documents, positions in zip(rows.documents, rows.positions, strict=True):
            seen = documents[documents >= 0]
            assert sorted(set(seen.tolist())) == list(range(seen.max() + 1))
            for number in range(seen.max() + 1):
                at = np.flatnonzero(documents == number)
                assert (np.diff(at) == 1).all(), "a document is not contiguous"
                assert positions[at].tolist() == list(range(len(at))), "positions are not from 0"


def check_too_little_text_is_refused(packing: Packing) -> None:
    """Check that text shorter than a row is refused when it is opened."""
    with TemporaryDirectory() as folder:
        try:
            _open(_with_length(packing, 100_000), folder)
        except UserError:
            return
        assert packing.length < sum(DOCUMENTS), "text that is shorter than a row is accepted"


def check_tokens_of_another_tokenizer_are_refused(packing: Packing) -> None:
    """Check that ids beyond the vocabulary are refused when they are read."""
    packing = _with_length(packing, LENGTH)
    with TemporaryDirectory() as folder:
        packed = packing.open(corpus(Path(folder), packing), vocab(FIRST + 40), 1, BATCH)
        try:
            packed.rows(np.arange(packed.rows_per_epoch))
        except UserError:
            return
        raise AssertionError("ids beyond the vocabulary are accepted")


def check_text_that_is_read_once_ends_in_padding(packing: Packing) -> None:
    """Check that an epoch of text read once shows all of it, with padding at the ends of rows."""
    packing = _with_length(packing, LENGTH)
    with TemporaryDirectory() as folder:
        packed = _open(packing, folder, once=True)
        rows = packed.rows(np.arange(packed.rows_per_epoch))
        is_text = rows.documents >= 0
        assert (rows.ids[~is_text] == vocab().special["[PAD]"]).all(), "padding is not [PAD]"
        assert (np.diff(is_text.astype(int), axis=1) <= 0).all(), "padding is not at the end"
        tokens = set(rows.ids[is_text].tolist())
        missing = set(Shards.open(Path(folder) / "train").tokens.tolist()) - tokens
        assert not missing, f"{len(missing)} tokens of the text are not shown"


def check_epochs_show_every_token(packing: Packing) -> None:
    """Check that four epochs show every token four times, or three where epochs overlap rows."""
    packing = _with_length(packing, LENGTH)
    with TemporaryDirectory() as folder:
        packed = _open(packing, folder)
        ids = packed.rows(np.arange(4 * packed.rows_per_epoch)).ids
        times = np.bincount(ids.ravel(), minlength=vocab().size)
        shown = times[Shards.open(Path(folder) / "train").tokens]
        assert shown.min() >= 3, f"a token is shown {shown.min()} times in four epochs"


PACKING_CHECKS: tuple[Callable[[Packing], None], ...] = (
    check_rows_do_not_depend_on_the_grouping,
    check_shapes_and_ranges,
    check_documents_are_contiguous,
    check_too_little_text_is_refused,
    check_tokens_of_another_tokenizer_are_refused,
    check_text_that_is_read_once_ends_in_padding,
    check_epochs_show_every_token,
)
