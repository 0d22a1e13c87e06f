"""The options of the command line: their ranges, and what is refused."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, get_args, get_origin

import pytest

from foreword.cli.main import run
from foreword.errors import UserError
from foreword.settings import kinds
from foreword.settings.ranges import range_of
from foreword.verbs._contract import VerbArgument, arguments_of
from foreword.verbs.report import Report


def every_argument() -> list[tuple[str, VerbArgument]]:
    return [
        (verb, argument)
        for folder in ("verbs", "verbs/tokenizer")
        for verb in kinds.names(folder)
        for argument in arguments_of(kinds.load(folder, verb))
    ]


def numbers(hint: Any) -> Iterator[Any]:
    if hint in (int, float) or range_of(hint) is not None:
        yield hint
    for arg in get_args(hint)[: 1 if get_origin(hint) is Annotated else None]:
        if range_of(hint) is None:
            yield from numbers(arg)


def test_every_numeric_option_states_its_range() -> None:
    hints_of_options = {
        f"{verb} {argument.name}": list(numbers(argument.hint))
        for verb, argument in every_argument()
    }
    assert len([hints for hints in hints_of_options.values() if hints]) > 30
    assert [name for name, hints in hints_of_options.items() if None in map(range_of, hints)] == []


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("generate RUN x --temperature nan", "--temperature: must be a number from 0 to 1,000"),
        ("generate RUN x --beams 9223372036854775808", "--beams: must be a whole number from 0"),
        ("translate RUN --source x --alignment 0", "--alignment: must be a whole number from 1"),
        ("pretrain bert_tiny --data x --out y --hours inf", "--hours: must be a number above 0"),
        ("prepare x --out y --heldout nan", "--heldout: must be a number of at least 0"),
        ("tune RUN --train x --dev y --lr inf", "--lr: must be a number above 0"),
    ],
)
def test_a_number_out_of_range_is_refused_in_one_line(
    words: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(words.split()) == 2
    error = capsys.readouterr().err
    assert error.startswith(f"foreword: {message}") and error.count("\n") == 1


def test_every_argument_that_is_a_path_refuses_an_empty_one() -> None:
    paths = [a for _, a in every_argument() if a.is_path and a.words is not None]
    assert len(paths) > 30
    for argument in paths:
        with pytest.raises(UserError, match=f"^{argument.flag}: the path is empty"):
            argument.checked([""] if get_origin(argument.words) is list else "")
    with pytest.raises(UserError, match="--out: expected a path, got 3"):
        Report("run", 3)  # type: ignore[arg-type]


@pytest.mark.parametrize("words", ["report RUN --out @", "tune RUN --train x --dev @", "show @"])
def test_an_empty_path_is_refused_in_one_line(
    words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["" if word == "@" else word for word in words.split()]) == 2
    assert capsys.readouterr().err.endswith(": the path is empty; '.' is the current folder\n")


READS = ["pretrain", "check", "prepare", "compare", "score", "evaluate", "probe", "tokenizer train"]


@pytest.mark.parametrize("verb", READS)
def test_verbs_that_read_text_share_its_options(
    verb: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run([*verb.split(), "--help"]) == 0
    output = capsys.readouterr().out
    for option in ("--field", "--target", "--documents", "--errors"):
        assert option in output
