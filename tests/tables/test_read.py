from __future__ import annotations

import gzip
import json
import random
import tracemalloc
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from foreword.errors import UserError
from foreword.tables.columns import Columns
from foreword.tables.read import read_table
from foreword.tables.table import labelled

ROWS = [
    ('he said "no", twice', "0"),
    ("a tab-free\ttext".replace("\t", " "), "1"),
    ("ünïcode 語", "1"),
]


def write(path: Path, kind: str, rows: list[tuple[str, str]]) -> Path:
    names = ("text", "label")
    if kind == "tsv":
        path.write_text(
            "\n".join("\t".join(row) for row in [names, *rows]) + "\n", encoding="utf-8"
        )
    elif kind == "csv":
        quoted = [[f'"{cell.replace(chr(34), chr(34) * 2)}"' for cell in row] for row in rows]
        path.write_text("\r\n".join(map(",".join, [names, *quoted])), encoding="utf-8")
    elif kind == "jsonl":
        dumped = [json.dumps({"label": int(label), "text": text}) for text, label in rows]
        path.write_text("\n".join(dumped), encoding="utf-8")
    else:
        texts, labels = zip(*rows, strict=True)
        pq.write_table(pa.table({"text": texts, "label": [int(label) for label in labels]}), path)
    return path


@pytest.mark.parametrize("kind", ["tsv", "csv", "jsonl", "parquet"])
@pytest.mark.parametrize("packed", ["", ".gz", ".zst"])
def test_every_format_gives_the_same_examples(tmp_path: Path, kind: str, packed: str) -> None:
    path = write(tmp_path / f"train.{kind}", kind, ROWS)
    if packed == ".gz":
        path.with_name(path.name + ".gz").write_bytes(gzip.compress(path.read_bytes()))
    elif packed == ".zst":
        data = pa.compress(path.read_bytes(), "zstd", asbytes=True)
        path.with_name(path.name + ".zst").write_bytes(data)
    examples, skipped = labelled(read_table(f"{path}{packed}"), Columns())
    assert [(e.text, e.label) for e in examples] == ROWS
    assert skipped == 0
    first = {"parquet": 1, "jsonl": 1}.get(kind, 2)
    assert examples[0].source == f"{path}{packed}:{first}"


def test_a_compressed_parquet_table_is_not_held_in_memory(tmp_path: Path) -> None:
    plain, path = tmp_path / "a.parquet", tmp_path / "a.parquet.gz"
    texts = [random.Random(n).randbytes(500).hex() for n in range(12_000)]
    pq.write_table(pa.table({"text": texts}), plain, compression="none", use_dictionary=False)
    path.write_bytes(gzip.compress(plain.read_bytes(), 1))
    tracemalloc.start()
    first = next(iter(read_table(path).rows()))[1]["text"]
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert first == texts[0]
    assert most < plain.stat().st_size / 2


def test_csv_keeps_line_breaks_and_counts_lines_after_them(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text('text,label\n"two\nlines, one cell",x\nnext,y\n', encoding="utf-8")
    examples, _ = labelled(read_table(path), Columns())
    assert examples[0].text == "two\nlines, one cell"
    assert [e.source.rpartition(":")[2] for e in examples] == ["2", "4"]


def test_tsv_has_no_quoting_and_may_have_no_header(tmp_path: Path) -> None:
    path = tmp_path / "cola.tsv"
    path.write_text('gj04\t1\t\t"Quoted\ngj04\t0\t*\tBill "x" it\r\n', encoding="utf-8")
    table = read_table(path, ["source", "label", "mark", "text"])
    examples, _ = labelled(table, Columns())
    assert [(e.text, e.label) for e in examples] == [('"Quoted', "1"), ('Bill "x" it', "0")]


def test_columns_without_a_header_are_numbered(tmp_path: Path) -> None:
    path = tmp_path / "cola.tsv"
    path.write_text("gj04\t1\t\tThe more, the merrier.\ngj04\t0\t*\tBill it\n", encoding="utf-8")
    columns = Columns("3", "1")
    assert columns.are_numbers
    table = read_table(path, are_numbers=True)
    examples, skipped = labelled(table, columns)
    assert [e[:2] for e in examples] == [("The more, the merrier.", "1"), ("Bill it", "0")]
    assert examples[0].source == f"{path}:1"
    assert skipped == 0
    with pytest.raises(UserError, match="no column '4'; its columns: 0, 1, 2, 3"):
        labelled(table, Columns("4", "1"))


def test_a_first_row_of_column_numbers_is_a_header(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("0,1\nfine,good\n", encoding="utf-8")
    examples, _ = labelled(read_table(path, are_numbers=True), Columns("0", "1"))
    assert [e[:2] for e in examples] == [("fine", "good")]
    path.write_text("", encoding="utf-8")
    with pytest.raises(UserError, match="is empty"):
        read_table(path, are_numbers=True)


def test_names_mixed_with_numbers_are_refused() -> None:
    assert not Columns().are_numbers
    assert Columns("2", "3", "4").are_numbers
    with pytest.raises(UserError, match="'3', 'label': all by name, or all by number"):
        _ = Columns("3").are_numbers


def test_pairs_are_read_from_named_columns(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text('{"q": "who", "a": "me", "same": true, "n": 1}', encoding="utf-8")
    examples, _ = labelled(read_table(path), Columns("q", "same", "a"))
    assert examples[0][:3] == ("who", "true", "me")


def test_a_byte_order_mark_is_not_part_of_the_first_column(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_bytes(b"\xef\xbb\xbftext,label\na,b\n")
    assert read_table(path).columns == ("text", "label")


def test_rows_without_text_or_label_are_counted(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    lines = ['{"text": "a", "label": 1}', '{"text": null, "label": 1}', '{"text": "b"}', ""]
    path.write_text("\n".join(lines), encoding="utf-8")
    examples, skipped = labelled(read_table(path), Columns())
    assert len(examples) == 1
    assert skipped == 2


def test_a_missing_column_is_refused_with_the_names_of_others(tmp_path: Path) -> None:
    path = write(tmp_path / "a.tsv", "tsv", ROWS)
    with pytest.raises(
        UserError,
        match=r"no column 'lable'; its columns: text, label; .* --label.*file has no header$",
    ):
        labelled(read_table(path), Columns(label="lable"))


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        (
            "a.csv",
            b'text,label\nx,1\n"y,2\n',
            r"a.csv:3: a quote begins in this row and never ends",
        ),
        ("a.csv", b"", "is empty"),
        ("a.csv", b"x,x\n1,2\n", "two columns are named 'x'"),
        ("a.tsv", b"text\tlabel\n\xff\t1\n", r"a.tsv:2: byte 11 \(0xff\) is not UTF-8"),
        ("a.parquet", b"PAR1 no", "not a Parquet file"),
        ("a.csv.gz", b"no gzip", "not readable as gzip"),
        ("a.txt", b"x", r"tables are \.tsv, \.csv"),
        ("a.tsv", b"text\tlabel\n\t1\n", "no row has both"),
    ],
)
def test_broken_files_are_refused_with_their_line(
    tmp_path: Path, name: str, content: bytes, message: str
) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(UserError, match=message) as caught:
        labelled(read_table(path), Columns())
    assert "\n" not in str(caught.value)


def test_unknown_formats_and_missing_files_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"gone.tsv: No such file"):
        read_table(tmp_path / "gone.tsv")
    path = write(tmp_path / "a.jsonl", "jsonl", ROWS)
    with pytest.raises(UserError, match="--columns is for files without a header"):
        read_table(path, ["a", "b"])
