"""Runs whose embeddings begin as word vectors of their text."""

from __future__ import annotations

import errno
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import foreword
from foreword.errors import UserError
from foreword.interop.importing import open_starting_model
from foreword.nn.embedding import token_tables
from foreword.nn.init import embedding_std
from foreword.nn.model import neural
from foreword.runs import first_embeddings
from foreword.runs import run as running
from foreword.runs.corpus import SHARDS, corpus
from foreword.runs.dry_run import dry_run
from foreword.runs.provenance import read_state
from foreword.runs.run_folder import Run, read_recipe
from foreword.runs.setup import TrainingSetup, set_up_training
from foreword.settings import config
from foreword.train import log, tensor_files
from foreword.train.embedding_init import cooccurrence
from foreword.types import Array
from foreword.vectors.cooccurrence import CountedVectors, learn_vectors
from tests.train import runs


def table(family: str = "decoder", **train: Any) -> dict[str, Any]:
    narrow = {"model": {"d_model": 8}, "train": {"embedding_init": "cooccurrence"}}
    return config.merge(runs.table(family, **{"steps": 6, "checkpoints": 2, **train}), narrow)


def begin(made: dict[str, Any], text: Path, run: Path) -> Path:
    return runs.begin(runs.build(made), text, run)


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return runs.write_text(tmp_path_factory.mktemp("text"))


@pytest.mark.product(few=1)
@pytest.mark.parametrize("family", ["encoder", "encoder_decoder", "electra", "albert", "lstm"])
def test_embeddings_begin_as_vectors_as_long_as_random_ones(
    family: str, text: Path, tmp_path: Path
) -> None:
    run = begin(table(family), runs.text_for(family, text, tmp_path / "text"), tmp_path / "run")
    assert runs.train_run(run)
    setup = set_up(run)
    vocab, model = setup.vocab, setup.model
    random = {name: p.detach().clone() for name, p in model.named_parameters()}
    spent = first_embeddings.load(Run(run), setup)
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


def set_up(run: Path) -> TrainingSetup:
    """Return the set-up of a run, with its model as it is first initialised."""
    recipe = read_recipe(run)
    return set_up_training(recipe, *corpus(Run(run), lambda _: None))


