"""ONNX graphs of tuned and pretrained models, as onnxruntime and tokenizers read them."""

from __future__ import annotations

import importlib.util
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.special import softmax
from tokenizers import Tokenizer

from foreword import load, tune
from foreword.cli.main import run as command
from foreword.tuned_exports.folder import cutting
from foreword.tuning.tuned_model import load_tuned

from .test_heads import PASSAGES, QUESTIONS, SENTENCES
from .test_hf import EXAMPLES, FAST, LONG, PAIRS, tiny_run

onnxruntime = pytest.importorskip("onnxruntime", reason="requires foreword[onnx]")
pytest.importorskip("onnxscript", reason="requires foreword[onnx]")

NUMBERS = [("the cat sat", 1.5), ("a dog looked at the mat", 4.0), ("sat", 2.0)] * 4
ALIKE = [("the cat sat", "a cat on the mat"), ("a dog looked", "the dog"), ("it", "mat")] * 4
TEXTS = ["the cat sat on the mat", "a dog", LONG]
ONE = "model.layers=1"  # an export takes seconds for each layer
CUT = {"task.windows": "cut"}  # as a graph reads a long text
# Each task: a family, examples, settings, and the first two dimensions of each output.
TASKS: dict[str, tuple[str, Any, dict[str, Any], dict[str, list[Any]]]] = {
    "classify": ("t5", EXAMPLES, CUT, {"logits": ["batch", 3]}),
    "regress": ("lstm", NUMBERS, {**CUT, "task.mix_layers": True}, {"logits": ["batch", 1]}),
    "embed": ("modernbert", ALIKE, CUT, {"sentence_embedding": ["batch", 128]}),
    "tag": ("gpt2", SENTENCES, {}, {"logits": ["batch", "length"]}),
    "span": (
        "bert",
        PASSAGES,
        {},
        {"start_logits": ["batch", "length"], "end_logits": ["batch", "length"]},
    ),
    "choice": ("bert", QUESTIONS, {}, {"logits": ["batch", "options"]}),
}
FAMILIES = (
    "bert", "roberta", "albert", "electra", "longformer", "linformer", "xlnet", "gpt1", "gpt2",
    "modern_decoder", "transformer_xl", "gpt_bert", "t5", "ul2", "lstm", "gru", "fixed_window",
    "word2vec",
)  # fmt: skip


def exported(tuned: Path, out: Path, capsys: pytest.CaptureFixture[str], *options: str) -> Any:
    assert (
        command(["export", str(tuned), "--format", "onnx", "--out", str(out), "--json", *options])
        == 0
    )
    facts = json.loads(capsys.readouterr().out)
    assert facts["logit_difference"] < 1e-4 * max(1, facts["greatest_logit"])
    return facts


def run_graph(folder: Path, texts: list[Any], name: str = "model.onnx") -> list[Any]:
    """Return the outputs for texts or pairs in one padded batch, read without our code."""
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.enable_padding()
    tokenizer.enable_truncation(json.loads((folder / "config.json").read_text())["max_length"])
    rows = tokenizer.encode_batch(texts)
    inputs = {
        "input_ids": np.array([row.ids for row in rows]),
        "attention_mask": np.array([row.attention_mask for row in rows]),
        "token_type_ids": np.array([row.type_ids for row in rows]),
    }
    session = onnxruntime.InferenceSession(folder / name)
    names = [each.name for each in session.get_inputs()]
    return list(session.run(None, {name: inputs[name] for name in names}))


