"""Tiny models with random weights to probe."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from foreword.probes._words import read_words
from foreword.runs.recipe import Recipe
from foreword.settings import config
from foreword.text.tokenizer import Tokenizer
from foreword.text.tokenizers.word import Word
from foreword.vectors.questions import read_analogies
from tests.evaluation.conftest import write_run

FAMILIES: dict[str, dict[str, Any]] = {
    "encoder": {"model": "transformer", "objective": "masked", "layout": "encoder"},
    "decoder": {"model": "transformer", "objective": "causal", "layout": "decoder"},
    "encoder_decoder": {
        "model": "encoder_decoder",
        "objective": "span_corruption",
        "layout": "encoder_decoder",
    },
    "lstm": {"model": "lstm", "objective": "causal", "layout": "decoder"},
    "elmo": {"model": "elmo", "objective": "bidirectional", "layout": "bidirectional"},
    "fixed_window": {"model": "fixed_window", "objective": "causal", "layout": "decoder"},
}
SIZES = {"d_model": 16, "layers": 2}


def sentences() -> list[str]:
    """Return the sentences of the English list, as text for a tokenizer and for probes."""
    return [p.text for word in read_words("english") for sense in word.senses for p in sense]


def words() -> list[str]:
    """Return the sentences, and the words of the analogies."""
    questions = [" ".join(four) for section in read_analogies(None) for four in section.questions]
    return [*sentences(), *questions]


@pytest.fixture(autouse=True)
def few_draws(monkeypatch: pytest.MonkeyPatch) -> None:
    """Draw less often for intervals: what is promised holds for any number."""
    for module in ("evaluation.statistics", "probes._suite"):
        monkeypatch.setattr(f"foreword.{module}.DRAWS", 200)


@pytest.fixture(scope="session")
def tokenizer() -> Tokenizer:
    return Word(min_count=1).train(words())


@pytest.fixture(scope="session")
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("text") / "text.txt"
    path.write_text("\n\n".join(sentences()), encoding="utf-8")
    return path


@pytest.fixture
def make_run(tmp_path: Path, tokenizer: Tokenizer) -> Callable[[str], Path]:
    """Return a function that writes the run folder of a family with random weights."""

    def make(family: str) -> Path:
        kinds = FAMILIES[family]
        heads = {} if family in ("lstm", "elmo", "fixed_window") else {"heads": 2}
        recipe = config.build(
            Recipe,
            {
                "model": {"kind": kinds["model"], **SIZES, **heads, "init_std": 0.2},
                "objective": kinds["objective"],
                "layout": kinds["layout"],
                "packing": {"kind": "stream", "length": 24},
                "train": {"batch": 4, "device": "cpu"},
            },
        )
        return write_run(tmp_path / family, recipe, tokenizer)

    return make


@pytest.fixture
def refused(capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """Return a function that runs a command that must be refused, and returns its one line."""
    from foreword.cli.main import run as command

    def refuse(*words: object) -> str:
        assert command([str(word) for word in words]) == 2
        captured = capsys.readouterr()
        assert captured.out == "" and captured.err.count("\n") == 1
        return captured.err

    return refuse
