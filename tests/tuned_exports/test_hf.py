"""Fine-tuned models as folders that `AutoModelForSequenceClassification` reads."""

from __future__ import annotations

import json
import random
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from foreword import tune
from foreword.cli.main import run as command
from foreword.interop import check_logits, importing
from foreword.runs.recipe import load_recipe
from foreword.runs.run_folder import open_run
from foreword.text.tokenizers.wordpiece import WordPiece
from foreword.tuned_exports.folder import cutting
from foreword.tuned_exports.hf import export as export_hf
from foreword.tuning.input_template import Pooling
from foreword.tuning.tasks.classify import Classify
from foreword.tuning.tuned_model import TunedModel, load_tuned
from tests.evaluation.conftest import TEXTS, write_run
from tests.interop import theirs

transformers = pytest.importorskip("transformers")

FAST: dict[str, Any] = {
    "strategy": "full", "seeds": 1, "epochs": 1, "device": "cpu", "progress": False,
}  # fmt: skip
EXAMPLES = [("the cat sat", "cat"), ("a dog looked at the mat", "dog"), ("sat", "neither")] * 4
PAIRS = [("the cat", "yes", "sat on the mat"), ("a dog", "no", "mat")] * 4
LONG = "the cat sat on the mat and a dog looked at it " * 20
# The pooling and the hidden layer of each family's class.
FAMILIES = {
    "bert": ("first", "tanh"),
    "roberta": ("first", "tanh"),
    "albert": ("first", "tanh"),
    "electra": ("first", "gelu"),
    "bigbird": ("first", "gelu_tanh"),
    "longformer": ("first", "tanh"),
    "modernbert": ("mean", "gelu_norm"),
    "modern_encoder": ("mean", "gelu_norm"),
    "spanbert": ("first", "tanh"),
    "xlnet": ("last", "none"),
    "gpt2": ("last", "none"),
    "gpt1": ("last", "none"),
    "modern_decoder": ("last", "none"),
}
PRETRAIN = (
    "pretrain {}_tiny --data books.txt --out run --steps 1 --quiet --set train.device=cpu --set "
    "tokenizer.vocab=400 --set packing.length=32 --set prepare.heldout=0.2"
)
TUNE = (
    "tune run --task classify --train train.tsv --dev train.tsv --compare --name mine --seeds 1 "
    "--epochs 1 --device cpu --quiet"
)
SEQUENCE = ("bert", "xlnet", "gpt2")


def tiny_run(folder: Path, name: str, *settings: str) -> Path:
    recipe = load_recipe(f"{name}_tiny", ["model.init_std=0.2", *settings])
    return write_run(folder, recipe, WordPiece(vocab=180).train(TEXTS * 4))


def cut(tuned: TunedModel) -> TunedModel:
    """Return a model that cuts long texts, as the classes of transformers do."""
    return replace(tuned, task=cutting(tuned.task))


