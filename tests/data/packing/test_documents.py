from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from foreword.data.packing.documents import Documents
from foreword.errors import UserError
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
    endless = np.array(once * (epochs + 1))
    # Which of an epoch's rows comes when is random, so what comes is compared as a set.
    count = packed.rows_per_epoch
    for epoch in range(epochs):
        rows = packed.rows(np.arange(epoch * count, (epoch + 1) * count))
        expected = [
            tuple(endless[r * length : (r + 1) * length, 0])
            for r in range(epoch * count, (epoch + 1) * count)
        ]
        assert sorted(map(tuple, rows.ids.tolist())) == sorted(expected)


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
        (6, 10, 11, 12): ([0, 1, 1, 1], [0, 0, 1, 2]),
        (6, 13, 6, 14): ([0, 1, 1, 2], [0, 0, 1, 0]),
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


def test_without_document_mask_a_row_is_one_document(tmp_path: Path) -> None:
    shards = corpora.shards(tmp_path, LENGTHS)
    apart = Documents(16).open(shards, corpora.vocab(), 1, 4).rows(np.arange(20))
    joint = (
        Documents(16, document_mask=False).open(shards, corpora.vocab(), 1, 4).rows(np.arange(20))
    )
    assert (joint.ids == apart.ids).all()
    assert (joint.documents == 0).all()
    assert (joint.positions == np.arange(16)).all()


def test_impossible_settings_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="length"):
        Documents(0)
    with pytest.raises(UserError, match="no special token <S>"):
        Documents(bos="<S>").open(corpora.shards(tmp_path, LENGTHS), corpora.vocab(), 1, 4)
