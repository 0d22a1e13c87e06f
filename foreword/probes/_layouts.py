"""The layouts of suites: tables, and those in which sets of questions are published."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from foreword.errors import UserError
from foreword.probes._files import file_of, files_of, require_whole_characters, rows_of
from foreword.probes._suite import ALL
from foreword.tables.choice import COLUMNS, choice_example, question_of
from foreword.tables.columns import text_of
from foreword.tables.files import IN_FOLDERS, read_json, text_lines
from foreword.tables.race import is_folder
from foreword.tables.read import read_table
from foreword.tables.table import chosen_columns

PRO, ANTI = "pro_stereotyped", "anti_stereotyped"
FORMS = ("intrasentence", "intersentence")


class Item(NamedTuple):
    """A row of a suite's files.

    Attributes:
        name: names the question in results.
        where: its place, for messages.
        subset: its subset if no column says another.
        row: its values by column.
    """

    name: str
    where: str
    subset: str
    row: Mapping[str, Any]


# Each of these takes the setting `files` and the columns that a table must have, and raises a
# UserError if there is no such file or it is not in the layout.


def table(source: str, required: Sequence[str]) -> Iterator[Item]:
    """Yield the rows of tables: a file, a folder or a pattern."""
    for file in files_of(source, "probe.files", IN_FOLDERS):
        for line, row in rows_of(read_table(file), required):
            yield Item(f"{file.name}:{line}", f"{file}:{line}", _stem(file), row)


def choice(source: str, required: Sequence[str]) -> Iterator[Item]:
    """Yield the questions of RACE, ARC, COPA and similar tables."""
    del required
    folder = Path(source).expanduser()
    files = [folder] if is_folder(folder) else files_of(source, "probe.files", IN_FOLDERS)
    for file in files:
        read = read_table(file)
        columns = chosen_columns(read, COLUMNS, {})
        for line, row in rows_of(read, [columns.text]):
            where = f"{file}:{line}"
            example = choice_example(row, columns, where)
            if example is None:
                raise UserError(f"{where}: no question in {columns.text}")
            if not example.label:
                raise UserError(f"{where}: no answer in {columns.label}")
            context, question, options = question_of(example)
            content = {"context": context, "question": question, "options": options}
            subset = _stem(file) if len(files) > 1 else ALL
            yield Item(
                f"{file.name}:{line}", where, subset, content | {"answer": int(example.label)}
            )


def lambada(source: str, required: Sequence[str]) -> Iterator[Item]:
    """Yield the passages of tables, each with its last word apart."""
    del required
    for item in table(source, ["text"]):
        text = text_of(item.row.get("text"), item.where).strip()
        before, _, word = text.rpartition(" ")
        if not before.strip():
            raise UserError(f"{item.where}: expected two words or more in text")
        yield item._replace(subset=ALL, row={"text": before, "word": word})


def winobias(source: str, required: Sequence[str]) -> Iterator[Item]:
    """Yield the pairs of lines of two files, without numbers and the brackets around people."""
    del required
    folder = Path(source).expanduser()
    if not folder.is_dir():
        raise UserError(f"probe.files: {folder}: no such folder")
    for file in sorted(folder.glob(f"{PRO}*")):
        name = file.name.removeprefix(PRO)
        other = folder / f"{ANTI}{name}"
        if not other.is_file():
            raise UserError(f"probe.files: {file} has no counterpart {other.name}")
        pro, anti = _sentences(file), _sentences(other)
        if len(pro) != len(anti):
            raise UserError(f"{other}: {len(anti):,} sentences, but {file.name} has {len(pro):,}")
        for n, pair in enumerate(zip(pro, anti, strict=True), 1):
            row = dict(zip((PRO, ANTI), pair, strict=True))
            yield Item(f"{file.name}:{n}", f"{file}:{n}", name.removeprefix("_"), row)


def stereoset(source: str, required: Sequence[str]) -> Iterator[Item]:
    """Yield StereoSet's items, with each sentence in the column of its label."""
    del required
    file = file_of(source, "probe.files")
    for form, number, item in _stereoset_items(file):
        where = f"{file}: {form} item {number}"
        require_whole_characters(item, where)
        try:
            row = {each["gold_label"]: str(each["sentence"]) for each in item["sentences"]}
            row |= {key: str(item[key]) for key in ("id", "bias_type", "target", "context")}
        except (KeyError, TypeError):
            raise UserError(
                f"{where}: expected id, bias_type, target, context, sentences"
            ) from None
        if form == FORMS[0]:  # the context is the sentence with a blank
            row["context"] = ""
        yield Item(row["id"], where, "", row)


def _stereoset_items(file: Path) -> Iterator[tuple[str, int, Any]]:
    """Yield the form, the number and the content of each item of a file."""
    content = read_json(file)
    if isinstance(content, list):
        for number, item in enumerate(content, 1):
            context = item.get("context") if isinstance(item, Mapping) else None
            yield FORMS[isinstance(context, str) and "BLANK" not in context], number, item
        return
    data = content.get("data") if isinstance(content, Mapping) else None
    lists = [data.get(form, []) if isinstance(data, Mapping) else None for form in FORMS]
    if not all(isinstance(each, list) for each in lists):
        raise UserError(
            f"{file}: expected StereoSet's layout, data with lists {' and '.join(FORMS)}, or one "
            "list of its items"
        )
    for form, items in zip(FORMS, lists, strict=True):
        yield from ((form, number, item) for number, item in enumerate(items or [], 1))


def _sentences(file: Path) -> list[str]:
    lines = (re.sub(r"^\s*\d+\s+", "", line.strip()) for line in text_lines(file))
    return [re.sub(r"[\[\]]", "", line) for line in lines if line]


def _stem(file: Path) -> str:
    return file.name.partition(".")[0]
