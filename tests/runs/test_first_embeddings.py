"""Runs whose embeddings begin as word vectors of their text."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from foreword import config
from foreword.errors import UserError
from foreword.interop.start_from import open_starting_model
from foreword.nn.init import embedding_std, initialise
from foreword.nn.model import neural
from foreword.runs import first_embeddings
from foreword.runs import run as running
from foreword.runs.provenance import read_state
from foreword.runs.trained_model import read_recipe
from foreword.text.tokenizer import Tokenizer
from foreword.train import log
from foreword.types import Array
from foreword.vectors.cooccurrence import CountedVectors, learn_vectors
from tests.train import runs


def table(family: str = "decoder", **train: Any) -> dict[str, Any]:
    narrow = {"model": {"d_model": 8}, "train": {"word_vectors": 1_000_000}}
    return config.merge(runs.table(family, **{"steps": 6, "checkpoints": 2, **train}), narrow)


def begin(made: dict[str, Any], text: Path, run: Path) -> Path:
    return runs.begin(runs.build(made), text, run)


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return runs.write_text(tmp_path_factory.mktemp("text"))


@pytest.mark.parametrize("family", ["encoder", "encoder_decoder", "electra", "albert", "lstm"])
def test_embeddings_begin_as_vectors_as_long_as_random_ones(
    family: str, text: Path, tmp_path: Path
) -> None:
    run = begin(table(family), runs.text_for(family, text, tmp_path / "text"), tmp_path / "run")
    assert runs.train_run(run)
    vocab, model = Tokenizer.load(run / "tokenizer").vocab, untrained(run)
    random = {name: p.detach().clone() for name, p in model.named_parameters()}
    spent = first_embeddings.load(run, model, vocab)
    assert spent.flops > 0 and spent.steps == spent.tokens == 0
    changed = [name for name, p in model.named_parameters() if not p.equal(random[name])]
    assert changed and all("embedding.token" in name for name in changed)
    std = embedding_std(neural(model.backbone).settings)
    for name in changed:
        new, old = model.get_parameter(name), random[name]
        is_kept = torch.tensor([bool(a.equal(b)) for a, b in zip(new, old, strict=True)])
        assert is_kept[vocab.is_special].all()
        lengths = new[~is_kept].norm(dim=1)
        torch.testing.assert_close(lengths, torch.full_like(lengths, std * new.shape[1] ** 0.5))


def untrained(run: Path) -> Any:
    """Return the model of a run as it is first initialised."""
    recipe = read_recipe(run)
    model = recipe.build(Tokenizer.load(run / "tokenizer").vocab)
    initialise(model, recipe.train.seed)
    return model


def test_a_run_killed_before_its_first_checkpoint_begins_with_the_same_vectors(
    text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = begin(table(), text, tmp_path / "whole")
    runs.train_run(whole)
    killed = begin(table(), text, tmp_path / "killed")
    runs.die_at(killed, 1)

    def again(*_: Any, **__: Any) -> None:
        raise AssertionError("learned twice")

    monkeypatch.setattr(first_embeddings, "learn_vectors", again)
    runs.train_run(killed)
    assert runs.last_bytes(killed) == runs.last_bytes(whole)
    assert runs.logged(killed, "train")[-1] == runs.logged(whole, "train")[-1]


@pytest.mark.parametrize("damage", ["cut", "removed"])
def test_damaged_vectors_are_learned_again(damage: str, text: Path, tmp_path: Path) -> None:
    whole, run = (begin(table(), text, tmp_path / name) for name in ("whole", "run"))
    runs.train_run(whole)
    runs.die_at(run, 1)
    file = run / first_embeddings.FILE
    if damage == "cut":
        file.write_bytes(file.read_bytes()[:-5])
    else:
        file.unlink()
    runs.train_run(run)
    assert runs.last_bytes(run) == runs.last_bytes(whole)


def test_learning_counts_in_the_budget(text: Path, tmp_path: Path) -> None:
    run = begin(table(), text, tmp_path / "run")
    reporter = runs.Quiet()
    runs.train_run(run, reporter)
    noted = read_state(run)[first_embeddings.GROUP]
    records = [r for r in log.read(run) if r["kind"] == "train"]
    step = records[1]["flops"] - records[0]["flops"]
    assert records[0]["flops"] == pytest.approx(noted["flops"] + step)
    assert records[0]["seconds"] >= noted["seconds"] > 0
    assert any("first embeddings: word vectors" in note for note in reporter.notes)


def test_a_text_with_too_few_words_keeps_random_embeddings(text: Path, tmp_path: Path) -> None:
    made = config.merge(table(), {"model": {"d_model": 64}})
    plain = config.merge(made, {"train": {"word_vectors": 0}})
    reporter = runs.Quiet()
    run, other = begin(made, text, tmp_path / "run"), begin(plain, text, tmp_path / "plain")
    runs.train_run(run, reporter)
    runs.train_run(other)
    assert any("no word vectors: too few" in note for note in reporter.notes)
    assert runs.last_bytes(run) == runs.last_bytes(other)


def test_a_run_from_trained_weights_keeps_them(text: Path, tmp_path: Path) -> None:
    first = begin(table(), text, tmp_path / "first")
    runs.train_run(first)
    recipe = runs.build(table())
    starting_model = open_starting_model(str(first)).with_recipe(recipe)
    run = tmp_path / "run"
    running.start(starting_model.recipe, running.Inputs((str(text),)), run, starting_model)
    runs.train_run(run)
    assert first_embeddings.GROUP not in read_state(run)
    assert not (run / first_embeddings.FILE).exists()


def test_models_without_first_embeddings_refuse(text: Path, tmp_path: Path) -> None:
    offline = {"model": {"kind": "word_vectors", "d_model": 8}, "train": {"word_vectors": 9}}
    with pytest.raises(UserError, match=r"train\.word_vectors: .* trained offline"):
        runs.build({**runs.table("decoder"), **offline, "packing": {"eos": "</s>"}})
    made = config.merge(table("elmo"), {"model": {"characters": True}})
    characters = begin(made, text, tmp_path / "run")
    with pytest.raises(UserError, match=r"train\.word_vectors: the model has no table"):
        runs.train_run(characters)


def test_the_seed_of_the_run_is_that_of_the_vectors(
    text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seeds: list[int] = []

    def noted(tokens: Array, is_word: Array, width: int, most: int, seed: int) -> Any:
        seeds.append(seed)
        learned = learn_vectors(tokens, is_word, width, most, seed)
        assert isinstance(learned, CountedVectors) and np.isfinite(learned.vectors).all()
        return learned

    monkeypatch.setattr(first_embeddings, "learn_vectors", noted)
    runs.train_run(begin(table(seed=7), text, tmp_path / "run"))
    assert seeds == [7]
