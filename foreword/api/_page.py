"""A page of `foreword show`: printed in a console, plain data for programs."""

from __future__ import annotations

import html
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from foreword.display.tables import out, table


@dataclass(frozen=True, repr=False)
class Page:
    """What `foreword show` prints; its `repr`, so that a console or a notebook shows it.

    Attributes:
        data: its content as plain values, as `--json` prints it.
        draw: prints it.
    """

    data: Any
    draw: Callable[[], None]

    @classmethod
    def of_table(cls, data: Any, columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> Page:
        """Return a page that is one table."""
        return cls(data, partial(table, "", columns, rows))

    @property
    def text(self) -> str:
        """The page as text."""
        with out.capture() as captured:
            self.draw()
        return captured.get()

    def __repr__(self) -> str:
        return self.text.rstrip()

    def _repr_html_(self) -> str:
        return f"<pre>{html.escape(self.text)}</pre>"
