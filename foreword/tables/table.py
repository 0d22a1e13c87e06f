"""Tables: rows with named columns, the columns that are read, and the examples in them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, astuple, dataclass, field, replace
from pathlib import Path
from typing import Any

import pyarrow as pa

from foreword.errors import UserError
from foreword.settings.ranges import Share, check
from foreword.tables.columns import Columns, ReadExample, example_of, label_of, labels_example
from foreword.tables.examples import Labelled, LabelledTexts, Repaired

BAD_ROWS = 0.01  # the share of a table's rows that may be left out by default
SHOWN = 3  # bad rows that are named
FLAGS = {"1": True, "true": True, "0": False, "false": False, "": False}

Row = tuple[int, dict[str, Any]]


@dataclass(frozen=True)
class ExampleTable:
    """The rows of a file or of a given object, with named columns.

    Attributes:
        path: the file; the argument's name for a given object.
        columns: names of the columns, in order.
        rows: returns an iterator over each row's line (row number in Parquet), from 1, and its
            values by column; a `BadRow` for one that is broken. A UserError is raised where the
            rest of the file cannot be read either. Rows of a given object are numbered from 0.
        types: the Arrow type of each column.
        is_stream: whether the rows can be read only once.
        rows_of: like `rows`, of the columns it is given alone, where a format stores them apart.
        is_given: whether it is an object given in Python, not a file.
        usual: the columns that a format has by itself, whose names may also be given as numbers.
        nested: names of the values within tables in cells, `labels.label`, which may be chosen as
            columns.
    """

    path: Path
    columns: tuple[str, ...]
    rows: Callable[[], Iterator[Row]]
    types: Mapping[str, Any]
    is_stream: bool = False
    rows_of: Callable[[Sequence[str]], Iterator[Row]] | None = None
    is_given: bool = False
    usual: Columns | None = None
    nested: frozenset[str] = frozenset()

    def sound_rows(self) -> Iterator[Row]:
        """Yield the rows.

        Raises:
            UserError: one is broken.
        """
        for number, row in self.rows():
            if isinstance(row, BadRow):
                raise UserError(row.reason)
            yield number, row

    def source_of(self, number: int) -> str:
        """Return where a row is, for messages: `train.tsv:17`, or `data[16]`."""
        return f"{self.path}[{number}]" if self.is_given else f"{self.path}:{number}"


class BadRow(dict[str, Any]):
    """A row that cannot be read: why, as a message, and the values that it has nonetheless."""

    def __init__(self, reason: str, values: Mapping[str, Any] | None = None) -> None:
        super().__init__(values or {})
        self.reason = reason


class NestedRow(dict[str, Any]):
    """A row with tables in its cells, whose values have names with dots: `labels.label`."""

    def get(self, name: str, default: Any = None) -> Any:
        """Return the value of a column, or the one within its table."""
        if name in self:
            return self[name]
        value: Any = self
        for part in name.split("."):
            if not isinstance(value, dict) or part not in value:
                return default
            value = value[part]
        return value


def nested_names(fields: Iterable[Any], within: str = "") -> frozenset[str]:
    """Return the names of values in the tables of an Arrow schema's cells."""
    names: set[str] = set()
    for each in fields:
        names |= {within + each.name} if within else set()
        if pa.types.is_struct(each.type):
            names |= nested_names(each.type, f"{within}{each.name}.")
    return frozenset(names)


@dataclass
class BadRows:
    """A limit on rows that are wrong: left out and counted up to a share, refused above it.

    Attributes:
        share: how many of a table's rows may be wrong; of 0, the first is refused at once.
        sources: where those are that were left out.
        notes: a line for each table with rows that were left out or put right.
    """

    share: float = 0.0
    sources: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @classmethod
    def of(cls, share: float | None) -> BadRows:
        """Return the limit of a call that names a share; None for the default.

        Raises:
            UserError: it is not a share.
        """
        share = BAD_ROWS if share is None else share
        check(Share, share, "--bad-rows")
        return cls(share)

    def examples(
        self, table: ExampleTable, rows: Iterable[Row], columns: Columns, read: ReadExample
    ) -> Iterator[Labelled | None]:
        """Yield the example of each row; None without one, as for a row that is left out.

        Raises:
            UserError: too many rows are wrong; the first is named.
        """
        total = 0
        wrong: list[str] = []
        repaired: list[str] = []
        for number, row in rows:
            total += 1
            source = table.source_of(number)
            try:
                if isinstance(row, BadRow):
                    raise UserError(row.reason)
                example = read(row, columns, source)
                if example is not None and columns.group:
                    example = example._replace(group=label_of(row.get(columns.group), source))
            except UserError as error:
                if not self.share:
                    raise
                wrong.append(str(error))
                self.sources.append(source)
                example = None
            if isinstance(example, Repaired):
                repaired.append(source)
            yield example
        if wrong and len(wrong) == total and self.share < 1:
            raise UserError(wrong[0])
        if len(wrong) > self.share * total:
            raise UserError(
                f"{wrong[0]} (rows that are wrong: {len(wrong):,} of {total:,}; --bad-rows "
                f"{min(math.ceil(1000 * len(wrong) / total) / 1000, 1):g} leaves them out)"
            )
        for lines, what in ((wrong, "cannot be used"), (repaired, "were put right")):
            if lines:
                more = "; ..." if len(lines) > SHOWN else ""
                self.notes.append(
                    f"warning: {table.path}: {len(lines):,} of {total:,} rows {what}: "
                    f"{'; '.join(lines[:SHOWN])}{more}"
                )


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
        known = {"", *table.columns, *table.nested}
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


