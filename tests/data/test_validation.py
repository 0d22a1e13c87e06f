"""The validation part: drawn from the training documents, whole where they are short."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from foreword.data.holdout import SplitFiles
from foreword.data.prepared_text import PreparedText
from foreword.data.shards import Shards
from foreword.data.validation import split_validation
from foreword.data.write_shards import prepare
from foreword.errors import UserError
from foreword.text.tokenizers.char import Char

TEXTS = [f"The {'xyz'[n % 3]}{n} is here." for n in range(200)]


def shards_of(folder: Path, texts: list[str]) -> PreparedText:
    """Prepare texts, each a document, in sentences; none is held out."""
    folder.mkdir(exist_ok=True)
    file, apart = folder / "text.jsonl", folder / "apart.txt"
    file.write_text("".join(json.dumps({"text": t}) + "\n" for t in texts), encoding="utf-8")
    apart.write_text("apart from all\n", encoding="utf-8")
    tokenizer = Char().train([*TEXTS, *texts])
    return prepare(SplitFiles.find([file], heldout=[apart]), tokenizer, folder / "shards")


def documents(shards: Shards) -> list[tuple[int, ...]]:
    return [tuple(shards.tokens[a:b].tolist()) for a, b in pairwise(shards.document_starts)]


def test_whole_documents_are_drawn_and_no_longer_trained_on(tmp_path: Path) -> None:
    prepared = shards_of(tmp_path, TEXTS)
    split = split_validation(prepared, tmp_path / "validation")
    train, held = documents(split.train), documents(split.heldout)
    assert sorted([*train, *held]) == sorted(documents(prepared.train))
    assert not set(train) & set(held)
    assert 0.05 <= split.heldout.tokens_total / prepared.train.tokens_total < 0.07
    assert split.counts["heldout"].documents == len(held)
    assert PreparedText.load(tmp_path / "validation").fingerprint != prepared.fingerprint


def test_it_is_made_once_and_again_for_other_text(tmp_path: Path) -> None:
    prepared = shards_of(tmp_path, TEXTS)
    first = split_validation(prepared, tmp_path / "validation")
    assert not first.reused and split_validation(prepared, tmp_path / "validation").reused
    other = shards_of(tmp_path / "other", TEXTS[:150])
    again = split_validation(other, tmp_path / "validation")
    assert not again.reused and again.fingerprint != first.fingerprint


def test_copies_land_on_one_side(tmp_path: Path) -> None:
    prepared = shards_of(tmp_path, TEXTS[:40] * 5)
    split = split_validation(prepared, tmp_path / "validation")
    assert not set(documents(split.train)) & set(documents(split.heldout))


def test_of_one_long_document_the_last_sentences_are_drawn(tmp_path: Path) -> None:
    prepared = shards_of(tmp_path, [" ".join(TEXTS)])
    (whole,) = documents(prepared.train)
    split = split_validation(prepared, tmp_path / "validation")
    (train,), (held,) = documents(split.train), documents(split.heldout)
    assert train + held == whole
    assert len(held) == pytest.approx(0.05 * len(whole), rel=0.2)
    assert np.array_equal(
        np.concatenate([split.train.sequence_lengths, split.heldout.sequence_lengths]),
        prepared.train.sequence_lengths,
    )


def test_a_single_sentence_is_refused(tmp_path: Path) -> None:
    prepared = shards_of(tmp_path, ["onesentence" * 20])
    with pytest.raises(UserError, match="too little text for a validation part"):
        split_validation(prepared, tmp_path / "validation")