@pytest.mark.full
def test_a_run_killed_before_its_first_checkpoint_begins_with_the_same_vectors(
    text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = begin(table(), text, tmp_path / "whole")
    runs.train_run(whole)
    killed = begin(table(), text, tmp_path / "killed")
    runs.die_at(killed, 1)

    def again(*_: Any, **__: Any) -> None:
        raise AssertionError("learned twice")

    monkeypatch.setattr(cooccurrence, "learn_vectors", again)
    runs.train_run(killed)
    assert runs.last_bytes(killed) == runs.last_bytes(whole)
    assert runs.logged(killed, "train")[-1] == runs.logged(whole, "train")[-1]


@pytest.mark.full
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


@pytest.mark.full
@pytest.mark.parametrize("schedule", ["linear", "constant"])
def test_the_schedule_begins_with_the_first_step(schedule: str, text: Path, tmp_path: Path) -> None:
    """The rates of a budget of which word vectors take a part are those of the rest alone."""
    warmup = {"kind": schedule, "warmup": {"share": 0.5}}
    with_vectors = config.merge(table(checkpoints=1), {"schedule": warmup})
    run = begin(with_vectors, text, tmp_path / "run")
    runs.train_run(run)
    first, second = [r for r in log.read(run) if r["kind"] == "train"][:2]
    step = second["flops"] - first["flops"]
    assert first["flops"] > step
    rates = []
    for name, init, flops in (
        ("part", "cooccurrence", first["flops"] + 7 * step),
        ("whole", "random", 8 * step),
    ):
        made = config.merge(
            with_vectors, {"train": {"embedding_init": init, "flops": flops * (1 - 1e-9)}}
        )
        run = begin(made, text, tmp_path / name)
        runs.die_at(run, 4)
        runs.train_run(run)
        rates.append([record["lr"] for record in runs.logged(run, "train")])
    assert rates[0] == pytest.approx(rates[1], rel=1e-3) and len(rates[0]) > 4


def test_vectors_that_take_all_of_the_budget_are_refused(text: Path, tmp_path: Path) -> None:
    run = begin(table(flops=1.0), text, tmp_path / "run")
    with pytest.raises(
        UserError, match=r"train\.embedding_init: the first .* take up to .* all of the"
    ):
        runs.train_run(run)


@pytest.mark.full
def test_a_full_disk_leaves_the_shards(
    text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    run = tmp_path / "run"
    settings = {"train.embedding_init": "cooccurrence", "model.d_model": 8, "tokenizer.vocab": 400}
    begin = partial(
        foreword.pretrain, "gpt2_tiny", text, run, steps=2, settings=settings, progress=False
    )
    with monkeypatch.context() as disk:
        disk.setattr(tensor_files, "write", full)
        with pytest.raises(
            UserError, match=r"word_vectors\.safetensors: cannot be written: No space"
        ):
            begin()
    assert (run / SHARDS).is_dir()
    assert foreword.resume(run, progress=False).is_done


@pytest.mark.full
def test_sources_count_by_their_shares(
    text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = runs.write_text(tmp_path / "other")
    sources = [
        {"name": "most", "path": str(text), "weight": 3.0},
        {"name": "rest", "path": str(other), "weight": 1.0},
    ]
    counted: list[int] = []

    def noted(texts: Any, *rest: Any) -> Any:
        counted.extend(number for _, number in texts)
        return learn_vectors(texts, *rest)

    monkeypatch.setattr(cooccurrence, "learn_vectors", noted)
    recipe = runs.build(config.merge(table(), {"data": {"sources": sources}}))
    running.start(recipe, running.Inputs((str(text), str(other))), tmp_path / "run")
    runs.train_run(tmp_path / "run")
    most, rest = counted
    assert most == pytest.approx(3 * rest, rel=0.1)


@pytest.mark.full
def test_a_text_with_too_few_words_keeps_random_embeddings(text: Path, tmp_path: Path) -> None:
    made = config.merge(table(), {"model": {"d_model": 64}})
    plain = config.merge(made, {"train": {"embedding_init": "random"}})
    reporter = runs.Quiet()
    run, other = begin(made, text, tmp_path / "run"), begin(plain, text, tmp_path / "plain")
    runs.train_run(run, reporter)
    runs.train_run(other)
    assert any("no word vectors: too few" in note for note in reporter.notes)
    assert runs.last_bytes(run) == runs.last_bytes(other)


@pytest.mark.full
def test_a_run_from_trained_weights_keeps_them(text: Path, tmp_path: Path) -> None:
    first = begin(table(), text, tmp_path / "first")
    runs.train_run(first)
    recipe = runs.build(table())
    starting_model = open_starting_model(str(first)).with_recipe(recipe)
    run = tmp_path / "run"
    running.start(starting_model.recipe, running.Inputs((str(text),)), run, starting_model)
    reporter = runs.Quiet()
    runs.train_run(run, reporter)
    assert any("no word vectors: it starts from trained" in note for note in reporter.notes)
    assert first_embeddings.GROUP not in read_state(run)
    assert not (run / first_embeddings.FILE).exists()


def test_models_without_first_embeddings_refuse(text: Path, tmp_path: Path) -> None:
    counted = {"embedding_init": "cooccurrence"}
    offline = {"model": {"kind": "word_vectors", "d_model": 8}, "train": counted}
    with pytest.raises(UserError, match=r"train\.embedding_init: .* trained offline"):
        runs.build({**runs.table("decoder"), **offline, "packing": {"eos": "</s>"}})
    made = config.merge(table("elmo"), {"model": {"characters": True}})
    with pytest.raises(UserError, match=r"train\.embedding_init: the model has no table"):
        dry_run(runs.build(made))


def test_the_seed_of_the_run_is_that_of_the_vectors(
    text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seeds: list[int] = []

    def noted(texts: Any, is_word: Array, width: int, seed: int) -> Any:
        seeds.append(seed)
        learned = learn_vectors(texts, is_word, width, seed)
        assert isinstance(learned, CountedVectors) and np.isfinite(learned.vectors).all()
        return learned

    monkeypatch.setattr(cooccurrence, "learn_vectors", noted)
    runs.train_run(begin(table(seed=7), text, tmp_path / "run"))
    assert seeds == [7]


@pytest.mark.parametrize("has_sizes", [True, False], ids=["word2vec", "glove"])
def test_vectors_of_a_file_become_the_embeddings_of_its_words(
    has_sizes: bool, text: Path, tmp_path: Path
) -> None:
    file = tmp_path / "vectors.txt"
    lines = [f"{word} {' '.join(str(n + column) for column in range(8))}"
             for n, word in enumerate([*runs.WORDS[:3], "elsewhere"])]  # fmt: skip
    file.write_text("\n".join(["4 8"] * has_sizes + lines) + "\n", encoding="utf-8")
    read = {"train": {"embedding_init": {"kind": "word2vec", "file": str(file)}}}
    run, reporter = begin(config.merge(table(), read), text, tmp_path / "run"), runs.Quiet()
    runs.train_run(run, reporter)
    assert any(f"word vectors of 3 tokens from {file}" in note for note in reporter.notes)
    setup = set_up(run)
    first_embeddings.load(Run(run), setup)
    (embedding,) = token_tables(setup.model, setup.vocab.size)
    token = setup.tokenizer.encode(runs.WORDS[1]).item()
    cosine = torch.cosine_similarity(embedding[token], torch.arange(1.0, 9.0), dim=0)
    assert cosine.item() == pytest.approx(1)
    wider = config.merge(table(), {**read, "model": {"d_model": 16}})
    with pytest.raises(UserError, match=r"vectors of 8 numbers, .* embeddings have 16"):
        begin(wider, text, tmp_path / "wider")
    file.unlink()
    with pytest.raises(UserError, match=r"vectors\.txt: cannot be read: No such file"):
        begin(config.merge(table(), read), text, tmp_path / "missing")
    starting_model = open_starting_model(str(run))
    more = tmp_path / "more"  # whose embeddings are trained ones
    running.start(starting_model.recipe, running.Inputs((str(text),)), more, starting_model)
    assert runs.train_run(more)
