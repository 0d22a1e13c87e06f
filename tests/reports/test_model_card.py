"""Model cards: what an export says of itself, and what it keeps to itself."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import foreword
from foreword.disk import stored
from foreword.reports import model_card
from foreword.runs.recipe import load_recipe

RUN: dict[str, Any] = {
    "command": "foreword pretrain bert_tiny --data '/home/ada/my books/wiki.txt' --out=/srv/wiki",
    "texts": ["/home/ada/my books/wiki.txt", "s3://bucket/crawl.jsonl?token=secret"],
    "computed_on": "cpu, 2 threads",
    "precision": "bf16",
    "parameters": 1_200_000,
}
TRAIN = '{"kind": "train", "step": 60, "tokens": 2e5, "seconds": 84, "flops": 5e12, "lr": 1e-3}\n'
TUNED = {"task": {"kind": "classify"}, "labels": ["bad", "good"], "template": {"length": 48}}
ROW = {"start": "pretrained", "strategy": "full", "seeds": 2, "epochs": 1, "lr": 1e-3}
SCORES: dict[str, Any] = {
    "task": "classify",
    "rows": [
        {**ROW, "accuracy": 0.75, "accuracy_std": 0.01, "f1": None, "f1_std": None},
        {"start": "no model", "strategy": "majority class", "accuracy": 0.5, "f1": 0.3},
    ],
    "command": "foreword tune /srv/runs/wiki --train /home/ada/train.tsv --dev /home/ada/dev.tsv",
    "settings": {
        "strategy": {"kind": "full"},
        "batch": 16,
        "data": {"train": "/home/ada/train.tsv", "dev": "/home/ada/dev.tsv"},
    },
    "examples": {"train": 100, "dev": 40},
    "notes": ["warning: 3 rows of /home/ada/dev.tsv are in training too"],
}


@pytest.fixture
def tuned(tmp_path: Path) -> Path:
    run, tuned = tmp_path / "wiki", tmp_path / "wiki" / "tuned" / "reviews"
    tuned.mkdir(parents=True)
    (run / "recipe.toml").write_text(load_recipe("bert_tiny").dumps())
    (run / "metrics.jsonl").write_text(TRAIN)
    stored.write(run / "run.json", RUN)
    stored.write(tuned / "labels.json", TUNED)
    stored.write(tuned / "scores.json", SCORES)
    return tuned


def test_a_card_says_what_is_known_in_the_hubs_form(tuned: Path) -> None:
    card = model_card.card(tuned, "mine", "transformers", {"architecture": "BertModel"})
    for part in (
        'pipeline("text-classification", "mine")',
        "fine-tuned for the task `classify` (text-classification): bad, good.",
        "60 steps on 200,000 tokens in 1 min 24 s",
        "Text: wiki.txt, crawl.jsonl",
        "5.0 × 10¹² floating-point operations on cpu, 2 threads in bf16",
        "100 training examples (train.tsv)",
        "| pretrained, full | 0.750 ± 0.010 [0.598, 0.858] | – |",
        "It reads at most 48 tokens at once.",
        "Its bias was not measured",
        "3 rows of dev.tsv are in training too",
        "foreword pretrain bert_tiny --data wiki.txt --out=wiki",
        "foreword tune wiki --train train.tsv --dev dev.tsv",
    ):
        assert part in card
    for secret in ("/home", "ada", "/srv", "my books", "bucket", "secret", str(tuned.parent)):
        assert secret not in card
    cards = pytest.importorskip("huggingface_hub").ModelCard
    data = cards(card).data
    assert data.pipeline_tag == "text-classification"
    assert data.model_name == "mine"
    ((metric, value, dataset),) = [
        (each.metric_type, each.metric_value, each.dataset_name) for each in data.eval_results
    ]
    assert (metric, value, dataset) == ("accuracy", 0.75, "dev.tsv")


def test_a_card_of_a_model_that_stands_alone_leaves_out_what_is_not_known(tuned: Path) -> None:
    alone = tuned.rename(tuned.parents[2] / "alone")
    (alone / "recipe.toml").write_text(load_recipe("gpt2_tiny").dumps())
    (alone / "scores.json").unlink()
    card = model_card.card(alone, "mine", "onnx", {})
    assert 'InferenceSession("mine/model.onnx")' in card
    for heading in ("Pretraining", "Fine-tuning", "Scores", "How it was made"):
        assert f"## {heading}\n" not in card
    run = model_card.card(alone.parent / "wiki", "mine", "transformers", {})
    assert 'pipeline("fill-mask", "mine")' in run
    assert "foreword import mine --out RUN" in run


def test_a_card_of_a_run_has_what_was_measured_with_intervals(tuned: Path) -> None:
    run = tuned.parents[1]
    row = {"model": "wiki", "accuracy": 0.5, "low": 0.4, "high": 0.6}
    content = {"name": "blimp", "task": "blimp", "command": "", "title": "BLiMP", "rows": [row]}
    (run / "evaluations").mkdir()
    stored.write(run / "evaluations" / "blimp.json", content)
    assert foreword.report(run) is not None
    card = (run / "README.md").read_text()
    assert 'foreword.load("wiki")' in card
    assert "BLiMP:\n\n| model | accuracy | interval |\n| --- | --- | --- |\n" in card
    assert "| wiki | 0.5000 | 0.400 to 0.600 |" in card


def test_a_card_of_a_model_scored_in_folds_says_that_it_learned_from_all(tuned: Path) -> None:
    stored.write(tuned / "scores.json", {**SCORES, "settings": {**SCORES["settings"], "folds": 2}})
    card = model_card.card(tuned, "mine", "transformers", {})
    assert "standard deviation over 2 folds; this model learned from all; in brackets" in card
    assert "folds 2" in card and "seeds" not in card and "dev examples" not in card


def test_a_card_has_the_thresholds_of_several_labels(tuned: Path) -> None:
    def said(*thresholds: float) -> str:
        task = {"kind": "multilabel", "thresholds": thresholds}
        stored.write(tuned / "labels.json", {**TUNED, "task": task})
        return model_card.card(tuned, "mine", "transformers", {})

    assert "from its own probability on: bad 0.213, good 0.5.\n" in said(0.21312, 0.5)
    assert "A label is predicted from a probability of 0.3 on.\n" in said(0.3)
    assert "predicted from" not in said()


def test_a_card_marks_upper_bounds(tuned: Path) -> None:
    run = tuned.parents[1]
    (run / "metrics.jsonl").write_text(
        TRAIN + '{"kind": "heldout", "step": 60, "loss": 5.5, "is_bound": true}\n'
    )
    row = {"text": "new", "loss": 5.25, "perplexity": 190.6, "is_bound": True}
    content = {"name": "new", "task": "text", "command": "", "title": "New", "rows": [row]}
    (run / "evaluations").mkdir()
    stored.write(run / "evaluations" / "new.json", content)
    assert foreword.report(run) is not None
    card = (run / "README.md").read_text()
    assert "Held-out loss: at most 5.500 nats" in card
    assert "| new | at most 5.25" in card
    assert "is_bound" not in card
