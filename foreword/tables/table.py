"""Tables: rows with named columns, the columns that are read, and the examples in them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa

from foreword.errors import UserError
from foreword.tables.columns import Columns, ReadExample, example_of
from foreword.tables.examples import Labelled, LabelledTexts

Row = tuple[int, dict[str, Any]]


@dataclass(frozen=True)
class ExampleTable:
    """The rows of a file or of a given object, with named columns.

    Attributes:
        path: the file; the argument's name for a given object.
        columns: names of the columns, in order.
        rows: returns an iterator over each row's line (row number in Parquet), from 1, and its
            values by column; a broken row raises a UserError when it is read. Rows of a given
            object are numbered from 0.
        types: the Arrow type of each column.
        is_stream: whether the rows can be read only once.
        rows_of: like `rows`, of the columns it is given alone, where a format stores them apart.
        is_given: whether it is an object given in Python, not a file.
        usual: the columns that a format has by itself, whose names may also be given as numbers.
    """

    path: Path
    columns: tuple[str, ...]
    rows: Callable[[], Iterator[Row]]
    types: Mapping[str, Any]
    is_stream: bool = False
    rows_of: Callable[[Sequence[str]], Iterator[Row]] | None = None
    is_given: bool = False
    usual: Columns | None = None

    def source_of(self, number: int) -> str:
        """Return where a row is, for messages: `train.tsv:17`, or `data[16]`."""
        return f"{self.path}[{number}]" if self.is_given else f"{self.path}:{number}"


def chosen_columns(
    table: ExampleTable, usual: Sequence[Columns], chosen: Mapping[str, str]
) -> Columns:
    """Return the columns of a table that hold text, label and second text.

    Args:
        table: the table.
        usual: the columns that a task has unless the format has others; the first that the table
            has, perhaps without a label, else the first.
        chosen: the columns that the user named, by field of `Columns`; where the format names the
            columns, a number counts them from 0.
    """
    if table.usual is None:
        candidates = [replace(columns, **chosen) for columns in usual]
        known = {"", *table.columns}
        return next(
            (c for c in candidates if known >= {c.text, c.pair, c.label}),
            next((c for c in candidates if known >= {c.text, c.pair}), candidates[0]),
        )
    names = {
        field: table.columns[int(name)]
        if name.isdecimal() and int(name) < len(table.columns)
        else name
        for field, name in chosen.items()
    }
    return replace(table.usual, **names)


def stream_of_lines(name: str, lines: Iterable[bytes]) -> ExampleTable:
    """Return a table whose rows are the lines of a stream, in the column `text`.

    Args:
        name: name of the stream, for messages.
        lines: read once.
    """

    def rows() -> Iterator[Row]:
        for number, line in enumerate(lines, 1):
            try:
                text = line.decode("utf-8-sig" if number == 1 else "utf-8")
            except UnicodeDecodeError as error:
                byte = f"byte {error.start:,} of the line (0x{line[error.start]:02x})"
                raise UserError(f"{name}:{number}: {byte} is not UTF-8; convert it") from None
            yield number, {"text": text.rstrip("\r\n")}

    return ExampleTable(Path(name), ("text",), rows, {"text": pa.string()}, is_stream=True)


def require_columns(table: ExampleTable, columns: Columns) -> None:
    """Check that a table has the columns.

    Raises:
        UserError: one is missing.
    """
    options = {"--text": columns.text, "--label": columns.label, "--pair": columns.pair}
    options = {option: name for option, name in options.items() if name}
    is_named = {name.isdecimal() for name in options.values()} == {False}
    is_file = is_named and not table.is_given
    hint = ", by number from 0 if the file has no header" if is_file else ""
    for option, name in options.items():
        if name not in table.columns:
            raise UserError(
                f"{table.path}: no column '{name}'; its columns: {', '.join(table.columns)}; "
                f"choose one with {option}{hint} (in a grid: {option[2:]} = ...)"
            )


def labelled(
    table: ExampleTable,
    columns: Columns,
    read: ReadExample = example_of,
    *,
    needs_label: bool = True,
) -> tuple[LabelledTexts, int]:
    """Return the examples of a table, and how many rows were skipped without text or label.

    Args:
        table: the table.
        columns: which columns hold what.
        read: makes an example of a row.
        needs_label: whether rows without a label are skipped.

    Raises:
        UserError: a column is missing, a row is broken, or there is no example.
    """
    require_columns(table, columns)
    skipped = 0

    def complete_rows() -> Iterator[Labelled]:
        nonlocal skipped
        names = [name for name in (columns.text, columns.label, columns.pair) if name]
        rows_of = table.rows_of if read is example_of else None  # another one may read any column
        rows = table.rows() if rows_of is None else rows_of(list(dict.fromkeys(names)))
        for line, row in rows:
            source = table.source_of(line)
            example = read(row, columns, source)
            if example is None or (needs_label and not example.label):
                skipped += 1
            else:
                yield example

    examples = LabelledTexts.of(complete_rows())
    if not examples:
        needed = "both a text and a label" if needs_label else "text"
        raise UserError(
            f"{table.path}: no row has {needed}; rows in which something that the task reads is "
            "empty are skipped"
        )
    return examples, skipped
