"""Rows that are wrong, one mechanism for all formats: counted and named up to a share."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest

from foreword.errors import UserError
from foreword.tables.columns import LONGEST, Columns
from foreword.tables.read import read_table
from foreword.tables.squad import located
from foreword.tables.table import BadRows, chosen_columns, labelled
from foreword.tuning.tasks.prefer import Prefer
from foreword.tuning.tasks.regress import Regress
from foreword.tuning.tasks.span import Span
from foreword.tuning.tasks.tag import Tag

GOOD = {"text": "a film", "label": "1"}
QUESTION = {"context": "a warm day", "question": "what?", "answers": []}
QUESTION["answers"] = [{"text": "warm", "answer_start": 2}]
OFF = [{"text": "cold", "answer_start": 2}]
PAIR = {"prompt": "a?", "chosen": "b", "rejected": "c"}


def tsv(rows: list[Any]) -> str:
    return "text\tlabel\n" + "".join(f"{row}\n" for row in rows)


def json_lines(rows: list[Any]) -> str:
    return "".join((row if isinstance(row, str) else json.dumps(row)) + "\n" for row in rows)


CASES: list[tuple[str, Any, Any, Any, Callable[[list[Any]], str], str]] = [
    ("a.tsv", None, "a\t1", "a\t1\t2", tsv, "3 columns, and 2 columns named"),
    ("a.csv", None, "a,1", "a", lambda rows: tsv(rows).replace("\t", ","), "1 column, and 2"),
    ("a.jsonl", None, GOOD, '{"text": "a film', json_lines, "not JSON"),
    ("a.jsonl", None, GOOD, "[1]", json_lines, "expected an object"),
    ("a.json", None, GOOD, 3, json.dumps, "expected an object"),
    ("a.jsonl", None, GOOD, {"text": {}, "label": "1"}, json_lines, "expected text or a number"),
    ("a.tsv", Regress(), "a\t1.5", "a\tmuch", tsv, "'much' is not a number"),
    ("a.jsonl", Span(), QUESTION, QUESTION | {"answers": OFF, "id": "q7"}, json_lines, r"\(q7\)"),
    ("a.jsonl", Span(), QUESTION, QUESTION | {"question": ""}, json_lines, "question is empty"),
    ("a.jsonl", Prefer(), PAIR, PAIR | {"chosen": "c"}, json_lines, "answer are the same"),
    ("a.jsonl", Prefer(), PAIR, PAIR | {"chosen": " "}, json_lines, "'chosen' is missing or empty"),
    ("a.conll", Tag(), "a O\n", "a O\nb\n", "\n".join, "expected 2 columns"),
    ("a.conllu", Tag(), "1\ta" + "\tx" * 8 + "\n", "2\ta" + "\tx" * 8 + "\n", "\n".join, "word 1"),
]


@pytest.mark.parametrize(("name", "task", "good", "bad", "write", "message"), CASES)
def test_a_row_that_is_wrong_is_left_out_and_named_up_to_a_share(
    tmp_path: Path,
    name: str,
    task: Any,
    good: Any,
    bad: Any,
    write: Callable[[list[Any]], str],
    message: str,
) -> None:
    file = tmp_path / name
    file.write_text(write([good] * 60 + [bad] + [good] * 60), encoding="utf-8")
    table = read_table(file, formats={} if task is None else task.reader.formats)
    usual = [Columns()] if task is None else task.reader.columns
    columns = chosen_columns(table, usual, {})
    read = {} if task is None else {"read": task.reader.read}
    judge = BadRows(0.01)
    examples, skipped = labelled(table, columns, bad=judge, **read)
    assert (len(examples), skipped, len(judge.sources)) == (120, 0, 1)
    assert judge.notes[0].startswith(f"warning: {file}: 1 of 121 rows cannot be used")
    with pytest.raises(UserError, match=f"{name}:\\d+.*{message}"):
        labelled(table, columns, **read)  # by default none may be wrong
    with pytest.raises(UserError, match=r"wrong: 1 of 121; --bad-rows 0.009 leaves them out"):
        labelled(table, columns, bad=BadRows(0.005), **read)
    assert len(labelled(table, columns, bad=BadRows(0.009), **read)[0]) == 120


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("mark", ["", "\u2028", "\u2029", "\x85", "\x0b", "\x0c"])
def test_lines_end_at_line_feeds_and_carriage_returns_alone(
    tmp_path: Path, end: str, mark: str
) -> None:
    text = f"b{mark}c"
    word = "\tx" * 8
    for name, lines in {
        "a.tsv": ["text\tlabel", "a\t1", f"{text}\t1", "d\t1"],
        "a.csv": ["text,label", "a,1", f"{text},1", "d,1"],
        "a.jsonl": [json.dumps({"text": t, "label": 1}, ensure_ascii=False) for t in "a" + "d"],
        "a.conll": ["a O", "", f"{text}\tO".replace("\t", " "), "", "d O"],
        "a.conllu": [f"1\ta{word}", "", f"1\t{text}{word}", "", f"1\td{word}"],
    }.items():
        if name == "a.jsonl" and mark >= " ":  # JSON has no control characters
            row = {"text": text, "label": 1}
            lines.insert(1, json.dumps(row, ensure_ascii=False))
        if name == "a.conll" and mark:  # which splits at white space: tabs keep it
            lines = [line.replace(" ", "\t") for line in lines]
        file = tmp_path / name
        file.write_bytes(("\ufeff" + end.join(lines)).encode())
        table = read_table(file, formats=Tag.reader.formats if "conll" in name else {})
        rows = [row for _, row in table.sound_rows()]
        values = [
            value[0] if isinstance(value := next(iter(row.values())), list) else value
            for row in rows
        ]
        if name.startswith("a.conllu"):
            values = [row["form"][0] for row in rows]
        without = name == "a.jsonl" and len(lines) == 2
        assert values == (["a", "d"] if without else ["a", text, "d"]), name


def test_every_string_stays_as_it_is_written(tmp_path: Path) -> None:
    labels = ["NA", "EU", "null", "None", "nan", "01", "1", "1.0", "true", "TRUE", "1e3", "0x1"]
    texts = ["null", "NA", "01", *map(str, range(len(labels) - 3))]
    rows = list(zip(texts, labels, strict=True))
    (tmp_path / "a.tsv").write_text(tsv([f"{t}\t{n}" for t, n in rows]), encoding="utf-8")
    objects = [{"text": t, "label": n} for t, n in rows]
    (tmp_path / "a.jsonl").write_text(json_lines(objects), encoding="utf-8")
    (tmp_path / "a.json").write_text(json.dumps(objects), encoding="utf-8")
    for name in ("a.tsv", "a.jsonl", "a.json"):
        examples, skipped = labelled(read_table(tmp_path / name), Columns())
        assert ([(e.text, e.label) for e in examples], skipped) == (rows, 0), name


def test_lists_of_objects_are_tables_with_the_names_of_nested_values(tmp_path: Path) -> None:
    rows = [{"text": f"t{n}", "labels": {"label": n % 2, "real": {"x": n / 2}}} for n in range(4)]
    for name, content in {
        "a.json": json.dumps(rows),
        "wrapped.json": json.dumps({"version": 1, "data": rows}),
        "lines.json": json_lines(rows),
        "a.jsonl": json_lines(rows),
    }.items():
        (tmp_path / name).write_text(content, encoding="utf-8")
        table = read_table(tmp_path / name)
        for column, expected in (("labels.label", "0101"), ("labels.real.x", "00.511.5")):
            examples, _ = labelled(table, chosen_columns(table, [Columns()], {"label": column}))
            assert "".join(e.label for e in examples) == expected
        with pytest.raises(
            UserError, match=r"no column 'labels\.lable'; its columns: .*labels\.label"
        ):
            labelled(table, Columns(label="labels.lable"))
    (tmp_path / "a.json").write_text('{"text": {"0": "a"}}', encoding="utf-8")
    with pytest.raises(UserError, match=r"not a list of objects \(for --task span"):
        read_table(tmp_path / "a.json")


@pytest.mark.parametrize("name", ["a.csv.gz", "a.jsonl.gz", "a.conll.gz", "a.tsv.gz"])
def test_a_cell_that_no_model_could_read_is_refused(tmp_path: Path, name: str) -> None:
    long = "x" * (LONGEST + 1)
    rows = {"a.tsv.gz": f"text\tlabel\n{long}\t1\n", "a.csv.gz": f"text,label\n{long},1\n"}
    text = rows.get(name, json.dumps({"text": long, "label": 1}))
    (tmp_path / name).write_bytes(gzip.compress(text.encode(), 1))
    with pytest.raises(UserError, match=f"{name}:.: a cell of more than 16,777,216 characters"):
        labelled(read_table(tmp_path / name, formats={".conll": ".conll"}), Columns())


@pytest.mark.parametrize(
    ("context", "answer", "start", "expected"),
    [
        ("Ann sang in Rome.", "Ann", 0, ("Ann", 0)),
        ("Ann sang in Rome.", "Rome", 12, ("Rome", 12)),
        ("Ann sang in Rome.", "sang", 5, ("sang", 4)),  # off by one
        ("Ann sang in Rome.", "Rome ", 12, ("Rome", 12)),  # a space too many
        ("Ann  sang in Rome.", "Ann sang", 0, ("Ann  sang", 0)),  # double space
        ("Ann sang in Rome.", "an", 5, ("an", 5)),  # inside a word
        ("東京は日本の首都です。", "日本", 4, ("日本", 3)),
        ("Ann sang in Rome." + " x" * 30 + " Bob", "Bob", 38, None),  # off by 40
        ("an an an", "an", 1, ("an", 0)),
        ("a b a", "a", 2, None),  # two places as near
        ("Ann", "Bob", 0, None),
        ("Ann", " ", 0, None),
        ("Ann", "Ann", -3, ("Ann", 0)),
    ],
)
def test_answers_a_few_characters_beside_their_offset_are_found(
    context: str, answer: str, start: int, expected: tuple[str, int] | None
) -> None:
    assert located(context, answer, start) == expected


def test_answers_that_are_put_right_are_counted_and_a_wrong_one_is_never_first(
    tmp_path: Path,
) -> None:
    answers = [OFF[0], {"text": "warm", "answer_start": 3}]
    file = tmp_path / "a.jsonl"
    file.write_text(json_lines([QUESTION, QUESTION | {"answers": answers}]), encoding="utf-8")
    judge = BadRows(0.01)
    examples, _ = labelled(read_table(file), Span.reader.columns[0], Span().reader.read, bad=judge)
    assert json.loads(examples[1].label) == [["warm", 2], ["cold", -1]]
    assert judge.notes == [f"warning: {file}: 1 of 2 rows were put right: {file}:2"]


def test_spaces_are_words_and_headings_of_sentences_are_comments(tmp_path: Path) -> None:
    file = tmp_path / "klue.tsv"
    file.write_text("## id-1\tO Tom <x:PS>\nT\tB-PS\n \tO\n#\tO\n\n## id-2\ta\n#\tO\n", "utf-8")
    table = read_table(file, formats=Tag.reader.formats)
    rows = [row for _, row in table.sound_rows()]
    assert rows == [{"0": ["T", " ", "#"], "1": ["B-PS", "O", "O"]}, {"0": ["#"], "1": ["O"]}]
    examples, _ = labelled(table, Columns("0", "1"), Tag().reader.read)
    assert examples[0].text == "T\n \n#"


def test_decimal_commas_are_read_where_no_point_is(tmp_path: Path) -> None:
    file, task = tmp_path / "a.tsv", Regress()
    for labels, message in (
        (["0.5", "1.25", "3,5", "-2"], r":4: '3,5' has a comma, and '0.5' in .*:2 a point"),
        (["1,2,3", "4"], "'1,2,3' is not a number"),
    ):
        file.write_text(tsv([f"a\t{label}" for label in labels]), encoding="utf-8")
        with pytest.raises(UserError, match=message):
            task.targets(labelled(read_table(file), Columns(), task.reader.read)[0], ())
    file.write_text(tsv(["a\t3,5", "a\t-1,25", "a\t2"]), encoding="utf-8")
    examples, _ = labelled(read_table(file), Columns(), task.reader.read)
    assert task.targets(examples, ()).tolist() == [3.5, -1.25, 2.0]
    notes = task.judge.notes(examples, examples, cast("Any", None))
    assert notes == ["labels with a comma are decimals: '3,5' is 3.5"]
