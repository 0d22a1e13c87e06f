"""Cells that differ in the shares of their sources, measured on the text of each source."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from foreword.comparison import tables
from foreword.comparison.grid import load_grid
from foreword.comparison.plot import write_plot
from foreword.comparison.results import gather
from foreword.comparison.run import Comparison
from foreword.comparison.verdicts import verdicts
from foreword.errors import UserError
from foreword.objectives.causal import Causal
from foreword.objectives.masked import Masked
from foreword.runs.provenance import read_state
from tests.comparison import grids
from tests.comparison.grids import Quiet
from tests.train import runs


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = grids.write_files(tmp_path_factory.mktemp("grid"))
    runs.write_text(made / "wiki", 6, seed=1)
    runs.write_text(made / "novels", 3, seed=2)
    return made


def cell(label: str, **weights: float) -> dict[str, Any]:
    sources = [{"name": n, "path": n, "weight": weight} for n, weight in weights.items()]
    return {"recipe": "decoder.toml", "label": label, "set": {"data": {"sources": sources}}}


CELLS = [cell("wiki alone", wiki=1), cell("both", wiki=3, novels=1)]
RENAMED = {
    **CELLS[0],
    "label": "b",
    "set": {"data": {"sources": [{"name": "wiki", "path": "novels", "weight": 1}]}},
}


def grid(**more: Any) -> dict[str, Any]:
    return {"data": None, "tasks": [], "cells": CELLS, **more}


@pytest.mark.full
def test_every_cell_is_measured_on_the_held_out_text_of_every_source(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "out"
    comparison = grids.compare(folder, out, **grid())
    assert comparison.failures == []
    # Tokenizer and shards are shared, and a run reads those of its own sources.
    made = {path.name for path in (out / "data").iterdir() if path.is_dir()}
    assert made == {"tokenizer-word", "shards-word-wiki", "shards-word-novels"}
    texts = read_state(out / "runs" / "wiki-alone-1")["texts"]
    assert [Path(text).name for text in texts] == ["shards-word-wiki"]
    results = gather(comparison)
    (by_source,) = (t for t in tables.tables(results) if t.title == "Held-out loss by source")
    assert by_source.columns == ("cell", "held-out wiki, loss", "held-out novels, loss")
    assert [row[0] for row in by_source.rows] == ["wiki alone", "both"]
    assert all(float(value) > 0 for row in by_source.rows for value in row[1:])
    assert not results.is_one_objective
    assert any(
        "losses by source, which are on the same texts" in note for note in tables.notes(results)
    )
    assert write_plot(results) == ""
    # Bounds are marked and ranked with no exact loss.
    marked = [replace(run, is_bound=run.cell == "both") for run in results.runs]
    bounded = replace(results, runs=tuple(marked))
    (by_source,) = (t for t in tables.tables(bounded) if t.title == "Held-out loss by source")
    is_marked = [[cell.startswith("at most") for cell in row[1:]] for row in by_source.rows]
    assert is_marked == [[False, False], [True, True]]
    assert verdicts(results)
    assert not verdicts(bounded)
    # Inputs that training masks are read whole here; another objective predicts other tokens.
    for objective, is_one in ((Causal(masked_inputs=0.2), True), (Masked(), False)):
        other = replace(comparison.recipes["both", 1], objective=objective)
        recipes = {**comparison.recipes, ("both", 1): other}
        with monkeypatch.context() as patch:
            patch.setattr(comparison, "recipes", recipes)
            assert bool(verdicts(results)) == is_one
    # The loss by source is the one that training measured at its end.
    (last,) = [run.heldout_loss for run in results.runs if run.cell == "wiki alone"]
    assert float(by_source.rows[0][1]) == pytest.approx(last, abs=1e-3)
    # Another weight changes its cell alone, and a sweep has a validation part of each source.
    more = grid(cells=[*CELLS[:1], cell("both", novels=1)])
    changed = Comparison(load_grid(grids.write_grid(folder, **more)), out, Quiet())
    changed.prepare()
    left = [str(job) for job in changed.jobs() if changed.seconds_taken(job) is None]
    names = ("pretraining", "held-out wiki", "held-out novels")
    assert left == [f"both, seed 1: {name}" for name in names]
    validation = changed.corpora.validation_for(comparison.recipes["both", 1])
    assert all(one.heldout.tokens_total for one in validation.sources.values())


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (
            {"cells": [*CELLS, {"recipe": "decoder.toml"}]},
            "cell 'decoder': data.sources: other cells have sources",
        ),
        (
            {"cells": [cell("a", wiki=1), RENAMED]},
            "cell 'b': data.sources: source 'wiki' is novels, but that of another cell is wiki",
        ),
        ({"heldout": ["wiki"]}, r"prepare = \{ heldout = 0.1 \} in the grid's \[set\]"),
        ({"cells": [cell("a", elsewhere=1)]}, r"cell 'a': data.sources\[0\].path: .*elsewhere"),
    ],
)
def test_impossible_sources_of_a_grid_are_refused(
    folder: Path, tmp_path: Path, more: dict[str, Any], message: str
) -> None:
    with pytest.raises(UserError, match=message):
        Comparison(load_grid(grids.write_grid(folder, **grid(**more))), tmp_path / "out", Quiet())
    assert not (tmp_path / "out").exists()
