"""The options of the command line: their ranges, and what is refused."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, get_args, get_origin

import pytest

from foreword.cli.main import run
from foreword.settings import kinds
from foreword.settings.ranges import range_of
from foreword.verbs._contract import arguments_of


def every_option() -> list[tuple[str, str, Any]]:
    return [
        (verb, argument.name, argument.hint)
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
        f"{verb} {name}": list(numbers(hint)) for verb, name, hint in every_option()
    }
    assert len([hints for hints in hints_of_options.values() if hints]) > 30
    assert [name for name, hints in hints_of_options.items() if None in map(range_of, hints)] == []


@pytest.mark.product(few=5)
@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("generate RUN x --temperature nan", "--temperature: must be a number from 0 to 1,000"),
        ("generate RUN x --top-p inf", "--top-p: must be a number above 0 and at most 1"),
        ("generate RUN x --tokens 0", "--tokens: must be a whole number from 1"),
        ("generate RUN x --seed -1", "--seed: must be a whole number from 0"),
        ("generate RUN x --beams 9223372036854775808", "--beams: must be a whole number from 0"),
        ("translate RUN --source x --alignment 0", "--alignment[0]: must be a whole number from 1"),
        ("fill RUN x --top -3", "--top: must be a whole number from 1"),
        ("evaluate RUN --streams -1", "--streams: must be a whole number from 0"),
        ("pretrain bert_tiny --data x --out y --hours inf", "--hours: must be a number above 0"),
        ("pretrain bert_tiny --data x --out y --tokens nan", "--tokens: must be a number above 0"),
        ("prepare x --out y --workers 9223372036854775808", "--workers: must be a whole number"),
        ("prepare x --out y --heldout 7", "--heldout: must be a number of at least 0 and below 1"),
        ("prepare x --out y --heldout nan", "--heldout: must be a number of at least 0"),
        ("tune RUN --train x --dev y --lr inf", "--lr[0]: must be a number above 0"),
        ("tokenizer trace --merges -1", "--merges: must be a whole number from 0"),
    ],
)
def test_a_number_out_of_range_is_refused_in_one_line(
    words: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(words.split()) == 2
    error = capsys.readouterr().err
    assert error.startswith(f"foreword: {message}") and error.count("\n") == 1


@pytest.mark.product(few=5)
@pytest.mark.parametrize(
    ("words", "name"),
    [
        ("pretrain bert_tiny --data @ --out y", "--data"),
        ("pretrain bert_tiny --data x @ --out y", "MORE"),
        ("pretrain bert_tiny --data x --out @", "--out"),
        ("pretrain bert_tiny --data x --out y --heldout @", "--heldout"),
        ("pretrain bert_tiny --data x --out y --tokenizer @", "--tokenizer"),
        ("check bert_tiny --data x --from @", "--from"),
        ("prepare @ --out y", "TEXT"),
        ("prepare x --out @", "--out"),
        ("tokenizer train @ --out y", "FILES"),
        ("tokenizer show @", "FOLDER"),
        ("tune RUN --train x --dev @", "--dev"),
        ("tune RUN --train x --dev y --out @", "--out"),
        ("compare ladder --data @ --hours 1 --out y", "--data"),
        ("compare ladder --tasks @ --hours 1 --out y", "--tasks"),
        ("evaluate RUN --data @", "--data"),
        ("score RUN --file @", "--file"),
        ("probe @ similarity", "RUN"),
        ("export @ --out y", "RUN"),
        ("import @ --out y", "MODEL"),
        ("report RUN --out @", "--out"),
    ],
)
def test_an_empty_path_is_refused(
    words: str, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["" if word == "@" else word for word in words.split()]) == 2
    error = capsys.readouterr().err
    assert error == f"foreword: {name}: the path is empty; '.' is the current folder\n"


READS = ["pretrain", "check", "prepare", "compare", "score", "evaluate", "probe", "tokenizer train"]


@pytest.mark.parametrize("verb", READS)
def test_verbs_that_read_text_share_its_options(
    verb: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run([*verb.split(), "--help"]) == 0
    output = capsys.readouterr().out
    for option in ("--field", "--target", "--documents", "--errors"):
        assert option in output
