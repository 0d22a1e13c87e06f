"""Runs that start from trained weights."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from foreword import config
from foreword.cli.main import run as foreword
from foreword.errors import UserError
from foreword.train import checkpoint, continued
from foreword.train import run as running
from foreword.train.opened import open_run, read_state
from foreword.train.recipe import Recipe

from . import runs


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return runs.write_text(tmp_path_factory.mktemp("text"), files=2)


@pytest.fixture(scope="module")
def other(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("other")
    lines = ["the ribosome binds the enzyme.", "an enzyme saw the old ribosome near the river."]
    (folder / "0.txt").write_text("\n".join(lines * 60))
    return folder


def table(family: str = "decoder", **train: Any) -> dict[str, Any]:
    made = runs.table(family, **{"steps": 6, **train})
    made["tokenizer"] = {"kind": "bpe", "vocab": 390}
    made["read"] = {"documents": "line"}
    return made


@pytest.fixture(scope="module")
def trained(text: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = runs.begin(runs.build(table()), text, tmp_path_factory.mktemp("runs") / "first")
    assert runs.carry_on(run)
    return run


def begin(recipe: Recipe, text: Path, run: Path, source: Path, new_tokens: int = 0) -> Path:
    foundation = continued.open_foundation(str(source)).lay_under(recipe)
    if new_tokens:
        foundation = continued.extend(foundation, [str(text)], recipe.read, new_tokens)
    running.start(foundation.recipe, running.Inputs((str(text),)), run, foundation)
    return run


def test_it_starts_from_the_weights(trained: Path, other: Path, tmp_path: Path) -> None:
    made = table(steps=1)
    made["optimizer"] = {"kind": "adamw", "lr": 1e-12}
    made["model"]["d_model"] = 48  # the recipe's own, which gives way
    run = begin(runs.build(made), other, tmp_path / "run", trained)
    assert runs.carry_on(run)
    before, after = open_run(trained, "cpu"), open_run(run, "cpu")
    for name, value in before.model.state_dict().items():
        torch.testing.assert_close(after.model.state_dict()[name], value)
    assert after.tokenizer.fingerprint == before.tokenizer.fingerprint
    assert read_state(run)["from"] == str(before.checkpoint.resolve())


def test_resumed_is_uninterrupted(trained: Path, other: Path, tmp_path: Path) -> None:
    recipe = runs.build(table(steps=8, checkpoints=2))
    whole = begin(recipe, other, tmp_path / "whole", trained, new_tokens=4)
    assert runs.carry_on(whole)
    for step in (2, 6):  # before and after the first checkpoint
        cut = begin(recipe, other, tmp_path / f"cut{step}", trained, new_tokens=4)
        runs.die_at(cut, step)
        assert runs.carry_on(cut)
        assert runs.last_bytes(cut) == runs.last_bytes(whole)


def test_new_tokens_start_at_the_mean(trained: Path, other: Path) -> None:
    before = continued.open_foundation(str(trained))
    read = config.build(Recipe, table()).read
    after = continued.extend(before, [str(other)], read, 6)
    size = before.tokenizer.vocab.size
    old, new = before.model.backbone.embedding.token, after.model.backbone.embedding.token
    assert len(new.weight) == size + 6
    assert torch.equal(new.weight[:size], old.weight)
    ids = before.tokenizer.encode(" ribosome")
    joined = after.tokenizer.encode(" ribosome")
    assert len(joined) < len(ids)
    if len(joined) == 1:
        torch.testing.assert_close(new.weight[joined[0]], old.weight[ids].mean(0))


def test_dropout_can_be_set(trained: Path) -> None:
    foundation = continued.open_foundation(str(trained))
    laid = foundation.lay_under(runs.build(table()), ["model.dropout=0.3", "train.batch=2"])
    assert laid.recipe.model.dropout == 0.3
    with pytest.raises(UserError, match=r"--set model\.layers=5: .* only dropout"):
        foundation.lay_under(runs.build(table()), ["model.layers=5"])


def test_what_does_not_fit_is_said(trained: Path) -> None:
    foundation = continued.open_foundation(str(trained))
    with pytest.raises(UserError, match=r"layout\.kind: the recipe's is 'encoder'"):
        foundation.lay_under(runs.build(table("encoder")))
    made = table()
    made["packing"]["before"] = "[CLS]"
    assert foundation.lay_under(runs.build(made)).recipe.packing.before == "[CLS]"


def test_heads_are_left_behind_or_lacking(text: Path, tmp_path: Path) -> None:
    recipe = runs.build(table("encoder", steps=1))
    pairs = config.assign(config.to_table(recipe), ["objective={kind='sum'}"])
    pairs = pairs | {"packing": {"kind": "pairs", "length": 16}}
    both = runs.build(pairs)
    tokenizer = both.tokenizer.train(file.read_text() for file in text.iterdir())
    one = continued.Foundation(tmp_path, recipe, tokenizer, recipe.build(tokenizer.vocab))
    two = continued.Foundation(tmp_path, both, tokenizer, both.build(tokenizer.vocab))
    laid = two.lay_under(recipe)
    assert set(laid.model.heads) == {"token"}
    assert "heads left behind: heads.pair." in laid.notes[0]
    with pytest.raises(UserError, match=r"'sum' needs other parts of a model \(heads\.pair\."):
        one.lay_under(both)


def test_from_the_command_line(trained: Path, other: Path, tmp_path: Path) -> None:
    recipe = tmp_path / "recipe.toml"
    recipe.write_text(config.dumps(table(steps=2)))
    words = ["pretrain", str(recipe), "--data", str(other), "--out", str(tmp_path / "run")]
    words += ["--from", str(trained), "--extend-vocabulary", "3", "--set", "model.dropout=0"]
    assert foreword(words) == 0
    opened = open_run(tmp_path / "run", "cpu")
    assert opened.vocab.size == open_run(trained, "cpu").vocab.size + 3
    assert opened.recipe.model.dropout == 0
    assert checkpoint.all_in(tmp_path / "run")


def test_mistakes(
    trained: Path, other: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["pretrain", "gpt2_tiny", "--data", str(other), "--out", str(tmp_path / "run")]
    for more, said in (
        (["--extend-vocabulary", "3"], "needs --from"),
        (["--from", str(trained), "--tokenizer", "x"], "goes without --from"),
        (["--from", str(tmp_path / "none")], "no such folder"),
        (["--from", str(trained), "--extend-vocabulary", "9999"], "supports only"),
    ):
        assert foreword([*words, *more]) == 2
        assert said in capsys.readouterr().err
        assert not (tmp_path / "run").exists()
