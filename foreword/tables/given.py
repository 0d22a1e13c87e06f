"""Texts and tables given as Python objects: lists, Series, arrays, generators, DataFrames.

What counts as a table, as several items and as a text is decided here, for all functions.
"""

from __future__ import annotations

import re
import reprlib
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from foreword.errors import UserError
from foreword.tables.columns import Columns
from foreword.tables.examples import AT_ONCE
from foreword.tables.table import ExampleTable, NestedRow, Row, nested_names

# The name that pandas gives a column made of an index without a name.
INDEX_COLUMN = re.compile(r"__index_level_\d+__")
TEXT, LABEL, PAIR = "text", "label", "pair"  # columns of tables made of tuples


def given_table(data: Any, name: str) -> ExampleTable | None:
    """Return an object with named columns, such as a DataFrame, as a table; None for others.

    Raises:
        UserError: Arrow cannot hold it.
    """
    table = table_of(data, name)
    if table is None:
        return None

    def rows(names: Sequence[str] | None = None) -> Iterator[Row]:
        selected = table if names is None else table.select(list(names))
        for start in range(0, len(selected), AT_ONCE):
            yield from enumerate(map(NestedRow, selected.slice(start, AT_ONCE).to_pylist()), start)

    types = dict(zip(table.schema.names, table.schema.types, strict=True))
    columns = tuple(table.schema.names)
    nested = nested_names(table.schema)
    return ExampleTable(
        Path(name), columns, rows, types, rows_of=rows, is_given=True, nested=nested
    )


def texts_or_table(
    data: Any, name: str, columns: Columns, pairs: Any = None, *, are_texts: bool = True
) -> tuple[ExampleTable, Columns]:
    """Return texts, pairs or a table as rows to predict for, and the columns of their texts.

    Args:
        data: texts, pairs in tuples, dictionaries, or an object with named columns.
        name: name of the argument, for messages.
        columns: the columns of texts in a table.
        pairs: the second text of each text, or None.
        are_texts: whether items other than dictionaries are texts or pairs; else a task reads
            them.

    Raises:
        UserError: it is something else; see `texts_table`.
    """
    table = given_table(data, name)
    if table is None:
        items = list(items_of(data, name))
        if are_texts and not any(isinstance(item, Mapping) for item in items[:1]):
            table = texts_table(items, name, pairs)
            return table, Columns(TEXT, "", PAIR if PAIR in table.columns else "")
        table = records_table(items, name, (columns.text,))
    if pairs is not None:
        raise UserError("pairs: second texts of a table are one of its columns")
    return table, columns


def texts_table(data: Any, name: str, pairs: Any = None) -> ExampleTable:
    """Return texts or pairs of texts as a table with the columns `text` and `pair`.

    Args:
        data: texts, or pairs in tuples.
        name: name of the argument, for messages.
        pairs: the second text of each, or None.

    Raises:
        UserError: an item is something else, or the numbers of texts and second texts differ.
    """
    if pairs is not None:
        texts, seconds = list(texts_of(data, name)), list(texts_of(pairs, "pairs"))
        if len(texts) != len(seconds):
            raise UserError(f"{len(texts)} texts, but {len(seconds)} second texts")
        return _table_of_rows([TEXT, PAIR], list(zip(texts, seconds, strict=True)), name)
    items = list(items_of(data, name))
    if not any(_is_sequence(item) for item in items[:1]):
        for number, item in enumerate(items):
            if _is_sequence(item):
                raise UserError(f"{name}[{number}]: expected a text, as {name}[0] is; got a pair")
            require_text(item, f"{name}[{number}]")
        return _table_of_rows([TEXT], [(item,) for item in items], name)
    for number, item in enumerate(items):
        where = f"{name}[{number}]"
        if not _is_sequence(item):
            raise UserError(f"{where}: expected two texts, as {name}[0] has; got {_short(item)}")
        if len(item) != 2:
            raise UserError(f"{where}: expected two texts, got {len(item)}")
        for text in item:
            require_text(text, where)
    return _table_of_rows([TEXT, PAIR], items, name)


