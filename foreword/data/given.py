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


def table_of(given: Any, name: str) -> pa.Table | None:
    """Return an object as a table if it has named columns, such as a DataFrame; else None.

    Any object is one that gives records by Arrow's stream protocol: tables of pandas, polars,
    pyarrow and DuckDB.

    Args:
        given: the object.
        name: of the argument, for messages.

    Raises:
        UserError: it is a table that Arrow cannot hold.
    """
    if isinstance(given, pa.Table):
        table = given
    elif not hasattr(given, "__arrow_c_stream__"):
        return None
    else:
        try:
            records = pa.chunked_array(given)
        except (pa.ArrowException, TypeError, ValueError) as error:
            if not hasattr(given, "columns"):
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


def items_of(given: Any, name: str, what: str = "texts") -> Iterator[Any]:
    """Yield the items of a list, Series, array or generator, as Python values.

    Args:
        given: the object.
        name: of the argument, for messages.
        what: the items, for messages.

    Raises:
        UserError: it is one text, a table, has no order or has no items.
    """
    kind = type(given).__name__
    if isinstance(given, str | bytes):
        raise UserError(f"{name}: expected a list of {what}, got one text: {reprlib.repr(given)}")
    if isinstance(given, Mapping) or hasattr(given, "columns"):
        raise UserError(
            f"{name}: expected a list of {what}, got a {kind}; choose one of its columns"
        )
    if isinstance(given, Set):
        raise UserError(f"{name}: a {kind} has no order; make it a list")
    if not isinstance(given, Iterable) or (isinstance(given, np.ndarray) and not given.ndim):
        raise UserError(f"{name}: expected a list of {what}, got {reprlib.repr(given)}")
    if isinstance(given, pa.Array | pa.ChunkedArray):
        return (value.as_py() for value in given)
    return iter(given.tolist() if isinstance(given, np.ndarray) else given)


def texts_of(given: Any, name: str) -> Iterator[str]:
    """Yield texts, each checked.

    Args:
        given: a list, Series, array or generator of texts.
        name: of the argument, for messages.

    Raises:
        UserError: it holds something else; see `items_of`.
    """
    return _checked(items_of(given, name), name)


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
