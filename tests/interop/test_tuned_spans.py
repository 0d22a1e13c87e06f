"""Models that answer with spans as folders that `AutoModelForQuestionAnswering` reads."""

from __future__ import annotations

from pathlib import Path

import pytest

from foreword import tune
from foreword.cli.main import run as command

from .test_tuned_export import FAST, export, tiny_run

pytest.importorskip("transformers")

QUESTIONS = [
    {
        "context": "the cat sat on the mat",
        "question": "the cat",
        "answers": [{"text": "sat", "answer_start": 8}],
    },
    {"context": "a dog looked", "question": "the cat", "answers": []},
] * 4


@pytest.mark.product(few=1)
@pytest.mark.parametrize("name", ["bert", "roberta", "albert", "electra", "modernbert", "gpt2"])
def test_the_exported_model_scores_both_ends_as_ours_does(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = tiny_run(tmp_path / "run", name)
    tuned = tune(run, QUESTIONS, QUESTIONS, task="span", **FAST).out
    facts = export(tuned, tmp_path / "hf", capsys)
    assert facts["architecture"].endswith("ForQuestionAnswering")
    assert facts["logit_difference"] < 1e-4 * max(1, facts["greatest_logit"])


@pytest.mark.product(few=1)
@pytest.mark.parametrize("name", ["xlnet", "longformer", "t5"])
def test_a_class_that_computes_something_else_is_refused(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = tiny_run(tmp_path / "run", name)
    tuned = tune(run, QUESTIONS, QUESTIONS, task="span", **FAST).out
    assert command(["export", str(tuned), "--out", str(tmp_path / "hf")]) == 2
    error = capsys.readouterr().err.splitlines()[-1]
    assert f"transformers has no QuestionAnswering for {name}" in error
