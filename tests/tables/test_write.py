"""What is written can be read by other programs."""

from __future__ import annotations

import csv
import json
import math
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
import pytest

from foreword.tables.read import read_table
from foreword.tables.write import SourcedRow, writing_rows

VALUES: dict[str, Any] = {
    "when": datetime(2020, 1, 1, 12), "day": date(2020, 1, 2), "price": Decimal("1.50"),
    "key": b"\x01\xff", "x": 0.5, "n": 7, "ok": True, "items": [None, date(2020, 1, 2)],
}  # fmt: skip
NOT_FINITE = {"low": -math.inf, "high": math.inf, "none": math.nan}


def written(folder: Path, ending: str, values: dict[str, Any]) -> Path:
    """A file with two rows of the values, as a Parquet file gives them."""
    source, out = folder / "in.parquet", folder / f"out.{ending}"
    pq.write_table(pa.table({name: [value] * 2 for name, value in values.items()}), source)
    table = read_table(source)
    with writing_rows(out, table.types) as write:
        write([SourcedRow("a row", row) for _, row in table.rows()])
    return out


@pytest.mark.parametrize("ending", ["csv", "tsv"])
def test_cells_are_plain_text_that_other_readers_give_their_types(
    tmp_path: Path, ending: str
) -> None:
    out = written(tmp_path, ending, VALUES)
    delimiter = "," if ending == "csv" else "\t"
    quoting = csv.QUOTE_MINIMAL if ending == "csv" else csv.QUOTE_NONE
    with out.open(newline="", encoding="utf-8") as file:
        row = next(csv.DictReader(file, delimiter=delimiter, quoting=quoting))
    assert row == {
        "when": "2020-01-01 12:00:00", "day": "2020-01-02", "price": "1.50", "key": "01ff",
        "x": "0.5", "n": "7", "ok": "true", "items": '[null, "2020-01-02"]',
    }  # fmt: skip
    quotes = False if ending == "tsv" else '"'
    parsing = pa_csv.ParseOptions(delimiter=delimiter, quote_char=quotes)
    read = pa_csv.read_csv(out, parse_options=parsing).to_pylist()[0]
    assert read["when"] == VALUES["when"] and read["day"] == VALUES["day"]
    assert (read["price"], read["x"], read["n"], read["ok"]) == (1.5, 0.5, 7, True)


def test_numbers_that_are_not_finite_are_read_back_from_csv(tmp_path: Path) -> None:
    out = written(tmp_path, "csv", NOT_FINITE)
    assert out.read_text(encoding="utf-8").splitlines()[1] == "-inf,inf,"
    read = pa_csv.read_csv(out).to_pylist()[0]
    assert read == {"low": -math.inf, "high": math.inf, "none": None}


def test_json_lines_have_null_for_numbers_that_json_lacks(tmp_path: Path) -> None:
    row = json.loads(written(tmp_path, "jsonl", VALUES | NOT_FINITE).read_text().splitlines()[0])
    assert [row["when"], row["price"], row["key"]] == ["2020-01-01 12:00:00", "1.50", "01ff"]
    assert [row[name] for name in NOT_FINITE] == [None] * 3


def test_parquet_keeps_every_type(tmp_path: Path) -> None:
    values = VALUES | NOT_FINITE
    read = pq.read_table(written(tmp_path, "parquet", values)).to_pylist()[0]
    assert math.isnan(read.pop("none"))
    assert read == {name: value for name, value in values.items() if name != "none"}
