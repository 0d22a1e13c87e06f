"""Runs that start from trained weights."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from tokenizers import Tokenizer as Engine
from tokenizers import models, pre_tokenizers

from foreword.cli.main import run as foreword
from foreword.errors import UserError
from foreword.interop.importing import open_starting_model
from foreword.runs import continued
from foreword.runs import run as running
from foreword.runs.provenance import read_state
from foreword.runs.recipe import Recipe
from foreword.runs.run_folder import open_run
from foreword.settings import config
from foreword.text import extended
from foreword.train import checkpoint, log
from tests.interop import theirs
from tests.oracles import weights
from tests.train import runs


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
    assert runs.train_run(run)
    return run


def begin(recipe: Recipe, text: Path, run: Path, source: Path, new_tokens: int = 0) -> Path:
    starting_model = open_starting_model(str(source)).with_recipe(recipe)
    if new_tokens:
        starting_model = continued.extend(starting_model, [str(text)], recipe.read, new_tokens)
    running.start(starting_model.recipe, running.Inputs((str(text),)), run, starting_model)
    return run


def test_training_starts_from_the_given_weights(trained: Path, other: Path, tmp_path: Path) -> None:
    made = table(steps=1)
    made["optimizer"] = {"kind": "adamw", "lr": 1e-12}
    made["model"]["d_model"] = 48  # the recipe's own, which gives way
    run = begin(runs.build(made), other, tmp_path / "run", trained)
    assert runs.train_run(run)
    before, after = open_run(trained, "cpu"), open_run(run, "cpu")
    for name, value in before.model.state_dict().items():
        torch.testing.assert_close(after.model.state_dict()[name], value)
    assert after.tokenizer.fingerprint == before.tokenizer.fingerprint
    assert read_state(run)["from"] == str(before.folder.resolve())
    losses = [record for record in log.read(run) if record["kind"] == "heldout"]
    assert [record["step"] for record in losses] == [0, 1]
    assert losses[0]["loss"] == pytest.approx(losses[1]["loss"], rel=1e-6)


@pytest.mark.full
def test_a_resumed_continuation_equals_an_uninterrupted_one(
    trained: Path, other: Path, tmp_path: Path
) -> None:
    recipe = runs.build(table(steps=8, checkpoints=2))
    whole = begin(recipe, other, tmp_path / "whole", trained, new_tokens=4)
    assert runs.train_run(whole)
    for step in (2, 6):  # before and after the first checkpoint
        cut = begin(recipe, other, tmp_path / f"cut{step}", trained, new_tokens=4)
        runs.die_at(cut, step)
        assert runs.train_run(cut)
        assert runs.last_bytes(cut) == runs.last_bytes(whole)


def assert_extended(before: continued.StartingModel, text: Path, number: int) -> set[str]:
    """Check that new rows are means and all else is unchanged; return what has new rows."""
    read = config.build(Recipe, table()).read
    after = continued.extend(before, [str(text)], read, number)
    lines = [line for file in sorted(text.iterdir()) for line in file.read_text().splitlines()]
    replaced = extended.extend(before.tokenizer, lines, number).replaced
    assert len(replaced) == number
    assert any(len(pieces) > 2 for pieces in replaced.values())  # a piece made of new ones
    old, new = (dict(model.named_parameters()) for model in (before.model, after.model))
    assert old.keys() == new.keys()
    with_rows = set()
    for name, rows in new.items():
        kept = [n for n in range(len(old[name])) if torch.equal(rows[n], old[name][n])]
        if len(kept) == len(rows):
            continue
        with_rows.add(name)
        assert {*kept, *replaced} == set(range(after.tokenizer.vocab.size)) == set(range(len(rows)))
        for token, pieces in replaced.items():
            assert max(pieces) < min(replaced)
            torch.testing.assert_close(rows[token], old[name][list(pieces)].mean(0))
    return with_rows


@pytest.mark.parametrize(
    ("family", "settings", "expected"),
    [
        ("decoder", [], {"backbone.embedding.token.weight"}),
        (
            "decoder",
            ["model.tied=false", "model.lm_head={kind='softmax', bias=true}"],
            {"backbone.embedding.token.weight", "heads.token.weight", "heads.token.bias"},
        ),
        ("encoder", [], {"backbone.embedding.token.weight", "heads.token.bias"}),
    ],
)
def test_new_tokens_start_at_the_mean_of_their_pieces(
    other: Path, tmp_path: Path, family: str, settings: list[str], expected: set[str]
) -> None:
    recipe = runs.build(config.assign(table(family), settings))
    tokenizer = recipe.tokenizer.train(file.read_text() for file in other.iterdir())
    model = recipe.build(tokenizer.vocab)
    weights.randomise(model, seed=3)
    before = continued.StartingModel(model, recipe, tokenizer, source=tmp_path)
    assert assert_extended(before, other, 6) == expected


@pytest.mark.parametrize("padded", [0, 4], ids=["whole", "with rows that no token has"])
@pytest.mark.parametrize(
    ("family", "expected"),
    [
        ("bert", {"backbone.embedding.token.weight", "heads.token.bias"}),
        ("t5-1.1", {"backbone.embedding.token.weight", "heads.token.weight"}),
    ],
)
def test_a_hugging_face_folder_is_extended_by_means_of_pieces(
    other: Path, tmp_path: Path, family: str, expected: set[str], padded: int
) -> None:
    pytest.importorskip("transformers")
    theirs.write(family, tmp_path)
    roles = theirs.FAMILIES[family][2]
    letters = "abcdefghijklmnopqrstuvwxyz."
    words = [*roles.values(), *letters, *(f"##{letter}" for letter in letters), *theirs.WORDS]
    numbers = {word: n for n, word in enumerate(words[: theirs.SIZE - padded])}
    engine = Engine(models.WordPiece(numbers, unk_token=roles["unk_token"]))
    engine.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    engine.add_special_tokens(list(roles.values()))
    engine.save(str(tmp_path / "tokenizer.json"))
    before = open_starting_model(str(tmp_path))
    assert before.tokenizer.vocab.size == theirs.SIZE
    assert assert_extended(before, other, 6) == expected


def test_only_dropout_of_the_model_can_be_set(trained: Path) -> None:
    starting_model = open_starting_model(str(trained))
    laid = starting_model.with_recipe(runs.build(table()), ["model.dropout=0.3", "train.batch=2"])
    assert laid.recipe.model.dropout == 0.3
    with pytest.raises(UserError, match=r"--set model\.layers=5: .* only dropout"):
        starting_model.with_recipe(runs.build(table()), ["model.layers=5"])


def test_special_tokens_are_the_recipes(trained: Path) -> None:
    starting_model = open_starting_model(str(trained))
    made = table()
    made["packing"]["bos"] = "[CLS]"
    assert starting_model.with_recipe(runs.build(made)).recipe.packing.bos == "[CLS]"


def test_rows_that_become_longer_than_the_positions_are_refused(
    other: Path, tmp_path: Path
) -> None:
    made = table()
    made["model"]["position"] = {"kind": "learned", "length": 64}
    recipe = runs.build(made)
    tokenizer = recipe.tokenizer.train(file.read_text() for file in other.iterdir())
    model = recipe.build(tokenizer.vocab)
    before = continued.StartingModel(model, recipe, tokenizer, source=tmp_path)
    made["model"]["position"]["length"] = 128
    made["packing"]["length"], made["objective"] = 48, {"kind": "deshuffle"}
    with pytest.raises(UserError, match=r"become up to 98 .* 64 positions; .*packing\.length=31$"):
        before.with_recipe(runs.build(made))
    made["packing"]["length"] = 31
    assert before.with_recipe(runs.build(made)).recipe.max_sequence(31) == 64


def test_unused_heads_are_noted_and_missing_heads_refused(text: Path, tmp_path: Path) -> None:
    recipe = runs.build(table("encoder", steps=1))
    pairs = config.assign(config.to_table(recipe), ["objective={kind='sum'}"])
    pairs = pairs | {"packing": {"kind": "pairs", "length": 16}}
    both = runs.build(pairs)
    tokenizer = both.tokenizer.train(file.read_text() for file in text.iterdir())
    one = continued.StartingModel(recipe.build(tokenizer.vocab), recipe, tokenizer, source=tmp_path)
    two = continued.StartingModel(both.build(tokenizer.vocab), both, tokenizer, source=tmp_path)
    laid = two.with_recipe(recipe)
    assert set(laid.model.heads) == {"token"}
    assert "heads left behind: heads.pair." in laid.notes[0]
    with pytest.raises(UserError, match=r"'sum' needs heads that .* lacks \(heads\.pair\."):
        one.with_recipe(both)


def test_a_recipe_of_another_kind_of_model_is_refused(trained: Path) -> None:
    start = open_starting_model(str(trained))
    assert not start.with_recipe(runs.build(table())).notes
    with pytest.raises(UserError, match=r"model.kind: .* 'lstm', .* 'transformer'; choose"):
        start.with_recipe(runs.build(table("lstm")))


@pytest.mark.full
def test_the_command_line_continues_with_new_tokens_and_dropout(
    trained: Path, other: Path, tmp_path: Path
) -> None:
    recipe = tmp_path / "recipe.toml"
    recipe.write_text(config.dumps(table(steps=2)))
    words = ["pretrain", str(recipe), "--data", str(other), "--out", str(tmp_path / "run")]
    words += ["--from", str(trained), "--extend-vocabulary", "3", "--set", "model.dropout=0"]
    assert foreword(words) == 0
    continued_run = open_run(tmp_path / "run", "cpu")
    assert continued_run.vocab.size == open_run(trained, "cpu").vocab.size + 3
    assert continued_run.recipe.model.dropout == 0
    assert checkpoint.all_in(tmp_path / "run")


@pytest.mark.parametrize("family", ["diffusion", "decoder"])
def test_what_a_turned_model_kept_is_measured_early_and_told_beside_scratch(
    family: str, trained: Path, text: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    recipe, out = tmp_path / "recipe.toml", tmp_path / "run"
    recipe.write_text(config.dumps(table(family, steps=60, evaluations=2, batch=1)))
    words = ["pretrain", str(recipe), "--data", str(text), "--out", str(out)]
    assert foreword([*words, "--from", str(trained)]) == 0
    heldout = [record for record in log.read(out) if record["kind"] == "heldout"]
    early = [1] if family == "diffusion" else []  # 1 %, rounded up; a decoder is not turned
    assert [record["step"] for record in heldout] == [0, *early, 30, 60]
    told = capsys.readouterr().out
    most = "at most " if family == "diffusion" else ""
    assert f"held-out loss {most}" in told
    assert f"from scratch it begins near {math.log(open_run(out, 'cpu').vocab.size):.4g}" in told


def test_impossible_starts_are_refused_and_leave_nothing(
    trained: Path, other: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["pretrain", "gpt2_tiny", "--data", str(other), "--out", str(tmp_path / "run")]
    for more, message in (
        (["--extend-vocabulary", "3"], "requires --from"),
        (["--from", str(trained), "--tokenizer", "x"], "--tokenizer cannot be combined with"),
        (
            ["--from", str(trained), "--set", "tokenizer.vocab=4096"],
            "=4096 cannot be combined with",
        ),
        (["--from", str(tmp_path / "none")], "no such folder"),
        (["--from", str(trained), "--extend-vocabulary", "9999"], "supports only"),
    ):
        assert foreword([*words, *more]) == 2
        assert message in capsys.readouterr().err
        assert not (tmp_path / "run").exists()