def records_table(items: Sequence[Any], name: str, columns: Sequence[str]) -> ExampleTable:
    """Return records as a table for a task that reads them.

    Args:
        items: dictionaries of values by column; or the values of `columns`, in tuples if these are
            several.
        name: name of the argument, for messages.
        columns: the columns of items that are not dictionaries.

    Raises:
        UserError: an item has more or fewer values.
    """
    rows = []
    for number, item in enumerate(items):
        if isinstance(item, Mapping):
            rows.append({str(key): value for key, value in item.items()})
            continue
        values = (item,) if len(columns) == 1 else item
        if not _is_sequence(values) or len(values) != len(columns):
            raise UserError(
                f"{name}[{number}]: expected a dictionary or ({', '.join(columns)}), got "
                f"{_short(item)}"
            )
        rows.append(dict(zip(columns, values, strict=True)))
    names = dict.fromkeys(key for row in rows for key in row)
    types = dict.fromkeys(names, pa.string())
    return ExampleTable(Path(name), tuple(names), lambda: enumerate(rows), types, is_given=True)


def examples_table(items: Sequence[Any], name: str, *, needs_label: bool = True) -> ExampleTable:
    """Return labelled examples as a table with the columns `text`, `label` and perhaps `pair`.

    Args:
        items: `(text, label)` or `(text, label, second text)` each; a label is a text, a number or
            a list of them.
        name: name of the argument, for messages.
        needs_label: else items are `(text,)`, `(text, second text)` or `(text, label, second
            text)`.

    Raises:
        UserError: an item is something else, or only some have a second text.
    """
    if not needs_label and len(items[0]) < 3:
        alone = [i[0] if _is_sequence(i) and len(i) == 1 else i for i in items]
        return texts_table(alone, name)
    rows = []
    for number, item in enumerate(items):
        where = f"{name}[{number}]"
        if not _is_sequence(item) or len(item) not in (2, 3):
            raise UserError(
                f"{where}: expected (text, label), or (text, label, second text); got "
                f"{_short(item)}"
            )
        if len(item) != len(items[0]):
            with_pair, without_pair = where, f"{name}[0]"
            if len(item) == 2:
                with_pair, without_pair = without_pair, with_pair
            raise UserError(f"{with_pair} has a second text, and {without_pair} has none")
        text, label, *pair = item
        for value in (text, *pair):
            require_text(value, where)
        label = label.item() if isinstance(label, np.generic) else label
        if not isinstance(label, str | int | float | list):  # a boolean is an int
            raise UserError(f"{where}: expected a text or a number as label, got {_short(label)}")
        if label != label:
            raise UserError(f"{where}: the label is missing (nan)")
        rows.append((text, label, *pair))
    return _table_of_rows([TEXT, LABEL, PAIR][: len(items[0])], rows, name)


def _table_of_rows(names: Sequence[str], items: Sequence[Any], name: str) -> ExampleTable:
    def rows() -> Iterator[Row]:
        for number, item in enumerate(items):
            yield number, dict(zip(names, item, strict=True))

    types = dict.fromkeys(names, pa.string())
    return ExampleTable(Path(name), tuple(names), rows, types, is_given=True)


def _is_sequence(item: Any) -> bool:
    """Return whether an item is a tuple or a list, which hold the parts of an example."""
    return isinstance(item, tuple | list)


def _short(item: Any) -> str:
    return reprlib.repr(item)


