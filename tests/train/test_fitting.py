"""Runs of models that are counted: done at once, or begun again."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from foreword import config
from foreword.errors import UserError
from foreword.evaluate.samples import samples
from foreword.train import checkpoint, fitting, log
from foreword.train import run as running
from foreword.train.fitting import Texts, counted, measure
from foreword.train.opened import Opened, is_finished, open_run
from foreword.train.recipe import Recipe
from foreword.train.run import Inputs

from .runs import Killed, Quiet, write_text


def recipe(**model: Any) -> Recipe:
    made = {
        "model": {"kind": "ngram", "order": 3, **model},
        "objective": "causal",
        "layout": "decoder",
        "packing": {"kind": "documents", "length": 16, "before": "<s>"},
        "tokenizer": {"kind": "word", "min_count": 1},
        "read": {"documents": "line"},
        "prepare": {"heldout": 0.1},
    }
    return config.build(Recipe, made)


def stage(name: str) -> Any:
    return lambda done, total: None


def begin(folder: Path, of: Recipe | None = None, text: str | None = None) -> Path:
    """A run that is begun and not counted."""
    texts = folder / "text"
    if text is None:
        write_text(texts)
    else:
        texts.mkdir(parents=True)
        (texts / "text.txt").write_text(text, encoding="utf-8")
    running.start(of or recipe(), Inputs((str(texts),)), folder / "run")
    return folder / "run"


def finish(run: Path) -> Opened:
    assert running.carry_on(run, Quiet(), stage, samples)
    return open_run(run, "cpu")


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = begin(tmp_path_factory.mktemp("counted"))
    finish(made)
    return made


def test_a_run_is_one_checkpoint_with_its_table(run: Path) -> None:
    opened = open_run(run, "cpu")
    assert is_finished(run)
    assert [folder.name for folder in checkpoint.all_in(run)] == ["step-00000001"]
    assert counted(opened.model).table.about.order == 3
    assert isinstance(counted(opened.model).table.keys[1].base, np.memmap)
    assert not (run / fitting.FOLDER).exists()


def test_its_records_are_those_of_any_run(run: Path) -> None:
    records = {record["kind"]: record for record in log.read(run)}
    heldout = records["heldout"]
    assert heldout["perplexity"] == pytest.approx(math.exp(heldout["loss"]))
    assert records["train"]["loss"] < heldout["loss"] < math.log(30)
    assert len(records["samples"]["samples"]) == 3


def test_every_text_is_measured_whole(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened = open_run(run, "cpu")
    shards = running.Prepared.load(run / "shards").heldout
    texts, table = Texts.of(opened.recipe, shards, opened.vocab), counted(opened.model).table
    at_once = measure(table, texts)
    monkeypatch.setattr(fitting, "CHUNK", 7)
    in_parts = measure(table, texts)
    assert in_parts.nats == pytest.approx(at_once.nats)
    assert in_parts.tokens == at_once.tokens == shards.tokens_total + len(shards)
    assert in_parts.ngrams.tolist() == at_once.ngrams.tolist()
    assert in_parts.unseen.tolist() == at_once.unseen.tolist()
    stream = texts.read(0, len(texts))
    assert at_once.nats == pytest.approx(-table.log_probs_of(stream).sum())


def test_what_was_counted_in_parts_is_the_same(run: Path, tmp_path: Path) -> None:
    whole = open_run(run, "cpu").model
    parts = finish(begin(tmp_path, recipe(chunk=50))).model
    one, other = counted(whole).table, counted(parts).table
    assert one.about == other.about
    for first, second in zip(one.log_probs, other.log_probs, strict=True):
        assert np.array_equal(first, second)


@pytest.mark.parametrize("where", ["fit", "save"])
def test_one_that_was_killed_begins_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    run = begin(tmp_path)

    def kill(*_: Any, **__: Any) -> None:
        raise Killed

    with monkeypatch.context() as broken:
        target = checkpoint if where == "save" else fitting.Texts
        broken.setattr(target, "save" if where == "save" else "store", kill)
        broken.setattr(fitting.shutil, "rmtree", lambda *_, **__: None)  # as a kill would leave it
        with pytest.raises(Killed):
            running.carry_on(run, Quiet(), stage)
    assert (run / fitting.FOLDER).is_dir()
    assert not is_finished(run)
    finish(run)
    assert is_finished(run)
    assert [record["kind"] for record in log.read(run)] == ["train", "heldout", "samples"]


def test_a_damaged_checkpoint_is_counted_anew(tmp_path: Path) -> None:
    run = begin(tmp_path)
    finish(run)
    file = run / "checkpoints" / "step-00000001" / "keys-2.npy"
    file.write_bytes(file.read_bytes()[:-8] + b"12345678")
    with pytest.raises(UserError, match=r"keys-2\.npy does not match"):
        open_run(run, "cpu")
    finish(run)


def test_a_finished_run_is_left_as_it_is(run: Path) -> None:
    before = (run / "checkpoints" / "step-00000001" / "manifest.json").stat().st_mtime_ns
    finish(run)
    assert (run / "checkpoints" / "step-00000001" / "manifest.json").stat().st_mtime_ns == before


def test_scores_that_are_no_probabilities_have_no_perplexity(tmp_path: Path) -> None:
    run = begin(tmp_path, recipe(smoothing="stupid_backoff"))
    finish(run)
    record = next(r for r in log.read(run) if r["kind"] == "heldout")
    assert record["perplexity"] is None and record["bits_per_byte"] is None


def test_too_little_text_for_discounts_is_said(tmp_path: Path) -> None:
    run, watcher = begin(tmp_path, text="a b a b\nb a c\nc a b\na a\n"), Quiet()
    running.carry_on(run, watcher, stage)
    assert any("too few 3-grams to learn discounts from" in note for note in watcher.notes)


@pytest.mark.parametrize(
    ("of", "text", "message"),
    [
        (recipe(order=9), "a b\nb a\nc a\na a\n", r"model\.order: 9 words, but no text has more"),
        (recipe(), "a a a\na a\na\na a a a\n", "one token over and over"),
        (
            config.build(Recipe, config.to_table(recipe()) | {"packing": {"kind": "stream"}}),
            "a b\nb a\nc a\na a\n",
            r"packing\.before: a model of counts is given a token",
        ),
        (
            config.build(Recipe, config.to_table(recipe()) | {"objective": "prefix"}),
            "a b\nb a\nc a\na a\n",
            r"objective\.kind: a model of counts predicts each token",
        ),
    ],
)
def test_what_cannot_be_counted_is_refused_in_one_line(
    tmp_path: Path, of: Recipe, text: str, message: str
) -> None:
    run = begin(tmp_path, of, text)
    with pytest.raises(UserError, match=message) as caught:
        running.carry_on(run, Quiet(), stage)
    assert "\n" not in str(caught.value)
    assert not (run / fitting.FOLDER).exists()
