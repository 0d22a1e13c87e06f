"""Runs with offline training: trained in one go, or started again."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from foreword.errors import UserError
from foreword.evaluation.samples import samples
from foreword.models.ngram import table_of
from foreword.ngrams import texts as reading
from foreword.ngrams.texts import NgramTexts, measure
from foreword.runs import offline
from foreword.runs import run as running
from foreword.runs.continued import START
from foreword.runs.recipe import Recipe
from foreword.runs.run import Inputs
from foreword.runs.run_folder import is_finished, open_run, read_recipe
from foreword.runs.trained_model import TrainedModel
from foreword.settings import config
from foreword.train import checkpoint, log
from tests.train.runs import Killed, Quiet, kill, write_text

# By kind: a tiny one, how often it reads the text, and a file of its checkpoint.
MODELS: dict[str, dict[str, Any]] = {
    "ngram": {"order": 3},
    "word_vectors": {"d_model": 8, "output": {"kind": "negative_sampling", "batch": 128}},
}
EPOCHS = {"ngram": 1, "word_vectors": 2}
FILES = {"ngram": "keys-2.npy", "word_vectors": "counts.npy"}
every_kind = pytest.mark.parametrize("kind", MODELS)


def recipe(kind: str = "ngram", **model: Any) -> Recipe:
    made = {
        "model": {"kind": kind, **MODELS[kind], **model},
        "objective": "causal",
        "layout": "decoder",
        "packing": {"kind": "documents", "length": 16, "bos": "<s>"},
        "tokenizer": {"kind": "word", "min_count": 1},
        "read": {"documents": "line"},
        "prepare": {"heldout": 0.1},
        "train": {"epochs": EPOCHS[kind]},
    }
    return config.build(Recipe, made)


def changed(base: Recipe, **components: Any) -> Recipe:
    return config.build(Recipe, config.to_table(base) | components)


class Recorder(Quiet):
    """A progress reporter that keeps notes and records."""

    def __init__(self) -> None:
        super().__init__()
        self.records: list[dict[str, Any]] = []

    def record(self, record: dict[str, Any], progress: float) -> None:
        self.records.append(record)


def stage(name: str) -> Any:
    return lambda *_: None


def begin(folder: Path, given: Recipe | None = None, text: str | None = None) -> Path:
    """Start a run without training it."""
    texts = folder / "text"
    if text is None:
        write_text(texts)
    else:
        texts.mkdir(parents=True)
        (texts / "text.txt").write_text(text, encoding="utf-8")
    running.start(given or recipe(), Inputs((str(texts),)), folder / "run")
    return folder / "run"


def finish(run: Path, reporter: Quiet | None = None) -> TrainedModel:
    assert running.train_run(run, reporter or Quiet(), samples)
    return open_run(run, "cpu")


def test_the_evaluation_after_training_shows_its_progress(tmp_path: Path) -> None:
    shown: dict[str, list[tuple[float, ...]]] = {}

    class Shown(Quiet):
        def stage(self, name: str) -> Any:
            return lambda *progress: shown.setdefault(name, []).append(progress)

    assert running.train_run(begin(tmp_path, recipe("word_vectors")), Shown(), samples)
    assert any(done == total for done, total, *_ in shown["evaluating"])


def files(run: Path) -> dict[str, str]:
    """Return the checksums of a checkpoint's files, except those that hold times."""
    (folder,) = checkpoint.all_in(run)
    manifest = json.loads((folder / "manifest.json").read_text(encoding="utf-8"))
    return {
        name: file["blake2b"] for name, file in manifest["files"].items() if name != "state.json"
    }


Done = Callable[[str], tuple[Path, Recorder]]


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> Done:
    """Return a finished run of a kind, with its progress reporter."""
    made: dict[str, tuple[Path, Recorder]] = {}

    def of(kind: str) -> tuple[Path, Recorder]:
        if kind not in made:
            made[kind] = begin(tmp_path_factory.mktemp(kind), recipe(kind)), Recorder()
            finish(*made[kind])
        return made[kind]

    return of


@pytest.fixture
def run(done: Done) -> Path:
    """A finished run of an n-gram model."""
    return done("ngram")[0]


@every_kind
def test_an_offline_run_has_one_checkpoint(done: Done, kind: str) -> None:
    run, _ = done(kind)
    assert is_finished(run)
    (folder,) = checkpoint.all_in(run)
    assert folder.name == checkpoint.name_of(EPOCHS[kind])
    assert (folder / FILES[kind]).is_file()
    assert not (run / offline.FOLDER).exists()
    trained = open_run(run, "cpu")
    state = checkpoint.read_state(trained.folder)
    assert state["spent"]["epochs"] == EPOCHS[kind]
    assert state["best"] == folder.name
    assert json.loads((run / "run.json").read_text())["parameters"] == (
        trained.model.count_parameters()
    )


