"""Parallel text: two sides read together, from files side by side or from two fields."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import parquet

from foreword.data.holdout import SplitFiles
from foreword.data.read_documents import ReadCounts, ReadSettings, find_files, read_documents
from foreword.data.write_shards import PrepareSettings, prepare
from foreword.errors import UserError
from foreword.text.tokenizers.char import Char

BOTH = ReadSettings(field="en", target="de")
PAIRS = [("A dog .", "Ein Hund ."), ("Two. Three.", "Zwei. Drei."), ("é", "ü")]


def write(folder: Path, english: str, german: str, name: str = "train") -> None:
    (folder / f"{name}.en").write_text(english, encoding="utf-8")
    (folder / f"{name}.de.gz").write_bytes(gzip.compress(german.encode()))


def sides(pairs: list[tuple[str, str]]) -> tuple[str, str]:
    one, two = ("".join(f"{pair[n]}\n" for pair in pairs) for n in (0, 1))
    return one, two


def fails(folder: Path, settings: ReadSettings = BOTH) -> str:
    with pytest.raises(UserError) as caught:
        list(read_documents([folder], settings))
    return str(caught.value)


@pytest.mark.parametrize("given", ["train.en", "train.de.gz", "train.*", ""])
def test_two_files_are_read_side_by_side(tmp_path: Path, given: str) -> None:
    write(tmp_path, *sides(PAIRS))
    (tmp_path / "README.txt").write_text("not parallel")
    counts = ReadCounts()
    documents = list(read_documents([tmp_path / given if given else tmp_path], BOTH, counts))
    assert [document.text for document in documents] == ["\n".join(pair) for pair in PAIRS]
    assert documents[1].source == f"{tmp_path / 'train.en'}:2"
    assert counts.documents == 3
    files = find_files([tmp_path / "train.en"], None, BOTH)
    assert counts.bytes_read == sum(file.stat().st_size for file in files)
    assert [file.name for file in files] == ["train.de.gz", "train.en"]


def test_pairs_are_read_from_two_fields(tmp_path: Path) -> None:
    records = [{"en": one, "de": two} for one, two in PAIRS]
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(r) + "\n" for r in records))
    parquet.write_table(pa.Table.from_pylist(records), tmp_path / "b.parquet")
    pairs = [document.text for document in read_documents([tmp_path], BOTH)]
    assert pairs == 2 * ["\n".join(pair) for pair in PAIRS]


def test_pairs_with_an_empty_side_are_counted(tmp_path: Path) -> None:
    write(tmp_path, "one\n\n \nfour\tand more\n", "eins\nzwei\n\nvier\n")
    counts = ReadCounts()
    pairs = [document.text for document in read_documents([tmp_path], BOTH, counts)]
    assert pairs == ["one\neins", "four and more\nvier"]
    assert (counts.empty_sides, counts.empty_documents) == (1, 1)


@pytest.mark.parametrize(
    ("english", "german", "longer"),
    [("one\ntwo\nthree\n", "eins\nzwei\n", "train.en"), ("one\n", "eins\nzwei", "train.de.gz")],
)
def test_sides_of_different_lengths_are_refused(
    tmp_path: Path, english: str, german: str, longer: str
) -> None:
    write(tmp_path, english, german)
    number = min(english.count("\n"), 2) + 1
    message = fails(tmp_path)
    assert message.startswith(f"{tmp_path / longer}:{number}: there is no line {number} in")
    assert "must have the same number of lines" in message


def test_text_that_is_not_parallel_is_refused(tmp_path: Path) -> None:
    (tmp_path / "train.en").write_text("one\n")
    assert "there is no train.de beside it" in fails(tmp_path)
    (tmp_path / "train.en").rename(tmp_path / "a.txt")
    assert "there are readers for .de, .en, .jsonl" in fails(tmp_path)
    (tmp_path / "a.txt").rename(tmp_path / "a.jsonl")
    (tmp_path / "a.jsonl").write_text('{"en": "one"}\n')
    assert "name the one that holds the text with --target" in fails(tmp_path)
    with pytest.raises(ValueError, match="target: must differ from field"):
        ReadSettings(field="en", target="en")


def test_an_invalid_byte_of_either_side_is_named(tmp_path: Path) -> None:
    write(tmp_path, "one\ntwo\n", "eins\nzwei\n")
    (tmp_path / "train.de").write_bytes(b"eins\nzw\xffi\n")
    (tmp_path / "train.de.gz").unlink()
    assert f"{tmp_path / 'train.de'}:2: byte 7 (0xff) is not UTF-8" in fails(tmp_path)


def test_a_side_is_a_sequence_and_a_pair_stays_whole(tmp_path: Path) -> None:
    write(tmp_path, *sides(PAIRS))
    tokenizer = Char().train(text for pair in PAIRS for text in pair)
    prepared = prepare(
        SplitFiles.find([tmp_path], BOTH),
        tokenizer,
        tmp_path / "out",
        PrepareSettings(heldout=1e-9),
    )
    assert (prepared.counts["train"].documents, prepared.counts["heldout"].documents) == (2, 1)
    for shards in (prepared.train, prepared.heldout):
        starts = shards.sequence_starts
        texts = [
            tokenizer.decode(shards.tokens[starts[n] : starts[n + 1]])
            for n in range(len(shards.sequence_lengths))
        ]
        assert set(zip(texts[::2], texts[1::2], strict=True)) <= set(PAIRS)
    assert not prepared.reused
    files = SplitFiles.find([tmp_path / "train.de.gz"], BOTH)
    assert prepare(files, tokenizer, tmp_path / "out", PrepareSettings(heldout=1e-9)).reused
