"""Tables as libraries give them: with Arrow's stream protocol, and column names as their items."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pyarrow as pa


class Frame:
    """A table like a DataFrame of pandas or polars, which are not installed for tests."""

    def __init__(self, columns: dict[str, list[Any]]) -> None:
        self._columns = columns

    @property
    def columns(self) -> list[str]:
        return list(self._columns)

    def __len__(self) -> int:
        return len(next(iter(self._columns.values())))

    def __iter__(self) -> Iterator[str]:
        return iter(self._columns)

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        return pa.table(self._columns).__arrow_c_stream__(requested_schema)


class Series:
    """A column like a Series, which compares item by item."""

    def __init__(self, items: list[Any]) -> None:
        self._items = items

    def __iter__(self) -> Iterator[Any]:
        return iter(self._items)

    def __eq__(self, other: object) -> Any:
        return Series([item == other for item in self._items])

    __hash__ = None  # type: ignore[assignment]

    def __bool__(self) -> bool:
        raise ValueError("the truth value of a Series is ambiguous")

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        return pa.chunked_array([self._items]).__arrow_c_stream__(requested_schema)


class Dataset:
    """A Dataset of Hugging Face's library, which is not installed for tests."""

    def __init__(self, columns: dict[str, list[Any]], names: dict[str, list[str]]) -> None:
        self._columns = columns
        labels = {n: SimpleNamespace(names=names[n]) if n in names else None for n in columns}
        are_lists = {n: isinstance(items[0], list) for n, items in columns.items()}
        self.features = {
            n: SimpleNamespace(feature=label) if are_lists[n] else label
            for n, label in labels.items()
        }

    def __len__(self) -> int:
        return len(next(iter(self._columns.values())))

    def with_format(self, name: str) -> Dataset:
        assert name == "arrow"
        return self

    def __getitem__(self, which: slice) -> pa.Table:
        return pa.table(self._columns).slice(which.start or 0)
