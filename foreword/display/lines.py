"""Lines for people on the error stream, and the live line below them."""

from __future__ import annotations

import re
import sys
import textwrap
from collections.abc import Sequence
from contextlib import suppress
from itertools import takewhile

from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

from foreword.disk.credentials import masked
from foreword.display.bar import Bar, fit_parts
from foreword.display.notebook import NotebookBar, is_notebook

LEAD = 16  # the most characters shown of what two texts share
COMMAND = re.compile(r"""(['"])foreword .*?\1""")  # in quotation marks, to be copied
GLUE = "\ue000"  # for a space at which no line may end

err = Console(stderr=True, highlight=False, soft_wrap=True)


def say(text: str) -> None:
    """Print a line for people on the error stream, so that the output stays clean for pipes.

    In a terminal a line wider than the window continues below, indented, and breaks at spaces. A
    terminal that was closed, or a reader that has ended, ends no work.
    """
    with suppress(OSError, ValueError):
        shown = masked(text)
        if err.is_terminal:
            shown = "\n".join(_wrapped(line, err.width - 1) for line in shown.split("\n"))
        err.file.write(f"{shown}\n")
        err.file.flush()


def _wrapped(line: str, width: int) -> str:
    """Return a line broken at spaces where it is too wide; commands and long words stay whole."""
    cells = cell_len(line)
    if cells <= width:
        return line
    rows = textwrap.wrap(
        COMMAND.sub(lambda command: command[0].replace(" ", GLUE), line),
        max(width * len(line) // cells, 12),  # of characters, some of which are two cells wide
        subsequent_indent=" " * (len(line) - len(line.lstrip(" ")) + 2),
        break_long_words=False,
        break_on_hyphens=False,
    )
    return "\n".join(rows).replace(GLUE, " ")


def prompt_and_text(before: str, after: str) -> str:
    """Return two texts as one line, in a terminal cut to the window.

    The first keeps half of the room, or what the second leaves. Texts that begin alike and do not
    fit, as a text with blanks and the same text filled, begin shortly before they differ.
    """
    indent, arrow = "    ", "  ->  "
    texts = [Text(one_line(text)) for text in (before, after)]
    if err.is_terminal:
        room = err.width - len(indent) - len(arrow) - 1
        pairs = zip(*(text.plain for text in texts), strict=False)
        alike = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))
        if alike > LEAD and sum(text.cell_len for text in texts) > room:
            start = texts[0].plain.find(" ", alike - LEAD, alike) + 1 or alike - LEAD
            texts = [Text(f"…{text.plain[start:]}") for text in texts]
        texts[0].truncate(max(room // 2, room - texts[1].cell_len), overflow="ellipsis")
        texts[1].truncate(room - texts[0].cell_len, overflow="ellipsis")
    return indent + arrow.join(text.plain for text in texts)


def one_line(text: str) -> str:
    """Return a text with line breaks as ⏎, and spaces for all else that cannot be printed."""
    return "".join(c if c.isprintable() else "⏎" if c == "\n" else " " for c in text)


def line_of(parts: Sequence[str], ranks: Sequence[int]) -> str:
    """Return the parts as one line; in a terminal, as many as fit the window."""
    return fit_parts(parts, ranks, err.width - 1 if err.is_terminal else 1 << 16)


def progress() -> Bar:
    """Return a live line in a notebook or a terminal, else a line now and then."""
    if is_notebook():
        return NotebookBar(say)
    is_live = sys.stderr.isatty() and not err.is_dumb_terminal and not err.legacy_windows
    is_coloured = err.color_system is not None and not err.no_color
    return Bar(say, is_live=is_live, is_coloured=is_coloured)
