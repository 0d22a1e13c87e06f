"""A run on a mixture of sources, from the recipe to the report."""

from __future__ import annotations

import json
from dataclasses import fields
from pathlib import Path
from typing import Any

import fsspec
import numpy as np
import pytest

from foreword.cli.main import run as main
from foreword.data.prepared_text import PreparedText
from foreword.errors import UserError
from foreword.runs import run as running
from foreword.runs.corpus import corpus
from foreword.runs.recipe import Recipe
from foreword.runs.run_folder import Run
from foreword.runs.sources import mixed_rows
from foreword.types import NextToken
from tests.train import runs

SOURCES = [
    {"name": "wiki", "path": "wiki", "weight": 0.75},
    {"name": "novels", "path": "novels", "weight": 0.25, "epochs": 4},
]
LATE = [{"share": 0.5, "data": {"sources": {"novels": {"weight": 0}}}}]


@pytest.fixture(scope="module")
def texts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("sources")
    runs.write_text(folder / "wiki", 6, seed=1)
    runs.write_text(folder / "novels", 3, seed=2)
    return folder


def recipe(*sources: dict[str, Any], family: str = "decoder", **train: Any) -> Recipe:
    table = {**runs.table(family, **train), "data": {"sources": list(sources or SOURCES)}}
    return runs.build(table if sources else {**table, "stages": LATE})


def begin(made: Recipe, folder: Path, out: Path) -> Path:
    paths = tuple(str(folder / source.path) for source in made.data.sources)
    running.start(made, running.Inputs(paths), out)
    return out


@pytest.mark.full
def test_a_resumed_mixture_equals_an_uninterrupted_one_and_is_reported_by_source(
    texts: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made = recipe()
    whole = begin(made, texts, tmp_path / "whole")
    reporter = runs.Quiet()
    assert runs.train_run(whole, reporter)
    run = begin(made, texts, tmp_path / "run")
    runs.die_at(run, 5)
    assert runs.train_run(run)
    assert runs.last_bytes(run) == runs.last_bytes(whole)
    assert runs.logged(run, "heldout") == runs.logged(whole, "heldout")
    # The loss of the run is the mean of the sources by their shares, which the notes state.
    assert any(note.startswith("source novels: 12.50% of the rows") for note in reporter.notes)
    last = runs.logged(run, "heldout")[-1]
    assert set(last["sources"]) == {"wiki", "novels"}
    mean = 0.875 * last["sources"]["wiki"] + 0.125 * last["sources"]["novels"]
    assert last["loss"] == pytest.approx(mean)
    # Evaluation and report.
    capsys.readouterr()
    assert main(["evaluate", str(run), "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)["rows"]
    assert [row["what"].rpartition(": ")[2] for row in rows][-2:] == ["wiki", "novels"]
    assert main(["report", str(run)]) == 0
    page = (run / "report.html").read_text()
    assert "Held-out loss by source" in page and "12.50%" in page


def test_prepared_sources_give_the_rows_of_their_texts(texts: Path, tmp_path: Path) -> None:
    made = recipe()
    run = begin(made, texts, tmp_path / "run")
    tokenizer, prepared = corpus(Run(run), runs.stage)
    shards = run / "shards"
    again = recipe(SOURCES[0], {**SOURCES[1], "path": str(shards / "novels")})
    other = begin(again, texts, tmp_path / "other")
    same, mixed = corpus(Run(other), runs.stage)
    assert same.fingerprint == tokenizer.fingerprint
    assert mixed.fingerprint == prepared.fingerprint
    assert not (other / "shards" / "novels").exists()
    assert isinstance(prepared, PreparedText) and set(prepared.sources) == {"wiki", "novels"}
    # A model with a memory reads each source for some steps; its streams go on to their ends.
    streams = recipe(family="transformer_xl", steps=640, batch=4)
    rows = mixed_rows(streams, prepared, tokenizer.vocab).rows(np.arange(160))
    ids = rows.ids.reshape(40, 4, -1)
    continues = rows.require(NextToken).ids.reshape(40, 4)[:-1] == ids[1:, :, 0]
    is_last = np.arange(39) % 10 == 9
    assert continues[~is_last].all() and not continues[is_last].all()


@pytest.mark.full
def test_check_says_what_each_source_is_worth(
    texts: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "mix.toml"
    file.write_text(recipe(steps=200, precision="fp32").dumps())
    assert main(["check", str(file), "--data", str(texts), "--json"]) == 0
    wiki, novels = json.loads(capsys.readouterr().out)["sources"]
    assert novels["stage"] == "2" and novels["share"] == pytest.approx(0.125)
    assert wiki["epochs"] > wiki["worth"] > 4 == wiki["worth_it"]
    assert wiki["effective_tokens"] == pytest.approx(wiki["worth"] * wiki["tokens"], abs=1)
    # Limits that end before training does, estimated by the sample.
    file.write_text(recipe(SOURCES[1], steps=5000).dumps())
    assert main(["check", str(file), "--data", str(texts)]) == 2
    assert "all sources reach their limits of epochs" in capsys.readouterr().err


def test_impossible_mixtures_are_refused_in_one_line(
    texts: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def refused(made: Recipe, *words: str) -> str:
        file = tmp_path / "mix.toml"
        file.write_text(made.dumps())
        command = ["pretrain", str(file), "--out", str(tmp_path / "out"), *words]
        assert main(command) == 2
        assert not (tmp_path / "out").exists()
        error = capsys.readouterr().err.strip().splitlines()
        assert len(error) == 1
        return error[0]

    data = ("--data", str(texts))
    missing = recipe(SOURCES[0], {**SOURCES[1], "path": "nowhere"})
    assert "data.sources[1].path: " in (line := refused(missing, *data)) and "no such file" in line
    double = recipe(SOURCES[0], {**SOURCES[1], "path": "wiki/1.txt"})
    assert "data.sources[1].path: " in (line := refused(double, *data))
    assert "also read by source 'wiki'" in line
    remote = [{**one, "path": f"memory://mixture/{one['name']}.txt"} for one in SOURCES]
    fsspec.filesystem("memory").pipe("/mixture/wiki.txt", b"a text")
    assert "data.sources[1].path: memory://mixture/novels.txt: there is no" in refused(
        recipe(*remote)
    )
    assert "the folder that their paths start from" in refused(recipe(), *data, *data)
    assert "give a share" in refused(recipe(), *data, "--heldout", str(texts / "wiki"))
    plain = runs.recipe()
    assert "--data: name the text" in refused(plain)


def test_models_without_rows_refuse_a_mixture() -> None:
    with pytest.raises(UserError, match="trained offline"):
        Recipe(**{**_parts("ngram_tiny"), "data": recipe().data})


def _parts(name: str) -> dict[str, Any]:
    from foreword.runs.recipe import load_recipe

    loaded = load_recipe(name)
    return {field.name: getattr(loaded, field.name) for field in fields(loaded)}


def test_shards_of_different_tokenizers_are_refused(texts: Path, tmp_path: Path) -> None:
    for name in ("wiki", "novels"):
        made = runs.recipe()
        run = runs.begin(made, texts / name, tmp_path / name)
        corpus(Run(run), runs.stage)
    paths = [{**one, "path": str(tmp_path / str(one["name"]) / "shards")} for one in SOURCES]
    with pytest.raises(UserError, match="'wiki' and 'novels' were made with different tokenizers"):
        begin(recipe(*paths), texts, tmp_path / "run")
