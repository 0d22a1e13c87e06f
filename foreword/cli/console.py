"""The output of the command line: tables and progress for people, JSON for scripts."""

from __future__ import annotations

import sys
from typing import Any

from foreword import stored
from foreword.display.lines import err, line_of, one_line, progress, say, side_by_side
from foreword.display.tables import facts, out, some, table

__all__ = [
    "emit", "err", "facts", "line_of", "one_line", "out", "progress", "say", "side_by_side", "some",
    "table",
]  # fmt: skip


def emit(value: Any) -> None:
    """Print one JSON document, for scripts."""
    sys.stdout.write(stored.to_json(value, indent=1) + "\n")
