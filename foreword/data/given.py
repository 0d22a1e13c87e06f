"""Texts and tables given as Python objects: lists, Series, arrays, generators, DataFrames.

What counts as a table, as several items and as a text is decided here, for all functions.
"""

from __future__ import annotations

import re
import reprlib
from collections.abc import Iterable, Iterator, Mapping, Set
from typing import Any

import numpy as np
import pyarrow as pa

from foreword.errors import UserError

# The name that pandas gives a column made of an index without a name.
INDEX_COLUMN = re.compile(r"__index_level_\d+__")


def table_of(data: Any, name: str) -> pa.Table | None:
    """Return an object as a table if it has named columns, such as a DataFrame; else None.

    A table is any object that exports records by Arrow's stream protocol, as those of pandas,
    polars, pyarrow and DuckDB do.

    Args:
        data: the object.
        name: of the argument, for messages.

    Raises:
        UserError: it is a table that Arrow cannot hold.
    """
    if isinstance(data, pa.Table):
        table = data
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


def items_of(data: Any, name: str, what: str = "texts") -> Iterator[Any]:
    """Yield the items of a list, Series, array or generator, as Python values.

    Args:
        data: the object.
        name: of the argument, for messages.
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
        name: of the argument, for messages.

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
