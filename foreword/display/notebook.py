"""The live line in a notebook: one output that is rewritten."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Any

from foreword.display.bar import Bar

WIDTH = 100  # columns of the line; a notebook's width is not known


def is_notebook() -> bool:
    """Return whether the code runs in a Jupyter kernel."""
    ipython = sys.modules.get("IPython")
    shell = None if ipython is None else ipython.get_ipython()
    return shell is not None and hasattr(shell, "kernel")


class NotebookBar(Bar):
    """The live line of a `with` block in a notebook, cleared at its end.

    Args:
        say: prints a separate line.
    """

    def __init__(self, say: Callable[[str], None]) -> None:
        super().__init__(say, is_live=True, is_coloured=False)
        self._file = sys.stderr
        self._output: Any = None
        self._shown = ""

    def __enter__(self) -> NotebookBar:
        from IPython.display import display

        self._output = display({"text/plain": ""}, raw=True, display_id=True)
        self._thread.start()
        return self

    def _draw(self) -> None:
        stage = self._stage
        line = "" if stage is None else stage.line(WIDTH, time.monotonic(), self._draw_bar)
        if line != self._shown and self._output is not None:
            self._shown = line
            self._output.update({"text/plain": line}, raw=True)

    def __exit__(self, *error: Any) -> None:
        super().__exit__(*error)
        self._draw()
