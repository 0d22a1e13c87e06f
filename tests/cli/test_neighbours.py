"""Neighbours of words that a model has in pieces."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from foreword.cli.main import run as command
from foreword.text.tokenizers.bpe import BPE

from ..probes import conftest
from ..probes.conftest import make_run  # noqa: F401 - a fixture


@pytest.fixture
def tokenizer() -> object:
    return BPE(vocab=400).train(conftest.sentences())


def test_a_note_names_the_pieces_of_a_word(
    make_run: Callable[[str], Path],  # noqa: F811
    capsys: pytest.CaptureFixture[str],
) -> None:
    run = str(make_run("decoder"))
    assert command(["neighbours", run, "pond", "the", "--top", "2"]) == 0
    assert capsys.readouterr().err == "'pond' is split into p·o·nd: the mean of their vectors\n"
    assert command(["neighbours", run, "pond", "--json", "--top", "2"]) == 0
    captured = capsys.readouterr()
    assert len(json.loads(captured.out)["pond"]) == 2 and "p·o·nd" in captured.err