def require_columns(table: ExampleTable, columns: Columns, named: str = "--{}") -> None:
    """Check that a table has the columns; `named` is how the user names one.

    Raises:
        UserError: one is missing.
    """
    options = {option: name for option, name in asdict(columns).items() if name}
    is_named = {name.isdecimal() for name in options.values()} == {False}
    is_file = is_named and not table.is_given
    hint = ", by number from 0 if the file has no header" if is_file else ""
    for option, name in options.items():
        if name not in table.columns and name not in table.nested:
            within = (n for n in table.nested if n.split(".")[0] == name.split(".")[0])
            known = sorted(within) if "." in name else ()
            raise UserError(
                f"{table.path}: no column '{name}'; its columns: "
                f"{', '.join(known or table.columns)}; "
                f"choose one with {named.format(option)}{hint}"
            )


def with_flags(table: ExampleTable, columns: Columns, named: str = "--{}") -> ExampleTable:
    """Return a table with a column for a label that names several, `a,b,c`, with 0 and 1 in each.

    It lists the names with 1; where all are empty, none. `named` is as in `require_columns`.

    Raises:
        UserError: one of them is missing.
    """
    if "," not in columns.label or columns.label in table.columns:
        return table
    names = [name.strip() for name in columns.label.split(",")]
    for name in names:
        require_columns(table, replace(columns, label=name), named)

    def rows() -> Iterator[Row]:
        for number, row in table.rows():
            source = table.source_of(number)
            cells = {name: label_of(row.get(name), source).strip().lower() for name in names}
            wrong = next((name for name in names if cells[name] not in FLAGS), None)
            if wrong is not None and not isinstance(row, BadRow):
                row = BadRow(f"{source}: '{wrong}' must be 0 or 1, got '{cells[wrong]}'", row)
            has_any = any(cells.values())
            row[columns.label] = [n for n in names if FLAGS.get(cells[n])] if has_any else None
            yield number, row

    types = {**table.types, columns.label: pa.string()}
    return replace(table, columns=tuple(types), rows=rows, types=types, rows_of=None)


def labelled(
    table: ExampleTable,
    columns: Columns,
    read: ReadExample = example_of,
    *,
    needs_label: bool = True,
    bad: BadRows | None = None,
    named: str = "--{}",
) -> tuple[LabelledTexts, int]:
    """Return the examples of a table, and how many rows were skipped without text or label.

    Args:
        table: the table.
        columns: which columns hold what.
        read: makes an example of a row.
        needs_label: whether rows without a label are skipped.
        bad: the limit on rows that are wrong; by default the first is refused.
        named: how the user names a column.

    Raises:
        UserError: a column is missing, a row is broken, or there is no example.
    """
    require_columns(table, columns, named)
    bad = bad or BadRows()
    skipped, before = 0, len(bad.sources)

    def complete_rows() -> Iterator[Labelled]:
        nonlocal skipped
        names = [name for name in astuple(columns) if name]
        # A task's own function may read any column.
        rows_of = table.rows_of if read in (example_of, labels_example) else None
        heads = dict.fromkeys(n if n in table.columns else n.partition(".")[0] for n in names)
        rows = table.rows() if rows_of is None else rows_of(list(heads))
        for example in bad.examples(table, rows, columns, read):
            if example is None or (needs_label and not example.label):
                skipped += 1
            else:
                yield example

    examples = LabelledTexts.of(complete_rows())
    skipped -= len(bad.sources) - before
    if not examples:
        needed = "both a text and a label" if needs_label else "text"
        raise UserError(
            f"{table.path}: no row has {needed}; rows in which something that the task reads is "
            "empty are skipped"
        )
    return examples, skipped
