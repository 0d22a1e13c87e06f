"""Models of other tasks than classifying as folders that the classes of `transformers` read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from foreword import tune
from foreword.cli.main import run as command
from foreword.tuning.tuned_model import load_tuned

from .test_hf import FAST, LONG, export, tiny_run

transformers = pytest.importorskip("transformers")

QUESTIONS = [
    {"question": "the cat", "options": ["sat on the mat", "looked"], "answer": 0},
    {"article": "a dog sat", "question": "the dog", "options": ["mat", "sat", "it"], "answer": 1},
] * 4
ANSWER = {"text": "sat", "answer_start": 8}
PASSAGES = [
    {"context": "the cat sat on the mat", "question": "the cat", "answers": [ANSWER]},
    {"context": "a dog looked", "question": "the cat", "answers": []},
] * 4
TAGS = ["D", "N", "V"]
SENTENCES = [(["the", "cat", "sat"], TAGS), (["a", "dog", "looked"], TAGS)] * 4
EXAMPLES: dict[str, Any] = {"choice": QUESTIONS, "span": PASSAGES, "tag": SENTENCES}
ENCODERS = ("bert", "roberta", "albert", "electra", "modernbert")
TAGGERS = (*ENCODERS, "bigbird", "longformer", "xlnet", "gpt2", "modern_decoder", "t5")
SCORED = [
    *(("choice", "MultipleChoice", name) for name in (*ENCODERS, "bigbird", "xlnet")),
    *(("span", "QuestionAnswering", name) for name in (*ENCODERS, "gpt2")),
]


@pytest.mark.product(only=("choice-MultipleChoice-bert", "span-QuestionAnswering-gpt2"))
@pytest.mark.parametrize(("task", "theirs", "name"), SCORED)
def test_the_exported_model_scores_as_ours_does(
    task: str, theirs: str, name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = tiny_run(tmp_path / "run", name)
    tuned = tune(run, EXAMPLES[task], EXAMPLES[task], task=task, **FAST).out
    facts = export(tuned, tmp_path / "hf", capsys)
    assert facts["architecture"].endswith(f"For{theirs}")
    assert facts["logit_difference"] < 1e-4 * max(1, facts["greatest_logit"])
    assert facts["greatest_logit"] > 0.01


@pytest.mark.product(few=1)
@pytest.mark.parametrize(
    ("task", "name", "message"),
    [
        ("tag", "gpt1", "TokenClassification for openai_gpt"),
        ("choice", "gpt2", "MultipleChoice for gpt2"),
        *(("span", name, f"QuestionAnswering for {name}") for name in ("xlnet", "longformer")),
        ("span", "t5", "QuestionAnswering for t5"),
    ],
)
def test_a_family_without_such_a_class_is_refused_in_one_line(
    task: str, name: str, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = tiny_run(tmp_path / "run", name)
    tuned = tune(run, EXAMPLES[task], EXAMPLES[task], task=task, **FAST).out
    assert command(["export", str(tuned), "--out", str(tmp_path / "hf")]) == 2
    assert f"transformers has no {message}" in capsys.readouterr().err.splitlines()[-1]
    assert not (tmp_path / "hf").exists()


@pytest.mark.product(only=("bert", "gpt2"))
@pytest.mark.parametrize("name", TAGGERS)
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


@pytest.mark.full
def test_a_long_sentence_is_tagged_to_its_end(tmp_path: Path) -> None:
    run = tiny_run(tmp_path / "run", "bert")
    model = load_tuned(tune(run, SENTENCES, SENTENCES, task="tag", **FAST).out, "cpu")
    ((labels,), _) = model.predict([LONG])
    assert len(labels) == len(LONG.split())
    assert len(model.tokenizer.encode(LONG)) > model.max_tokens
