"""Which columns of rows hold what, as callers say it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from foreword.settings.ranges import Share


@dataclass(frozen=True, kw_only=True)
class ReadsRows:
    """Which columns of rows hold what.

    Attributes:
        text: column of the text, a number from 0 if the file has no header; default: as tuned.
        pair: column of a second text; default: as tuned.
        columns: names of all columns, a,b,c, if the file has no header.
        prefix: task prefix; default: the one it was tuned with.
        bad_rows: share of a file's rows that may be wrong: they are left out, counted and named,
            more are refused; default: as tuned, or 0.01.
    """

    text: str | None = None
    pair: str | None = None
    columns: str = ""
    prefix: str | Sequence[str] | None = None
    bad_rows: Share | None = None

    @property
    def named(self) -> dict[str, str]:
        """The columns that are named, by field of `Columns`."""
        values = {name: getattr(self, name, None) for name in ("text", "pair", "label", "group")}
        return {name: value for name, value in values.items() if value is not None}

    @property
    def names(self) -> list[str]:
        """The names of all columns; none if the file has a header."""
        return [name.strip() for name in self.columns.split(",")] if self.columns else []


@dataclass(frozen=True, kw_only=True)
class ReadsLabelled(ReadsRows):
    """Which columns of labelled rows hold what.

    Attributes:
        label: column of the label; default: as tuned.
    """

    label: str | None = None
