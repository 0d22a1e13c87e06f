"""`foreword pretrain`: its lines, its JSON and its folder."""

from __future__ import annotations

import json
import traceback
from pathlib import Path

import pytest
import torch

from foreword.cli.main import run
from foreword.errors import UserError
from foreword.runs.recipe import Recipe
from foreword.runs.run_folder import read_recipe
from foreword.settings import kinds
from foreword.train import checkpoint, log
from foreword.train.settings import TrainSettings
from foreword.verbs.compare import Compare
from tests.cli.conftest import Refused
from tests.train import runs


@pytest.fixture
def text(tmp_path: Path) -> Path:
    return runs.write_text(tmp_path / "text")


@pytest.fixture
def recipe(tmp_path: Path) -> str:
    file = tmp_path / "tiny.toml"
    file.write_text(runs.recipe("encoder").dumps())
    return str(file)


def test_few_calls_lead_from_the_command_to_the_backward_pass(
    text: Path, recipe: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    depths: list[int] = []
    backward = torch.Tensor.backward

    def counted(tensor: torch.Tensor) -> None:
        files = [Path(frame.filename) for frame in traceback.extract_stack()]
        depths.append(sum(kinds.ROOT in file.parents for file in files))
        backward(tensor)

    monkeypatch.setattr(torch.Tensor, "backward", counted)
    words = ["pretrain", recipe, "--data", str(text), "--out", str(tmp_path / "run")]
    assert run([*words, "--steps", "1", "--set", "train.threads=1"]) == 0
    assert max(depths) <= 9  # from `foreword.cli.main.run`, which two more call


def test_one_command_makes_a_run(
    text: Path, recipe: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "runs" / "one"
    assert run(["pretrain", recipe, "--data", str(text), "--out", str(out), "--steps", "6"]) == 0
    captured = capsys.readouterr()
    assert "held-out loss" in captured.out and f"report {out}' shows it" in captured.out
    sample = (
        "tokenizer trained on 240 of 240 documents, 6.6 of 6.6 kB; a vocabulary of 30,000 "
        "requested, the text has 134\n"
    )
    for words in ("fp32 on cpu", "tokens to train on", sample, "held-out loss"):
        assert words in captured.err
    names = {path.name for path in out.iterdir()}
    assert {"recipe.toml", "run.json", "metrics.jsonl", "tokenizer", "checkpoints"} <= names
    provenance = json.loads((out / "run.json").read_text())
    assert provenance["texts"] == [str(text)]
    assert provenance["data"]["counts"]["train"]["tokens"] > 0
    assert checkpoint.read_state(checkpoint.newest(out))["step"] == 6
    assert read_recipe(out).train.steps == 6
    samples = [record for record in log.read(out) if record["kind"] == "samples"]
    assert samples[-1]["samples"]
    assert "[MASK]" in samples[-1]["samples"][0]["prompt"]


@pytest.mark.full
def test_the_terms_of_a_sum_are_reported(
    text: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file, out = tmp_path / "tiny.toml", tmp_path / "run"
    table = runs.table("encoder", steps=2) | {"objective": {"kind": "span_masked"}}
    file.write_text(runs.build(table).dumps())
    assert run(["pretrain", str(file), "--data", str(text), "--out", str(out)]) == 0
    last = [record for record in log.read(out) if record["kind"] == "heldout"][-1]
    parts = log.components(last)
    assert list(parts) == ["masked", "boundary"]
    assert sum(parts.values()) == pytest.approx(last["loss"])
    line = f"  masked {parts['masked']:.4f}  boundary {parts['boundary']:.4f}\n"
    assert line in capsys.readouterr().err
    words = ["evaluate", str(out), "--rows", "6", "--device", "cpu"]
    assert run(words) == 0
    assert f"masked {parts['masked']:.4f}, boundary" in capsys.readouterr().err
    assert run([*words, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["components"] == pytest.approx(parts)


def test_pretrain_prints_json_for_scripts(
    text: Path, recipe: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files = sorted(map(str, text.iterdir()))  # as a shell's glob gives them
    words = ["pretrain", recipe, "--out", str(tmp_path / "run"), "--json", "--data", *files]
    assert run(words) == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed["done"] is True
    assert printed["last"]["train"]["step"] == 12
    provenance = json.loads((tmp_path / "run" / "run.json").read_text())
    assert sorted(provenance["texts"]) == files


def test_prepared_shards_and_a_given_tokenizer_are_used(
    text: Path, recipe: str, tmp_path: Path
) -> None:
    made = tmp_path / "shards"
    assert run(["prepare", str(text), "--out", str(made), "--kind", "word"]) == 0
    out = tmp_path / "run"
    assert run(["pretrain", recipe, "--data", str(made), "--out", str(out), "--steps", "2"]) == 0
    assert not (out / "shards").exists()
    kept = (out / "tokenizer" / "tokenizer.json").read_bytes()
    assert kept == (made / "tokenizer" / "tokenizer.json").read_bytes()
    other = tmp_path / "other"
    words = ["--data", str(text), "--tokenizer", str(made / "tokenizer"), "--out", str(other)]
    assert run(["pretrain", recipe, *words, "--steps", "2"]) == 0
    assert (other / "tokenizer" / "tokenizer.json").read_bytes() == kept


@pytest.mark.full
def test_given_held_out_text_is_held_out(
    text: Path, recipe: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], refused: Refused
) -> None:
    apart = tmp_path / "apart.txt"
    apart.write_text("the old cat sat on a red house.\n" * 20)
    words = ["pretrain", recipe, "--data", str(text), "--steps", "2", "--out"]
    out = tmp_path / "run"
    assert run([*words, str(out), "--heldout", str(apart)]) == 0
    provenance = json.loads((out / "run.json").read_text())
    assert provenance["heldout"] == [str(apart)]
    assert provenance["data"]["counts"]["heldout"]["documents"] == 20
    assert provenance["data"]["counts"]["train"]["documents"] == 240
    share = tmp_path / "share"
    assert run([*words, str(share), "--heldout", "0.3"]) == 0
    assert read_recipe(share).prepare.heldout == 0.3
    made = tmp_path / "shards"
    apart_too = ["--heldout", str(apart), "--kind", "word"]
    assert run(["prepare", str(text), "--out", str(made), *apart_too]) == 0
    capsys.readouterr()
    for more, message in (
        (
            [str(apart), "--heldout", str(apart)],
            "ambiguous: put --data or --heldout before",
        ),
        (["--heldout", str(text)], "is in both --data and --heldout"),
        (["--heldout", "1.5"], "--heldout: must be a number of at least 0"),
    ):
        assert message in refused(*words, str(tmp_path / "wrong"), *more)
        assert not (tmp_path / "wrong").exists()
    words = ["pretrain", recipe, "--data", str(made), "--out", str(tmp_path / "wrong")]
    assert "already has a held-out split" in refused(*words, "--heldout", str(apart))


def _on(recipe: Recipe, **amounts: float) -> TrainSettings:
    budget = Compare("ladder", **amounts).budget()
    assert budget is not None
    return budget.applied_to(recipe.train)


def test_a_budget_overrides_the_recipe() -> None:
    made = runs.recipe(tokens=5_000, hours=1.0)
    assert Compare("ladder").budget() is None
    train = _on(made, steps=7)
    assert (train.steps, train.tokens, train.flops, train.hours) == (7, None, None, None)
    train = _on(made, tokens=1e3)
    assert (train.tokens, train.hours) == (1000, None)
    train = _on(made, epochs=2.5)
    assert (train.epochs, train.tokens, train.hours) == (2.5, None, None)
    for wrong in (0.0, -1.0, float("nan"), float("inf")):
        with pytest.raises(UserError, match="--hours: must be a number above 0"):
            _on(made, hours=wrong)


def test_a_run_that_blows_up_is_reported_in_one_line(
    text: Path, recipe: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "run"
    words = ["pretrain", recipe, "--data", str(text), "--out", str(out)]
    # Each step multiplies the matrices with 1 - 100 * 10: a few, and float32 ends.
    for wild in ("optimizer.kind=sgd", "optimizer.lr=100", "optimizer.decay=10"):
        words += ["--set", wild]
    assert (
        run([*words, "--set", "train.max_nonfinite_steps=3", "--set", "train.checkpoints=12"]) == 2
    )
    error = capsys.readouterr().err.splitlines()
    assert [line for line in error if line.startswith("foreword: ")] == error[-1:]
    assert "3 steps in a row were not finite" in error[-1]
    assert f"the last good checkpoint is {checkpoint.newest(out)}" in error[-1]
    assert f"'foreword resume {out} --set optimizer.lr=50'" in error[-1]
