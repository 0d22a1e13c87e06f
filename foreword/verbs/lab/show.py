"""`foreword lab show`."""

from __future__ import annotations

from dataclasses import dataclass
from os import fspath
from typing import Annotated

from foreword.display.results import Output, ResultTable, Text
from foreword.settings import config
from foreword.verbs._contract import ARGUMENT, PathName
from foreword.verbs.lab._contract import LabVerb


@dataclass(frozen=True)
class Show(LabVerb[Output]):
    """List the labs, or show one: its text and its questions, in Markdown.

        foreword.lab.show("bpe")

    Attributes:
        lab: the name of a lab, or its .toml file. Default: the labs that are shipped.
    """

    lab: Annotated[PathName | None, ARGUMENT] = None

    def __call__(self) -> Output:
        from foreword.labs import lab as labs
        from foreword.labs.page import page

        if self.lab is None:
            known = {name: labs.load(name) for name in config.LABS.names()}
            rows = [
                {"lab": name, "title": one.title, "parts": len(one.parts), "minutes": one.minutes}
                for name, one in known.items()
            ]
            return Output([ResultTable(rows)], rows)
        name = fspath(self.lab)
        lab = labs.load(name)
        parts = [{"part": part.name, "answer": part.answer} for part in lab.parts]
        text = page(name, lab)
        return Output([Text(text.rstrip())], {"lab": name, "parts": parts, "page": text})