def export(tuned: Path, out: Path, capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    capsys.readouterr()
    status = command(["export", str(tuned), "--out", str(out), "--json"])
    output = capsys.readouterr()
    assert status == 0, output.err
    facts: dict[str, Any] = json.loads(output.out)
    return facts


@pytest.mark.product(only=("bert", "xlnet", "gpt2"))
@pytest.mark.parametrize("name", FAMILIES)
def test_the_pipeline_gives_our_labels_and_probabilities(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = tiny_run(tmp_path / "run", name)
    limit = 16 if name == "longformer" else None
    tuned = tune(run, EXAMPLES, EXAMPLES, max_length=limit, **FAST).out
    task = load_tuned(tuned, "cpu").task
    assert isinstance(task, Classify)
    assert (task.pooling, task.hidden_layer) == FAMILIES[name]
    facts = export(tuned, tmp_path / "hf", capsys)
    assert facts["architecture"].endswith("ForSequenceClassification")
    assert facts["logit_difference"] < 1e-4 * max(1, facts["greatest_logit"])
    weights = transformers.AutoModelForSequenceClassification.from_pretrained(
        tmp_path / "hf", output_loading_info=True
    )[1]
    assert not weights["missing_keys"]
    assert not weights["unexpected_keys"]
    texts = [*(text for text, _ in EXAMPLES[:3]), *([] if name == "bigbird" else [LONG])]
    labels, shares = cut(load_tuned(tuned, "cpu")).predict(texts)
    classify = transformers.pipeline(
        "text-classification", str(tmp_path / "hf"), device="cpu", truncation=True
    )
    predicted = classify(texts, batch_size=len(texts))
    assert [one["label"] for one in predicted] == labels
    assert [one["score"] for one in predicted] == pytest.approx(shares.max(1).tolist(), abs=1e-4)


@pytest.mark.product(few=1)
@pytest.mark.parametrize("name", ["bert", "roberta", "xlnet", "gpt2"])
def test_pairs_are_told_apart_as_in_tuning(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = tiny_run(tmp_path / "run", name)
    tuned = tune(run, PAIRS, PAIRS, **FAST).out
    export(tuned, tmp_path / "hf", capsys)
    classify = transformers.pipeline("text-classification", str(tmp_path / "hf"), device="cpu")
    firsts, seconds = [p[0] for p in PAIRS[:2]], [p[2] for p in PAIRS[:2]]
    labels, shares = load_tuned(tuned, "cpu").predict(firsts, seconds)
    given = [{"text": a, "text_pair": b} for a, b in zip(firsts, seconds, strict=True)]
    predicted = classify(given)
    assert [one["label"] for one in predicted] == labels
    assert [one["score"] for one in predicted] == pytest.approx(shares.max(1).tolist(), abs=1e-4)


@pytest.mark.full
@pytest.mark.parametrize("name", ["bert", "gpt2", "modern_encoder"])
def test_low_rank_changes_are_in_the_exported_weights(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = tiny_run(tmp_path / "run", name)
    tuned = tune(run, EXAMPLES, EXAMPLES, **{**FAST, "strategy": "lora", "lr": 0.1}).out
    facts = export(tuned, tmp_path / "hf", capsys)
    assert facts["logit_difference"] < 1e-4 * max(1, facts["greatest_logit"])
    before = open_run(run, "cpu").model.backbone.state_dict()
    after = load_tuned(tuned, "cpu").network.backbone.state_dict()
    assert before.keys() == after.keys()
    assert any(not torch.equal(after[name], before[name]) for name in before)


@pytest.mark.full
def test_a_number_is_the_output_of_one_label(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    numbers = [(text, str(10 * len(text))) for text, _ in EXAMPLES]
    run = tiny_run(tmp_path / "run", "gpt2")
    tuned = tune(run, numbers, numbers, task="regress", **FAST).out
    export(tuned, tmp_path / "hf", capsys)
    classify = transformers.pipeline("text-classification", str(tmp_path / "hf"), device="cpu")
    assert classify.model.config.problem_type == "regression"
    predicted = classify("the cat sat", function_to_apply="none")[0]["score"]
    assert predicted == pytest.approx(
        load_tuned(tuned, "cpu").outputs(["the cat sat"])[0, 0], rel=1e-3
    )


@pytest.mark.full
@pytest.mark.parametrize("pooling", ["mean", "max"])
def test_another_head_is_refused_with_the_settings_that_fit(
    pooling: Pooling, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = tiny_run(tmp_path / "run", "bert")
    chosen = {"task.pooling": pooling}
    tuned = tune(run, EXAMPLES, EXAMPLES, settings=chosen, **FAST).out
    assert load_tuned(tuned, "cpu").task == Classify(pooling=pooling)
    assert command(["export", str(tuned), "--out", str(tmp_path / "hf")]) == 2
    output = capsys.readouterr().err
    assert "BertForSequenceClassification computes something else; tune with" in output
    assert "--set task.pooling=first --set task.hidden_layer=tanh" in output
    assert not (tmp_path / "hf").exists()
    assert command(["export", str(tuned), "--out", str(tmp_path / "a"), "--format", "arpa"]) == 2
    assert "a fine-tuned model is exported as hf" in capsys.readouterr().err


@pytest.mark.full
def test_longformer_is_refused_beyond_the_window_where_theirs_differs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = tiny_run(tmp_path / "run", "longformer")
    tuned = tune(run, EXAMPLES, EXAMPLES, **FAST).out
    assert command(["export", str(tuned), "--out", str(tmp_path / "hf")]) == 2
    assert "gives the first token global attention" in capsys.readouterr().err


def test_a_hidden_layer_starts_from_the_pretrained_pooler(tmp_path: Path) -> None:
    theirs.write("bert-pretraining", tmp_path / "theirs")
    importing.save(importing.read(tmp_path / "theirs"), tmp_path / "run")
    trained = open_run(tmp_path / "run", "cpu")
    pooler: Any = trained.model.heads["pair"]
    done = tune(
        tmp_path / "run", [("w3", "a"), ("w4", "b")], [("w3", "a")],
        **{**FAST, "strategy": "frozen", "lr": 1e-9},
    )  # fmt: skip
    dense: Any = load_tuned(done.out, "cpu").network.head[0]  # type: ignore[index]
    assert torch.allclose(dense.weight, pooler.pooler.weight, atol=1e-5)


@pytest.mark.full
def test_more_labels_than_the_model_is_wide_are_refused_without_an_output_bias(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    examples = [(f"the cat sat {n}", f"label {n}") for n in range(130)]
    tuned = tune(tiny_run(tmp_path / "run", "gpt2"), examples, examples[:5], **FAST).out
    assert command(["export", str(tuned), "--out", str(tmp_path / "hf")]) == 2
    assert "at most as many labels as the model is wide (128)" in capsys.readouterr().err
    assert not (tmp_path / "hf").exists()


@pytest.mark.product(few=1)
@pytest.mark.parametrize("is_tuned", [False, True], ids=["pretrained", "tuned"])
def test_an_export_that_fails_its_check_leaves_no_folder(
    is_tuned: bool,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    folder = tiny_run(tmp_path / "run", "gpt2")
    if is_tuned:
        folder = tune(folder, EXAMPLES, EXAMPLES, **FAST).out
    monkeypatch.setattr(check_logits, "TOLERANCE", 0.0)
    out = tmp_path / "made" / "hf"
    assert command(["export", str(folder), "--out", str(out)]) == 2
    assert re.search(rf"{out}: .*differ from those of transformers", capsys.readouterr().err)
    assert list(out.parent.iterdir()) == []


@pytest.mark.full
@pytest.mark.parametrize("length", [14, 15])
def test_a_pair_that_is_cut_has_the_same_logits(length: int, tmp_path: Path) -> None:
    run = tiny_run(tmp_path / "run", "bert")
    tuned = tune(run, PAIRS, PAIRS, max_length=length, **FAST).out
    model = load_tuned(tuned, "cpu")
    export_hf(model, tmp_path / "hf")
    hf = transformers.AutoModelForSequenceClassification.from_pretrained(tmp_path / "hf").eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / "hf")
    firsts, seconds = ["cat " * 20, "dog " * 20, "mat " * 9], ["sat " * 20, "mat " * 9, "cat " * 20]
    batch = tokenizer(firsts, seconds, truncation=True, padding=True, return_tensors="pt")
    with torch.no_grad():
        logits = hf(**batch).logits.numpy()
    assert logits == pytest.approx(model.outputs(firsts, seconds), abs=1e-4)


@pytest.mark.product(few=1)
@pytest.mark.parametrize("name", SEQUENCE)
def test_pretrain_tune_export_works_without_settings(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    draw = random.Random(1)
    words = ["".join(draw.choices("abcdefghij", k=draw.randint(2, 7))) for _ in range(6000)]
    lines = [" ".join(words[n : n + 20]) for n in range(0, 6000, 20)]
    Path("books.txt").write_text("\n\n".join(lines), encoding="utf-8")
    table = "\n".join(["text\tlabel", *("\t".join(example) for example in EXAMPLES)])
    Path("train.tsv").write_text(table + "\n", encoding="utf-8")
    for line in (PRETRAIN.format(name), TUNE):
        assert command(line.split()) == 0, capsys.readouterr().err
    facts = export(Path("run/tuned/mine"), Path("classifier"), capsys)
    assert facts["logit_difference"] < 1e-4 * max(1, facts["greatest_logit"])


def test_models_without_a_class_in_transformers_keep_the_plain_head(tmp_path: Path) -> None:
    run = tiny_run(tmp_path / "run", "transformer_xl")
    tuned = tune(run, EXAMPLES, EXAMPLES, **FAST).out
    assert load_tuned(tuned, "cpu").task == Classify()


@pytest.mark.full
def test_the_export_says_how_to_cut_long_texts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tuned = tune(tiny_run(tmp_path / "run", "bert"), EXAMPLES, EXAMPLES, **FAST).out
    assert command(["export", str(tuned), "--out", str(tmp_path / "hf")]) == 0
    said = capsys.readouterr().err
    assert "tokens of tuning with truncation=True: pipeline(" in said
    assert "tokens Foreword reads whole, in windows; there it is cut" in said


def test_the_pipeline_gives_the_probability_of_each_of_several_labels(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = tiny_run(tmp_path / "run", "bert")
    examples = [("the cat sat", ["cat"]), ("a dog saw the cat", ["cat", "dog"]), ("sat", [])] * 4
    settings = {"task.temperature": 2.5}  # which the exported weights hold
    tuned = tune(run, examples, examples, settings=settings, **FAST).out
    assert export(tuned, tmp_path / "hf", capsys)["logit_difference"] < 1e-4
    config = json.loads((tmp_path / "hf" / "config.json").read_text(encoding="utf-8"))
    assert config["problem_type"] == "multi_label_classification"
    texts = [text for text, _ in examples[:3]]
    model = load_tuned(tuned, "cpu")
    _, shares = model.predict(texts)
    classify = transformers.pipeline(
        "text-classification", str(tmp_path / "hf"), device="cpu", top_k=None
    )
    for predicted, share in zip(classify(texts), shares, strict=True):
        found = {one["label"]: one["score"] for one in predicted}
        assert [found[label] for label in model.labels] == pytest.approx(share.tolist(), abs=1e-4)
