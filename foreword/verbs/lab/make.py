"""`foreword lab make`."""

from __future__ import annotations

from dataclasses import dataclass
from os import fspath
from pathlib import Path
from typing import Annotated

from foreword.display.results import Output
from foreword.errors import UserError
from foreword.verbs._contract import ARGUMENT, PathName
from foreword.verbs.lab._contract import LabVerb


@dataclass(frozen=True)
class Make(LabVerb[Output]):
    """Write a lab from a file with its answers, which become hashes.

        foreword.lab.make("counting_answers.toml", out="counting.toml")

    docs/labs/index.md says what the file holds.

    Attributes:
        file: a .toml file: title, text, and parts with right and wrong answers.
        out: the lab to write, which no longer tells them.
    """

    file: Annotated[PathName, ARGUMENT]
    out: PathName

    def __call__(self) -> Output:
        from foreword.disk import atomic
        from foreword.labs import lab as labs
        from foreword.settings import config

        file, out = Path(self.file), Path(self.out)
        lab = config.load(labs.Lab, file, what="a lab")
        if out.exists() and not labs.is_made(out):
            raise UserError(f"--out {out}: holds something else than a lab; choose another name")
        if out.suffix != ".toml":
            raise UserError(f"--out {out}: a lab's file ends in .toml")
        try:
            made = lab.sealed()
        except UserError as error:
            raise UserError(f"{file}: {error}") from None
        atomic.write_text(out, labs.dumps(made))
        return Output([f"{out}: {len(made.parts)} parts"], {"lab": fspath(out)})
