from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch

from foreword.errors import UserError
from foreword.nn.masks import CausalMask, DocumentMask
from foreword.types import Batch, TermCounts, UniformDraws, Vocab, to_tensors


def test_nested_records_become_tensors() -> None:
    ids = np.arange(6).reshape(1, 6)
    source = Batch(ids, ids, DocumentMask(ids, ids))
    batch = Batch(ids, ids, CausalMask() & DocumentMask(ids, ids), source=source).to("cpu")
    assert isinstance(batch.ids, torch.Tensor)
    assert isinstance(batch.source.ids, torch.Tensor)
    assert isinstance(batch.source.mask.queries, torch.Tensor)
    assert isinstance(batch.mask.right.keys, torch.Tensor)
    assert batch.mask.left == CausalMask()
    assert batch.targets is None
    assert batch.ids.tolist() == ids.tolist()


def test_an_array_that_occurs_twice_becomes_one_tensor() -> None:
    documents = np.zeros((1, 6), np.int64)
    mask = DocumentMask(documents, documents)
    assert mask.sees_itself
    batch = Batch(documents + 1, None, CausalMask() & mask, documents=documents).to("cpu")
    assert batch.mask.right.queries is batch.mask.right.keys is batch.documents
    assert batch.mask.sees_itself
    assert not DocumentMask(documents, documents.copy()).sees_itself


def test_to_tensors_keeps_dtypes() -> None:
    batch = Batch(np.zeros((1, 2), np.int64), None, None, weights=np.ones((1, 2), np.float32))
    moved = to_tensors(batch, "cpu")
    assert moved.ids.dtype == torch.int64
    assert moved.weights.dtype == torch.float32


@dataclass(frozen=True)
class Hints:
    """A part that nothing in Foreword knows, as a family of its own defines one."""

    at: Any
    mask: Any


def test_a_part_of_a_new_type_is_kept_and_becomes_tensors() -> None:
    ids = np.arange(6).reshape(2, 3)
    batch = Batch(ids, ids, None, parts=(UniformDraws(np.ones((2, 3), np.float32)),))
    moved = batch.with_part(Hints(ids[:, :1], DocumentMask(ids, ids))).to("cpu")
    hints = moved.require(Hints)
    assert torch.equal(hints.at, torch.tensor([[0], [3]]))
    assert hints.mask.queries is moved.ids
    assert moved.require(UniformDraws).draws.dtype == torch.float32


def test_a_part_is_found_by_its_type_and_replaces_another_of_it() -> None:
    batch = Batch(None, None, None).with_part(Hints(1, None)).with_part(TermCounts(2))
    assert batch.part(UniformDraws) is None
    again = batch.with_part(Hints(3, None))
    assert [type(part) for part in again.parts] == [TermCounts, Hints]
    assert (batch.require(Hints).at, again.require(Hints).at) == (1, 3)
    assert again.without(Hints).parts == (TermCounts(2),)
    with pytest.raises(TypeError, match="Batch without a part Hints"):
        again.without(Hints).require(Hints)


def test_a_missing_special_token_is_named() -> None:
    none = np.zeros(3, dtype=bool)
    vocab = Vocab(3, {"[MASK]": 1}, np.array([], dtype=np.int64), none, none)
    assert vocab.id("[MASK]") == 1
    with pytest.raises(UserError, match=r"no special token \[MASKS\]; did you mean '\[MASK\]'?"):
        vocab.id("[MASKS]")


@pytest.mark.parametrize(
    ("special", "unknown"),
    [({"[UNK]": 1, "</s>": 2}, 1), ({"</s>": 2}, -1), ({"[UNK]": 0, "<s>": 0, "</s>": 0}, -1)],
)
def test_an_end_of_text_that_is_also_named_unknown_is_not_unknown_text(
    special: dict[str, int], unknown: int
) -> None:
    ids = np.zeros(0, np.int64)
    assert Vocab(9, special, ids, np.zeros(9, bool), np.ones(9, bool)).unknown == unknown
