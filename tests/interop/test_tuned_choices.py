"""Models that choose as folders that `AutoModelForMultipleChoice` reads."""

from __future__ import annotations

from pathlib import Path

import pytest

from foreword import tune
from foreword.cli.main import run as command

from .test_tuned_export import FAST, export, tiny_run

pytest.importorskip("transformers")

QUESTIONS = [
    {"question": "the cat", "options": ["sat on the mat", "looked"], "answer": 0},
    {"article": "a dog sat", "question": "the dog", "options": ["mat", "sat", "it"], "answer": 1},
] * 4
FAMILIES = ("bert", "roberta", "albert", "electra", "bigbird", "modernbert", "xlnet")


@pytest.mark.product(few=1)
@pytest.mark.parametrize("name", FAMILIES)
def test_the_exported_model_scores_options_as_ours_does(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = tiny_run(tmp_path / "run", name)
    tuned = tune(run, QUESTIONS, QUESTIONS, task="choice", **FAST).out
    facts = export(tuned, tmp_path / "hf", capsys)
    assert facts["architecture"].endswith("ForMultipleChoice")
    assert facts["logit_difference"] < 1e-4 * max(1, facts["greatest_logit"])
    assert facts["greatest_logit"] > 0.01


def test_a_decoder_is_refused_in_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = tiny_run(tmp_path / "run", "gpt2")
    tuned = tune(run, QUESTIONS, QUESTIONS, task="choice", **FAST).out
    assert command(["export", str(tuned), "--out", str(tmp_path / "hf")]) == 2
    error = capsys.readouterr().err.splitlines()[-1]
    assert "transformers has no MultipleChoice for gpt2" in error
