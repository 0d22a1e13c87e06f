"""Commands asked in this process: what they tell a program, and the line with which they refuse."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from foreword.cli.main import run

Told = Callable[..., Any]
Refused = Callable[..., str]


@pytest.fixture
def told(capsys: pytest.CaptureFixture[str]) -> Told:
    """Run a command that works, and return the JSON document that it prints."""

    def tell(*words: object) -> Any:
        capsys.readouterr()
        assert run([*map(str, words), "--json"]) == 0
        return json.loads(capsys.readouterr().out)

    return tell


@pytest.fixture
def refused(capsys: pytest.CaptureFixture[str]) -> Refused:
    """Run a command that is refused, and return its one line, the last."""

    def refuse(*words: object) -> str:
        capsys.readouterr()
        assert run([str(word) for word in words]) == 2
        captured = capsys.readouterr()
        assert captured.out == "" and "Traceback" not in captured.err
        lines = captured.err.splitlines()
        assert [line for line in lines if line.startswith("foreword: ")] == lines[-1:]
        return lines[-1]

    return refuse
