"""Options that verbs share stand on the command line one by one."""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from typing import Annotated

import pytest
import typer

from foreword.cli._options import Options, flat
from foreword.cli.main import run


@dataclass(frozen=True)
class Size(Options):
    width: int
    name: Annotated[str, typer.Option(help="A name.")] = "x"


def measure(first: str, size: Size, last: bool = False) -> tuple[str, Size, bool]:
    return first, size, last


def test_their_fields_stand_in_their_place() -> None:
    verb = flat(measure)
    parameters = inspect.signature(verb).parameters
    assert list(parameters) == ["first", "width", "name", "last"]
    assert parameters["width"].default is inspect.Parameter.empty
    assert parameters["name"].default == "x"
    assert verb(first="a", width=3, name="y", last=True) == ("a", Size(3, "y"), True)


def test_a_verb_without_them_stays_as_it_is() -> None:
    def verb(first: str) -> None: ...

    assert flat(verb) is verb


READS = ["pretrain", "check", "prepare", "compare", "score", "evaluate", "probe", "tokenizer train"]


@pytest.mark.parametrize("verb", READS)
def test_verbs_that_read_text_are_told_how(verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run([*verb.split(), "--help"]) == 0
    said = capsys.readouterr().out
    for option in ("--field", "--target", "--documents", "--errors"):
        assert option in said