@pytest.mark.product(only=("tag", "span", "choice", "embed"))
@pytest.mark.parametrize("task", TASKS)
def test_a_graph_of_each_task_computes_what_the_network_does(
    task: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    name, examples, settings, shapes = TASKS[task]
    run = tiny_run(tmp_path / "run", name, ONE)
    capsys.readouterr()
    tuned = tune(run, examples, examples, task=task, settings=settings, **FAST).out
    exported(tuned, tmp_path / "onnx", capsys)
    session = onnxruntime.InferenceSession(tmp_path / "onnx" / "model.onnx")
    assert {each.name: each.shape[:2] for each in session.get_outputs()} == shapes
    if task in ("classify", "regress", "embed"):
        (outputs,) = run_graph(tmp_path / "onnx", TEXTS)
        model = load_tuned(tuned, "cpu")
        model = replace(model, task=cutting(model.task))
        assert outputs == pytest.approx(model.outputs(TEXTS), abs=1e-4)


@pytest.mark.product(only=("bert",))
@pytest.mark.parametrize("name", FAMILIES)
def test_a_classifier_of_any_family_keeps_its_answers(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = tiny_run(tmp_path / "run", name)
    examples = PAIRS if name in ("bert", "gpt2") else EXAMPLES
    capsys.readouterr()
    settings = {"task.temperature": 2.0}
    tuned = tune(run, examples, examples, settings=settings, **FAST).out
    facts = exported(tuned, tmp_path / "onnx", capsys, "--int8")
    assert facts["int8_same_answers"] > 0.7
    assert facts["bytes"]["int8"] < facts["bytes"]["onnx"]
    assert b"site-packages" not in (tmp_path / "onnx" / "model.onnx").read_bytes()
    texts = [tuple(row[::2]) if len(row) == 3 else row[0] for row in examples[:3]]
    columns = list(zip(*texts, strict=True)) if examples is PAIRS else [texts]
    model = load_tuned(tuned, "cpu")
    expected = model.outputs(*map(list, columns)) / 2.0
    shares = model.predict(*map(list, columns))[1]
    assert softmax(expected, axis=1) == pytest.approx(shares, abs=1e-5)
    for file, distance in (("model.onnx", 1e-4), ("model_int8.onnx", 2.0)):
        (outputs,) = run_graph(tmp_path / "onnx", texts, file)
        assert outputs == pytest.approx(expected, abs=distance)
    code = (tmp_path / "onnx" / "README.md").read_text().split("```python\n")[1].split("```")[0]
    given = {"texts": texts}
    exec(code.replace('"onnx/', f'"{tmp_path}/onnx/'), given)  # noqa: S102
    assert given["outputs"][0] == pytest.approx(expected, abs=1e-4)  # type: ignore[index]
    config = json.loads((tmp_path / "onnx" / "config.json").read_text())
    assert list(config["id2label"].values()) == list(load_tuned(tuned, "cpu").labels)


@pytest.mark.product(only=("bert",))
@pytest.mark.parametrize("name", ["bert", "electra", "gpt2", "lstm"])
def test_a_pretrained_graph_has_the_logits_of_every_token(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = tiny_run(tmp_path / "run", name, ONE)
    exported(run, tmp_path / "onnx", capsys)
    session = onnxruntime.InferenceSession(tmp_path / "onnx" / "model.onnx")
    model = load(run)
    if name == "bert":
        ids = model.trained.with_special_tokens(
            model.tokenizer.encode("a [MASK] sat", special=True)
        )
        ones, zeros = np.ones_like(ids), np.zeros_like(ids)
        inputs = {"input_ids": ids, "attention_mask": ones, "token_type_ids": zeros}
        (logits,) = session.run(None, {name: each[None] for name, each in inputs.items()})
        best = logits[0, ids.tolist().index(model.trained.vocab.id("[MASK]"))].argmax()
        assert model.tokenizer.pieces[best] == model.fill("a [MASK] sat").blanks[0][0].text


@pytest.mark.product(few=1)
@pytest.mark.parametrize(("name", "message"), [("rnn", "of any length"), ("bigbird", "long texts")])
def test_a_network_without_a_graph_of_any_length_is_refused(
    name: str, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = tiny_run(tmp_path / "run", name, ONE)
    tuned = tune(run, EXAMPLES, EXAMPLES, **FAST).out
    assert command(["export", str(tuned), "--format", "onnx", "--out", str(tmp_path / "out")]) == 2
    assert message in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_a_missing_package_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    found = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name == "onnx" else found(name)
    )
    run = tiny_run(tmp_path / "run", "bert", ONE)
    assert command(["export", str(run), "--format", "onnx", "--out", str(tmp_path / "out")]) == 2
    assert "--format onnx requires onnx: pip install 'foreword[onnx]'" in capsys.readouterr().err
    assert command(["export", str(run), "--int8", "--out", str(tmp_path / "out")]) == 2
    assert "int8" in capsys.readouterr().err