def table_of(data: Any, name: str) -> pa.Table | None:
    """Return an object as a table if it has named columns, such as a DataFrame; else None.

    A table is any object that exports records by Arrow's stream protocol, as those of pandas,
    polars, pyarrow and DuckDB do; or a Dataset of Hugging Face, whose labels have their names.

    Args:
        data: the object.
        name: name of the argument, for messages.

    Raises:
        UserError: it is a table that Arrow cannot hold, or a stream of rows.
    """
    if isinstance(data, pa.Table):
        table = data
    elif hasattr(data, "with_format") and hasattr(data, "features"):
        table = _dataset_table(data, name)
    elif not hasattr(data, "__arrow_c_stream__"):
        return None
    else:
        try:
            records = pa.chunked_array(data)
        except (pa.ArrowException, TypeError, ValueError) as error:
            if not hasattr(data, "columns"):
                return None  # a column of mixed values, each of which is checked
            reason = str(error).split("\n")[0]
            raise UserError(f"{name}: the table cannot be read: {reason}") from None
        if not pa.types.is_struct(records.type):
            return None
        table = pa.Table.from_struct_array(records)
    columns = [n for n in table.column_names if not INDEX_COLUMN.fullmatch(n)]
    if twice := sorted({n for n in columns if columns.count(n) > 1}):
        raise UserError(f"{name}: two columns are named '{twice[0]}'")
    return table.select(columns)


def _dataset_table(data: Any, name: str) -> pa.Table:
    """Return a Dataset of Hugging Face as a table, with the names of its labels."""
    if not hasattr(data, "__len__"):
        raise UserError(
            f"{name}: {type(data).__name__} gives its rows once, and they are read several times; "
            "load it without streaming=True"
        )
    table = data.with_format("arrow")[:]
    for column, feature in data.features.items():
        inner = getattr(feature, "feature", feature)  # of a list
        if names := getattr(inner, "names", None):
            values = table.column(column).to_pylist()
            named = [
                [names[n] for n in value] if isinstance(value, list) else _named(value, names)
                for value in values
            ]
            number = table.column_names.index(column)
            table = table.set_column(number, column, pa.array(named))
    return table


def _named(value: int | None, names: Sequence[str]) -> str | None:
    """Return the name of a label; None for one that is missing or -1, as in sets for tests."""
    return None if value is None or value < 0 else names[value]


def items_of(data: Any, name: str, what: str = "texts") -> Iterator[Any]:
    """Yield the items of a list, Series, array or generator, as Python values.

    Args:
        data: the object.
        name: name of the argument, for messages.
        what: the items, for messages.

    Raises:
        UserError: it is one text, a table, has no order or has no items.
    """
    kind = type(data).__name__
    if isinstance(data, str | bytes):
        raise UserError(f"{name}: expected a list of {what}, got one text: {reprlib.repr(data)}")
    if isinstance(data, Mapping) or hasattr(data, "columns"):
        raise UserError(
            f"{name}: expected a list of {what}, got a {kind}; choose one of its columns"
        )
    if isinstance(data, Set):
        raise UserError(f"{name}: a {kind} has no order; make it a list")
    if not isinstance(data, Iterable) or (isinstance(data, np.ndarray) and not data.ndim):
        raise UserError(f"{name}: expected a list of {what}, got {reprlib.repr(data)}")
    if isinstance(data, pa.Array | pa.ChunkedArray):
        return (value.as_py() for value in data)
    return iter(data.tolist() if isinstance(data, np.ndarray) else data)


def texts_of(data: Any, name: str) -> Iterator[str]:
    """Yield texts, each checked.

    Args:
        data: a list, Series, array or generator of texts.
        name: name of the argument, for messages.

    Raises:
        UserError: it holds something else; see `items_of`.
    """
    return _checked(items_of(data, name), name)


def _checked(items: Iterator[Any], name: str) -> Iterator[str]:
    for number, item in enumerate(items):
        require_text(item, f"{name}[{number}]")
        yield item


def require_text(item: Any, where: str) -> None:
    """Check that an item is a text.

    Raises:
        UserError: it is something else; `where` names it.
    """
    if not isinstance(item, str):
        raise UserError(f"{where}: expected a text, got {reprlib.repr(item)}")
