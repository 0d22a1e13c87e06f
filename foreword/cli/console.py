"""The output of the command line: tables and progress for people, JSON for scripts."""

from __future__ import annotations

import sys
from typing import Any

from foreword.disk import stored
from foreword.display.lines import err, line_of, one_line, progress, prompt_and_text, say
from foreword.display.tables import facts, out, some, table

__all__ = [
    "emit",
    "err",
    "facts",
    "line_of",
    "one_line",
    "out",
    "progress",
    "prompt_and_text",
    "say",
    "some",
    "table",
]  # fmt: skip


def emit(value: Any) -> None:
    """Print one JSON document, for scripts."""
    sys.stdout.write(stored.record(value))
