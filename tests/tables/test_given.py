from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from foreword.errors import UserError
from foreword.tables.columns import Columns
from foreword.tables.given import items_of, table_of, texts_of, texts_or_table
from tests.frames import Dataset, Frame, Series

TEXTS = ["a", "b"]


@pytest.mark.parametrize(
    "given",
    [
        TEXTS,
        tuple(TEXTS),
        (text for text in TEXTS),
        Series(TEXTS),
        np.array(TEXTS),
        np.array(TEXTS, object),
        pa.array(TEXTS),
        pa.chunked_array([["a"], ["b"]]),
        pa.array(TEXTS).dictionary_encode(),
    ],
)
def test_every_kind_of_column_gives_its_texts(given: Any) -> None:
    assert table_of(given, "x") is None
    assert list(texts_of(given, "x")) == TEXTS


@pytest.mark.parametrize(
    "given",
    [
        Frame({"a": TEXTS, "n": [1, 2], "__index_level_0__": [5, 7]}),
        pa.table({"a": TEXTS, "n": [1, 2]}),
        pa.record_batch({"a": TEXTS, "n": [1, 2]}),
        pa.table({"a": TEXTS, "n": [1, 2]}).to_reader(),
    ],
)
def test_every_kind_of_table_gives_its_columns(given: Any) -> None:
    table = table_of(given, "x")
    assert table is not None
    assert table.to_pydict() == {"a": TEXTS, "n": [1, 2]}


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("ab", "x: expected a list of texts, got one text: 'ab'"),
        (b"ab", "x: expected a list of texts, got one text"),
        ({"a": TEXTS}, "x: expected a list of texts, got a dict; choose one of its columns"),
        (Frame({"a": TEXTS}), "x: expected a list of texts, got a Frame"),
        ({"a", "b"}, "x: a set has no order; make it a list"),
        (None, "x: expected a list of texts, got None"),
        (5, "x: expected a list of texts, got 5"),
        (np.array("a"), "x: expected a list of texts"),
    ],
)
def test_what_has_no_items_is_refused_at_once(given: Any, message: str) -> None:
    with pytest.raises(UserError, match=message):
        items_of(given, "x")


@pytest.mark.parametrize("item", [None, 1, float("nan"), ("a", "b"), b"a"])
def test_what_is_no_text_is_refused_with_its_number(item: Any) -> None:
    with pytest.raises(UserError, match=r"x\[1\]: expected a text, got"):
        list(texts_of(["a", item], "x"))


def test_tables_that_arrow_cannot_hold_are_refused() -> None:
    with pytest.raises(UserError, match="x: the table cannot be read: "):
        table_of(Frame({"a": ["a", 1]}), "x")
    twice = pa.Table.from_arrays([pa.array(TEXTS)] * 2, ["a", "a"])
    with pytest.raises(UserError, match="x: two columns are named 'a'"):
        table_of(twice, "x")


def test_dictionaries_are_rows_to_predict_for() -> None:
    given = [{"review": "a", "n": 1}, {"review": "b"}]
    table, columns = texts_or_table(iter(given), "x", Columns("review", "", ""))
    assert [row for _, row in table.rows()] == given
    assert (table.columns, columns.text) == (("review", "n"), "review")


def test_a_dataset_gives_the_names_of_its_labels() -> None:
    columns = {"text": ["a", "b", "c"], "label": [1, 0, -1], "tags": [[0, 1], [], [1]]}
    table = table_of(Dataset(columns, {"label": ["bad", "good"], "tags": ["x", "y"]}), "x")
    assert table is not None
    assert table.to_pydict() == {
        "text": ["a", "b", "c"],
        "label": ["good", "bad", None],
        "tags": [["x", "y"], [], ["y"]],
    }
    stream = type("IterableDataset", (), {"features": None, "with_format": None})()
    with pytest.raises(UserError, match="train: IterableDataset gives its rows once"):
        table_of(stream, "train")
