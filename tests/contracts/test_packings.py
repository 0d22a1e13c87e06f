"""The contract of every packing, checked for every file in `data/packing/`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args, get_type_hints

import numpy as np
import pytest

from foreword.data.packing._contract import Packing
from foreword.data.packing.documents import Documents
from foreword.data.packing.stream import Stream
from foreword.data.rng import RowRng
from foreword.layouts.decoder import Decoder
from foreword.objectives.causal import Causal
from foreword.settings import kinds
from foreword.testing.packings import DOCUMENTS, PACKING_CHECKS, corpus, vocab
from tests.data.packing import corpora


def packings() -> dict[str, Any]:
    """Return every packing, in every way in which it can be shuffled."""
    found: dict[str, Any] = {}
    for kind in kinds.names("data/packing"):
        packing = kinds.load("data/packing", kind)()
        ways = get_args(get_type_hints(type(packing)).get("shuffle"))
        found |= {f"{kind}-{way}": replace(packing, shuffle=way) for way in ways} or {kind: packing}
    return found


PACKINGS = packings()
each_packing = pytest.mark.parametrize("packing", PACKINGS.values(), ids=PACKINGS)


@each_packing
@pytest.mark.parametrize("check", PACKING_CHECKS, ids=lambda check: check.__name__)
def test_every_packing_keeps_the_contract(
    check: Callable[[Packing], None], packing: Packing
) -> None:
    check(packing)


@each_packing
def test_rows_have_other_neighbours_in_each_epoch_unless_only_they_are_shuffled(
    tmp_path: Path, packing: Any
) -> None:
    packed = replace(packing, length=32).open(corpus(tmp_path, packing), vocab(), 1, 4)
    numbers = np.arange(packed.rows_per_epoch)
    first, *later = (
        set(map(tuple, packed.rows(epoch * len(numbers) + numbers).ids.tolist()))
        for epoch in range(3)
    )
    for rows in later:
        if getattr(packing, "shuffle", "documents") == "documents":
            assert len(rows & first) < len(first) / 2
        elif packing.shuffle == "rows":
            assert rows == first


@pytest.mark.parametrize("batch", [1, 3, 4])
@pytest.mark.parametrize(
    "packing",
    [Documents(16), Documents(16, "<s>"), Documents(16, document_mask=False), Stream(16)],
    ids=["documents", "begun", "joined", "stream"],
)
def test_text_that_is_read_once_is_predicted_to_its_end(
    tmp_path: Path, packing: Any, batch: int
) -> None:
    words = corpora.vocab()
    packed = packing.open(corpora.shards(tmp_path, DOCUMENTS), words, 1, batch, once=True)
    rows = packed.rows(np.arange(packed.rows_per_epoch))
    example = Causal().corrupt(rows, RowRng(1, rows.numbers), words)
    actual = Decoder().arrange(example, words)
    targets = actual.targets[actual.weights > 0]
    lengths = [n for n in DOCUMENTS if n]
    text = np.arange(10, 10 + sum(DOCUMENTS))
    firsts = 10 + np.cumsum([0, *lengths[:-1]])  # of documents
    before = words.id(packing.bos) if getattr(packing, "bos", "") else None
    if getattr(packing, "document_mask", False):
        # The first token of a document has nothing before it, unless it is given something.
        expected = text if before else np.setdiff1d(text, firsts)
        ends = len(DOCUMENTS) if before else len(lengths)
    else:
        expected, ends = text[1:], len(DOCUMENTS)
    plain = targets[targets >= 10]
    assert sorted(plain.tolist()) == expected.tolist()
    assert (targets < 10).sum() == ends
    read = rows.ids[rows.documents >= 0]
    assert set(text.tolist()) <= set(read.tolist())
