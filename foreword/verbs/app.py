"""`foreword app`."""

from __future__ import annotations

import os
import sys
import webbrowser
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Annotated

from foreword.display import lines
from foreword.display.results import Output
from foreword.verbs._contract import Paths, Verb
from foreword.verbs._groups import Computes
from foreword.verbs.serve import RUNS, Port, Serve

SCREENS = {"DISPLAY", "WAYLAND_DISPLAY"}  # without one, only a browser in the terminal opens


@dataclass(frozen=True)
class App(Computes, Verb[Output]):
    """See models think: a page in the browser that shows what each makes of a text.

        foreword.app(["runs/gpt", "runs/books", "runs/ngram"])

    One sentence through every model side by side, texts that grow with their probabilities, and
    what is inside: attention, layers, vectors, counts, pieces. docs/app.md shows it. It is the page
    of 'foreword serve', for this machine alone, and needs no network. Ctrl-C ends it.

    Attributes:
        runs: run folders, checkpoints, or folders that 'foreword tune' wrote.
        name: what the page calls a model, in the order of the runs, repeatable; default: the name
            of its folder.
        port: port to listen at; default: a free one.
        no_open: do not open the browser; the address is printed.
        precision: fp32, bf16 or auto.
    """

    runs: Annotated[Paths, RUNS]
    _: KW_ONLY
    name: Sequence[str] = ()
    port: Port = 0
    no_open: bool = False
    precision: str = "fp32"

    def __call__(self) -> Output:
        server = Serve(
            self.runs,
            name=self.name,
            port=self.port,
            precision=self.precision,
            device=self.device,
        )
        return server.serve(self._open)

    def _open(self, url: str) -> None:
        """Open the browser, where there is one."""
        has_screen = sys.platform in ("darwin", "win32") or bool(SCREENS & os.environ.keys())
        if not self.no_open and not (has_screen and webbrowser.open(url)):
            lines.say(f"there is no browser to open it in; the page is at {url}")