def test_a_table_is_memory_mapped(run: Path) -> None:
    table = table_of(open_run(run, "cpu").model)
    assert table.header.order == 3
    assert isinstance(table.keys[1].base, np.memmap)


@every_kind
def test_an_offline_run_has_the_records_of_any_run(done: Done, kind: str) -> None:
    run, reporter = done(kind)
    records = log.read(run)
    assert records == reporter.records
    assert [record["kind"] for record in records] == ["train", "heldout", "samples"]
    train, heldout, shown = records
    assert train["offline"] and train["tokens"] == heldout["tokens"] > 0
    assert train.keys() == {
        *("kind", "offline", "step", "loss", "tokens", "flops", "seconds", "tokens_per_second")
    }
    assert not log.components(train) and not log.components(heldout)
    assert heldout["perplexity"] == pytest.approx(math.exp(heldout["loss"]))
    assert heldout["predictions"] > 0 and heldout["bits_per_byte"] > 0
    if kind == "ngram":  # word vectors know little of what begins and ends a text
        assert train["loss"] < heldout["loss"] < math.log(30)
    assert len(shown["samples"]) == 3
    assert {record["step"] for record in records} == {EPOCHS[kind]}


@every_kind
def test_notes_report_what_was_read_and_how_fast(done: Done, kind: str) -> None:
    _, reporter = done(kind)
    first, trained, second, *_, last = reporter.notes
    assert "tokens to train on" in first
    assert "tokenizer trained on 240 of 240 documents" in trained
    assert {"ngram": "3-grams: ", "word_vectors": "different ones; epochs: 2"}[kind] in second
    assert "tokens/s in" in last


@every_kind
def test_the_saved_recipe_names_device_and_precision(done: Done, kind: str) -> None:
    run, _ = done(kind)
    train = read_recipe(run).train
    assert (train.device, train.precision, train.compile) == ("cpu", "fp32", "off")
    assert recipe(kind).train.device == "auto"


def test_the_loss_does_not_depend_on_the_block_size(
    run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trained = open_run(run, "cpu")
    shards = running.PreparedText.load(run / "shards").heldout
    texts = NgramTexts.of(shards, trained.vocab, *trained.recipe.bos_and_eos)
    table = table_of(trained.model)
    at_once = measure(table, texts)
    monkeypatch.setattr(reading, "CHUNK", 7)
    in_parts = measure(table, texts)
    assert in_parts.nats == pytest.approx(at_once.nats)
    assert in_parts.tokens == at_once.tokens == shards.tokens_total + len(shards)
    assert in_parts.ngrams.tolist() == at_once.ngrams.tolist()
    assert in_parts.unseen.tolist() == at_once.unseen.tolist()
    stream = texts.read(0, len(texts))
    assert at_once.nats == pytest.approx(-table.log_probs_of(stream).sum())


@pytest.mark.full
def test_counting_in_parts_gives_the_same_table(run: Path, tmp_path: Path) -> None:
    whole = open_run(run, "cpu").model
    components = finish(begin(tmp_path, recipe(chunk=50))).model
    one, other = table_of(whole), table_of(components)
    assert one.header == other.header
    for first, second in zip(one.log_probs, other.log_probs, strict=True):
        assert np.array_equal(first, second)


@pytest.mark.product(few=1)
@every_kind
@pytest.mark.parametrize("where", ["fit", "save"])
def test_a_killed_offline_run_starts_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, done: Done, kind: str, where: str
) -> None:
    run = begin(tmp_path, recipe(kind))

    class Dying(Quiet):
        def stage(self, name: str) -> Any:
            dies = (name, where) == ("offline training", "fit")
            return (lambda *_: kill()) if dies else super().stage(name)

    with monkeypatch.context() as broken:
        if where == "save":
            broken.setattr(checkpoint, "save", lambda *_, **__: kill())
        broken.setattr(offline.shutil, "rmtree", lambda *_, **__: None)  # as a kill would leave it
        with pytest.raises(Killed):
            running.train_run(run, Dying())
    assert (run / offline.FOLDER).is_dir()
    assert bool(log.read(run)) == (where == "save")
    assert not is_finished(run)
    finish(run)
    assert is_finished(run)
    assert not (run / offline.FOLDER).exists()
    assert [record["kind"] for record in log.read(run)] == ["train", "heldout", "samples"]
    assert files(run) == files(done(kind)[0])


@pytest.mark.product(few=1)
@every_kind
def test_a_damaged_checkpoint_is_trained_again(tmp_path: Path, done: Done, kind: str) -> None:
    run = begin(tmp_path, recipe(kind))
    finish(run)
    (folder,) = checkpoint.all_in(run)
    file = folder / FILES[kind]
    file.write_bytes(file.read_bytes()[:-8] + b"12345678")
    with pytest.raises(UserError, match=f"{FILES[kind]} does not match"):
        open_run(run, "cpu")
    assert not is_finished(run)
    reporter = Quiet()
    finish(run, reporter)
    assert reporter.warnings[0] == f"{folder}: damaged; the model is trained again"
    assert files(run) == files(done(kind)[0])


