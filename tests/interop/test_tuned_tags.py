"""Taggers as folders that `AutoModelForTokenClassification` reads."""

from __future__ import annotations

from pathlib import Path

import pytest

from foreword import tune
from foreword.cli.main import run as command
from foreword.tuning.tuned_model import load_tuned

from .test_tuned_export import FAST, LONG, export, tiny_run

transformers = pytest.importorskip("transformers")

TAGS = ["D", "N", "V"]
SENTENCES = [(["the", "cat", "sat"], TAGS), (["a", "dog", "looked"], TAGS)] * 4
FAMILIES = ("bert", "roberta", "albert", "electra", "bigbird", "longformer", "modernbert", "xlnet")


@pytest.mark.product(only=("bert", "gpt2"))
@pytest.mark.parametrize("name", [*FAMILIES, "gpt2", "modern_decoder", "t5"])
def test_the_pipeline_gives_our_labels_and_probabilities(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = tiny_run(tmp_path / "run", name)
    tuned = tune(run, SENTENCES, SENTENCES, task="tag", **FAST).out
    facts = export(tuned, tmp_path / "hf", capsys)
    assert facts["architecture"].endswith("ForTokenClassification")
    assert facts["logit_difference"] < 1e-4 * max(1, facts["greatest_logit"])
    weights = transformers.AutoModelForTokenClassification.from_pretrained(
        tmp_path / "hf", output_loading_info=True
    )[1]
    assert not weights["missing_keys"]
    assert not weights["unexpected_keys"]
    tag = transformers.pipeline("token-classification", str(tmp_path / "hf"), device="cpu")
    # With this aggregation a word has the label of its first token, and there are no entities.
    predicted = tag("the cat sat on the mat", aggregation_strategy="none", ignore_labels=[])
    starts = {one["start"]: one for one in predicted[::-1]}
    (labels,), (shares,) = load_tuned(tuned, "cpu").predict(["the cat sat on the mat"])
    ours = [starts[n] if n in starts else starts[n - 1] for n in (0, 4, 8, 12, 15, 19)]
    assert [one["entity"] for one in ours] == labels
    assert [one["score"] for one in ours] == pytest.approx(shares, abs=1e-4)


def test_a_family_without_such_a_class_is_refused_in_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tuned = tune(tiny_run(tmp_path / "run", "gpt1"), SENTENCES, SENTENCES, task="tag", **FAST).out
    assert command(["export", str(tuned), "--out", str(tmp_path / "hf")]) == 2
    error = capsys.readouterr().err.splitlines()[-1]
    assert "transformers has no TokenClassification for openai_gpt" in error
    assert not (tmp_path / "hf").exists()


@pytest.mark.full
def test_a_long_sentence_is_tagged_to_its_end(tmp_path: Path) -> None:
    run = tiny_run(tmp_path / "run", "bert")
    model = load_tuned(tune(run, SENTENCES, SENTENCES, task="tag", **FAST).out, "cpu")
    ((labels,), _) = model.predict([LONG])
    assert len(labels) == len(LONG.split())
    assert len(model.tokenizer.encode(LONG)) > model.max_tokens
