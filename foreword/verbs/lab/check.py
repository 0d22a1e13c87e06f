"""`foreword lab check`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from os import fspath
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from foreword.display.results import Part, Remark, Result, ResultTable
from foreword.verbs._arguments import paths
from foreword.verbs._contract import ARGUMENT, Flag, PathName
from foreword.verbs.lab._contract import LabVerb

if TYPE_CHECKING:
    from foreword.labs.lab import Graded


@dataclass(frozen=True, repr=False)
class Grades(Result):
    """Which answers are right.

    Attributes:
        lab: the lab.
        files: what became of each answer, by the name of the file of answers.
    """

    lab: str
    files: Mapping[str, Sequence[Graded]]

    @property
    def status(self) -> int:
        """The exit status: 0 if all answers are right, else 1."""
        return 0 if all(one.is_right for file in self.files.values() for one in file) else 1

    def tables(self) -> Sequence[Part]:
        """Return a row for each part of one file; of several files a row for each."""
        said = {True: "right", False: "wrong", None: "no answer"}
        if len(self.files) > 1:
            rows = [
                {"file": name, "right": _right(file)}
                | {one.part: said[one.is_right] for one in file}
                for name, file in self.files.items()
            ]
            return [ResultTable(rows)]
        ((_, file),) = self.files.items()
        rows = [{"part": one.part, "answer": said[one.is_right]} for one in file]
        hints = [Remark(f"{one.part}: {one.hint}") for one in file if one.hint]
        return [ResultTable(rows), *hints, Remark(f"{_right(file)} of {len(file)} right")]

    def data(self) -> dict[str, Any]:
        """Return what became of each answer."""
        files = [
            {
                "file": name,
                "right": _right(file),
                "parts": [
                    {"part": one.part, "right": one.is_right, "hint": one.hint} for one in file
                ],
            }
            for name, file in self.files.items()
        ]
        return {"lab": self.lab, "files": files}


def _right(file: Sequence[Graded]) -> int:
    return sum(one.is_right is True for one in file)


@dataclass(frozen=True)
class Check(LabVerb[Grades]):
    """Say which answers to a lab's questions are right.

        foreword.lab.check("bpe", "answers.toml")

    The lab's file holds no answers but their hashes. The exit status is 0 if all are right, 1 if
    not.

    Attributes:
        lab: the name of a lab (lab show lists them), or its .toml file.
        answers: .toml or .json files with an answer for each part, by its name; in Python also a
            table of them.
    """

    lab: Annotated[PathName, ARGUMENT]
    answers: Annotated[
        PathName | Sequence[PathName] | Mapping[str, Any],
        Flag(is_argument=True, metavar="ANSWERS...", takes=list[str]),
    ]

    def __call__(self) -> Grades:
        from foreword.labs import lab as labs

        lab = labs.load(fspath(self.lab))
        if isinstance(self.answers, Mapping):
            tables = {"answers": dict(self.answers)}
        else:
            tables = {file: labs.read_answers(Path(file)) for file in paths(self.answers)}
        graded = {name: labs.grade(lab, table, name) for name, table in tables.items()}
        return Grades(fspath(self.lab), graded)