@every_kind
def test_resuming_a_finished_run_changes_nothing(done: Done, kind: str) -> None:
    run, _ = done(kind)
    (folder,) = checkpoint.all_in(run)
    resolved = (run / "recipe.toml").read_text(encoding="utf-8")
    (run / "recipe.toml").write_text(recipe(kind).dumps(), encoding="utf-8")  # as older ones are
    before = (folder / "manifest.json").stat().st_mtime_ns
    reporter = Quiet()
    finish(run, reporter)
    assert (folder / "manifest.json").stat().st_mtime_ns == before
    assert not reporter.notes
    assert read_recipe(run) == recipe(kind)
    (run / "recipe.toml").write_text(resolved, encoding="utf-8")


@every_kind
def test_a_start_from_weights_is_refused(tmp_path: Path, kind: str) -> None:
    run = begin(tmp_path, recipe(kind))
    (run / START).mkdir()
    with pytest.raises(UserError, match="--from: this model learns from text alone"):
        finish(run)


@pytest.mark.product(few=1)
@pytest.mark.parametrize(
    ("train", "message"),
    [
        ({}, ""),
        ({"epochs": 1}, ""),
        ({"epochs": 3}, "the text is read once, whatever the budget: 3 epochs"),
        ({"steps": 500}, "the text is read once, whatever the budget: 500 steps"),
    ],
)
def test_a_budget_without_effect_is_noted(
    tmp_path: Path, train: dict[str, Any], message: str
) -> None:
    reporter = Quiet()
    finish(begin(tmp_path, changed(recipe(), train=train)), reporter)
    assert [note for note in reporter.notes if "budget" in note] == [message] * bool(message)


@pytest.mark.parametrize("train", [{}, {"steps": 500}, {"epochs": 1.5}, {"hours": 1}])
def test_word_vectors_without_whole_epochs_are_refused_before_text_is_read(
    tmp_path: Path, train: dict[str, Any]
) -> None:
    with pytest.raises(UserError, match=r"use --epochs 5 \(train\.epochs = 5\) alone"):
        begin(tmp_path, changed(recipe("word_vectors"), train=train))
    assert not (tmp_path / "run").exists()


@every_kind
def test_an_objective_that_changes_the_text_is_refused(tmp_path: Path, kind: str) -> None:
    run = begin(tmp_path, changed(recipe(kind), objective="prefix"))
    with pytest.raises(UserError, match=r"objective\.kind: this model predicts each token"):
        finish(run)
    assert not (run / offline.FOLDER).exists()


def test_inputs_that_only_a_network_could_have_masked_are_refused(tmp_path: Path) -> None:
    objective = {"kind": "causal", "masked_inputs": 0.1}
    run = begin(tmp_path, changed(recipe("ngram"), objective=objective))
    with pytest.raises(UserError, match="without masked_inputs"):
        finish(run)
    assert not (run / offline.FOLDER).exists()


def test_scores_without_normalisation_have_no_perplexity(tmp_path: Path) -> None:
    run = begin(tmp_path, recipe(smoothing="stupid_backoff"))
    finish(run)
    record = next(r for r in log.read(run) if r["kind"] == "heldout")
    assert record["perplexity"] is None and record["bits_per_byte"] is None


def test_too_little_text_for_discounts_is_noted(tmp_path: Path) -> None:
    run, reporter = begin(tmp_path, text="a b a b\nb a c\nc a b\na a\n"), Quiet()
    running.train_run(run, reporter)
    assert any("too few 3-grams to estimate discounts from" in note for note in reporter.notes)


@pytest.mark.parametrize(
    ("base", "text", "message"),
    [
        (recipe(order=9), "a b\nb a\nc a\na a\n", r"model\.order: 9 words, but no text has more"),
        (recipe(), "a a a\na a\na\na a a a\n", "fewer than two distinct tokens"),
        (
            changed(recipe(), packing={"kind": "stream"}),
            "a b\nb a\nc a\na a\n",
            r"packing\.bos: an n-gram model requires a token",
        ),
        (recipe("word_vectors"), "a a a\na a\na\na a a a\n", "fewer than two distinct tokens"),
        (
            changed(recipe("word_vectors"), packing={"kind": "documents", "length": 40}),
            "a b\nb a\nc a\na a\n",
            "text: only 12 tokens, but a row needs 40",
        ),
    ],
)
def test_text_that_a_model_cannot_be_trained_on_is_refused_in_one_line(
    tmp_path: Path, base: Recipe, text: str, message: str
) -> None:
    run = begin(tmp_path, base, text)
    with pytest.raises(UserError, match=message) as caught:
        running.train_run(run, Quiet())
    assert "\n" not in str(caught.value)
    assert not (run / offline.FOLDER).exists()
