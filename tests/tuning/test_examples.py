"""Examples in columns: the same as lists of objects, in less memory."""

from __future__ import annotations

import csv
import io
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

from foreword.errors import UserError
from foreword.tables.columns import Columns
from foreword.tables.examples import AT_ONCE, Labelled, LabelledTexts
from foreword.tables.files import csv_lines
from foreword.tables.read import read_table
from foreword.tables.reads_rows import ReadsLabelled
from foreword.tables.table import labelled
from foreword.tuning.encoded import EncodedTexts, Ragged, cut_count
from foreword.tuning.example_reader import ExampleReader, sources_of
from foreword.tuning.tasks._contract import EncodedExample
from foreword.tuning.tasks.classify import Classify

MANY = [
    Labelled(f"text {n} é", str(n % 3), None if n % 2 else "a pair", f"a.tsv:{n}")
    for n in range(2 * AT_ONCE + 5)
]


def test_labelled_texts_return_the_examples_they_were_made_of() -> None:
    texts = LabelledTexts.of(iter(MANY))
    assert list(texts) == MANY
    assert len(texts) == len(MANY)
    assert texts[-1] == MANY[-1]
    assert list(texts[3 : AT_ONCE + 9]) == MANY[3 : AT_ONCE + 9]
    assert list(texts[:-AT_ONCE]) == MANY[:-AT_ONCE]
    assert list(texts[::700]) == MANY[::700]
    assert LabelledTexts.of(texts) is texts
    assert not LabelledTexts.of([])
    with pytest.raises(IndexError):
        texts[len(MANY)]


def test_dictionaries_are_examples_as_the_rows_of_a_table_are() -> None:
    rows = [{"review": "a", "stars": 1, "id": 7}, {"review": "b", "stars": 0}]
    reader = ExampleReader(Classify(), ReadsLabelled(text="review", label="stars"))
    given: list[Any] = [rows, iter(rows), pa.Table.from_pylist(rows)]
    found = [reader.read_part(sources_of(one, "train", Classify())).together for one in given]
    assert [[(e.text, e.label) for e in part] for part in found] == [[("a", "1"), ("b", "0")]] * 3


def test_a_lone_surrogate_is_refused_with_its_source() -> None:
    examples = [*MANY[:3], Labelled("a \ud800", "x", None, "b.jsonl:7")]
    with pytest.raises(UserError, match=r"b\.jsonl:7: half a character"):
        LabelledTexts.of(examples)


@pytest.mark.parametrize("largest", [200, 60_000, 2**31])
def test_ragged_arrays_use_the_smallest_dtype(largest: int) -> None:
    arrays = [np.arange(n % 5) for n in range(2 * AT_ONCE)]
    arrays[AT_ONCE + 3] = np.asarray([largest])
    ragged = Ragged.of(iter(arrays))
    assert len(ragged) == len(arrays)
    for n in (0, 4, AT_ONCE + 3, -1):
        assert ragged[n].tolist() == arrays[n].tolist()
        assert ragged[n].dtype == np.int64
    assert ragged.flat.itemsize == (1 if largest < 256 else 2 if largest < 2**16 else 4)


@pytest.mark.parametrize("has_answer", [True, False])
def test_encoded_texts_return_the_examples_they_were_made_of(has_answer: bool) -> None:
    examples = [
        EncodedExample(
            ids=np.arange(n % 7),
            segments=np.arange(n % 7) % 2,
            pooled_positions=np.arange(n % 3),
            was_cut=n % 5 == 0,
            is_pooled=True,
            answer=np.arange(n % 4) if has_answer else None,
        )
        for n in range(AT_ONCE + 9)
    ]
    texts = EncodedTexts.of(iter(examples))
    assert len(texts) == len(examples)
    for n in (0, 5, AT_ONCE, AT_ONCE + 8):
        actual, expected = vars(texts[n]), vars(examples[n])
        for name, value in expected.items():
            np.testing.assert_array_equal(actual[name], value)
    assert [e.was_cut for e in texts] == [e.was_cut for e in examples]
    assert len(EncodedTexts.of([])) == 0


def test_an_example_with_several_cut_inputs_is_counted_once() -> None:
    ids = np.arange(3)
    inputs = [
        (False, False),
        (True, False),
        (True, True),
        (False, False),
        (False, True),
        (True, True),
    ]
    encoded = [EncodedExample(ids, ids, ids, cut, is_further=more) for cut, more in inputs]
    assert cut_count(encoded) == 2


@pytest.mark.full
def test_a_table_takes_little_more_memory_than_its_text(tmp_path: Path) -> None:
    path = tmp_path / "a.tsv"
    line = "a sentence of a few words, as they are in tables of this kind\tgood\n"
    path.write_text("text\tlabel\n" + line * 20_000, encoding="utf-8")
    tracemalloc.start()
    before = pa.total_allocated_bytes()
    examples, _ = labelled(read_table(path), Columns())
    python, arrow = tracemalloc.get_traced_memory()[1], pa.total_allocated_bytes() - before
    tracemalloc.stop()
    assert len(examples) == 20_000
    assert python + arrow < 5 * path.stat().st_size  # as objects it took 13 times


@pytest.mark.parametrize(
    "text", ['a,b\n"c\r\nd",e\r\n\n\rf,g', "a\r\r\nb", "", "\n", 'x,"y\n"\n', "one"]
)
def test_csv_rows_equal_those_of_pythons_reader(text: str, tmp_path: Path) -> None:
    file = tmp_path / "a.csv"
    file.write_bytes(text.encode())
    expected = [row for row in csv.reader(io.StringIO(text, newline="")) if row]
    assert [cells for _, cells in csv_lines(file)] == expected


@pytest.mark.parametrize("column", ["text", "label"])
def test_parquet_that_is_not_utf8_names_its_row(tmp_path: Path, column: str) -> None:
    offsets = np.asarray([0, 2, 4], np.int32).tobytes()
    broken = pa.Array.from_buffers(
        pa.string(), 2, [None, pa.py_buffer(offsets), pa.py_buffer(b"abc\xff")]
    )
    table = pa.table({"text": ["a", "b"], "label": ["c", "d"]})
    table = table.set_column(table.column_names.index(column), column, broken)
    parquet.write_table(table, tmp_path / "a.parquet")
    message = rf"a\.parquet:2: column '{column}', byte 1 \(0xff\) is not UTF-8"
    with pytest.raises(UserError, match=message):
        labelled(read_table(tmp_path / "a.parquet"), Columns())
