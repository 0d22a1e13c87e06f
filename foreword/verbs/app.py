"""`foreword app`."""

from __future__ import annotations

import os
import sys
import webbrowser
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from pathlib import Path
from typing import Annotated

from foreword.display import lines
from foreword.display.results import Output
from foreword.errors import UserError
from foreword.formatting import byte_size
from foreword.verbs._contract import PathName, Paths, Verb
from foreword.verbs._groups import Computes
from foreword.verbs.serve import RUNS, Port, Serve

SCREENS = {"DISPLAY", "WAYLAND_DISPLAY"}  # without one, only a browser in the terminal opens

SENTENCES = (
    "The king went to the river, and the people followed him.",
    "In the beginning there was a small house near the sea.",
)


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
        export: file to write in place of a server: the page with what it shows about the sentences,
            through every model and every checkpoint; it opens without a server or a network.
        sentence: what the file is about, repeatable.
        allow_control: let the page, on this machine, stop training that runs in these folders and
            resume it.
        precision: precision to compute in: fp32, bf16 or auto.
    """

    runs: Annotated[Paths, RUNS]
    _: KW_ONLY
    name: Sequence[str] = ()
    port: Port = 0
    no_open: bool = False
    export: PathName | None = None
    sentence: Sequence[str] = ()
    allow_control: bool = False
    precision: str = "fp32"

    def __call__(self) -> Output:
        server = Serve(
            self.runs,
            name=self.name,
            port=self.port,
            precision=self.precision,
            device=self.device,
        )
        if self.export is not None:
            return self._exported(server, Path(self.export))
        if self.sentence:
            raise UserError("--sentence: is for --export; the page takes any")
        return server.serve(self._open, watches=True, can_control=self.allow_control)

    def _exported(self, server: Serve, out: Path) -> Output:
        from foreword.process.extras import require_packages

        require_packages(["starlette"], "'foreword app' requires", "serve")
        from foreword.serving import recording

        opened = server.server(server.names(), watches=True)
        try:
            texts = self.sentence or SENTENCES
            answers, size = recording.write(opened, texts, out, lines.say)
        finally:
            opened.close()
        rows = [{"file": str(out), "texts": len(texts), "answers": answers, "bytes": size}]
        line = f"{out}: {byte_size(size)}, {answers:,} answers; it opens without a server"
        return Output([line], {"page": rows})

    def _open(self, url: str) -> None:
        has_screen = sys.platform in ("darwin", "win32") or bool(SCREENS & os.environ.keys())
        if not self.no_open and not (has_screen and webbrowser.open(url)):
            lines.say(f"there is no browser to open it in; the page is at {url}")
