"""Results of facts and one kind of rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from foreword.display.results import Facts, Part, Result, ResultTable


class FactsAndRows(Result):
    """Facts, and perhaps a table."""

    def _facts(self) -> Mapping[str, Any]:
        """Return names and values, the most important first."""
        return {}

    def _rows(self) -> Sequence[Mapping[str, Any]]:
        """Return the rows of the table, by column; none for no table."""
        return ()

    def _tables(self) -> Sequence[Sequence[Mapping[str, Any]]]:
        """Return the rows of each table; by default of one, or of none."""
        return [rows] if (rows := self._rows()) else []

    def tables(self) -> Sequence[Part]:
        """Return the facts, and the tables."""
        return [Facts(self._facts()), *map(ResultTable, self._tables())]
