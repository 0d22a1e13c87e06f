"""Probes stand in the table like tasks, beside random weights; so does a bag of words."""

from __future__ import annotations

import csv
import json
import math
from pathlib import Path
from typing import Any

import pytest

from foreword.cli.main import run as command
from foreword.comparison.grid import load_grid
from foreword.comparison.probing import named
from foreword.comparison.results import gather
from foreword.comparison.run import Comparison
from foreword.comparison.tables import tables
from foreword.errors import UserError
from foreword.probes._suite import ALL
from foreword.tuning.bag_of_words import bag_of_words
from tests.comparison import grids
from tests.comparison.grids import CAUSAL, MASKED, TASK, Quiet
from tests.runs import test_offline as offline
from tests.train import runs

PAIRS = [
    ("the cat sat", "cat the sat"),
    ("a dog ran", "dog ran a"),
    ("the old bird", "bird old the"),
]
MINIMAL = {"kind": "minimal_pairs", "files": "pairs.jsonl"}
TAGGING = {"kind": "tagging", "train": "tags.conllu", "dev": "tags.conllu"}
MORE: dict[str, Any] = {"probes": [MINIMAL], "tasks": []}
PIECES = [
    "masked, seed 1: pretraining",
    "masked, seed 1: minimal pairs",
    "decoder, seed 1: pretraining",
    "decoder, seed 1: minimal pairs",
]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = grids.write_files(tmp_path / "grid")
    lines = [json.dumps({"sentence_good": good, "sentence_bad": bad}) for good, bad in PAIRS]
    (folder / "pairs.jsonl").write_text("\n".join(lines), encoding="utf-8")
    rows = [[n, "cat", "_", tag, *"______"] for n, tag in enumerate(("NOUN", "VERB"), 1)]
    lines = ["\t".join(map(str, row)) for row in rows]
    (folder / "tags.conllu").write_text("\n".join(lines) + "\n\n", encoding="utf-8")
    return folder


def begun(folder: Path, out: Path, **more: Any) -> list[str]:
    """Run the grid and return the jobs that it ran."""
    reporter = Quiet()
    assert grids.compare(folder, out, reporter, **{**MORE, **more}).failures == []
    return reporter.begun


@pytest.mark.full
def test_each_model_is_probed_once_beside_random_weights(folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    assert begun(folder, out) == PIECES
    assert begun(folder, out) == []
    results = gather(grids.compare(folder, out, **MORE))
    assert {(s.cell, s.start, s.task) for s in results.scores} == {
        (cell, start, "minimal pairs")
        for cell in ("masked", "decoder")
        for start in ("pretrained", "from scratch")
    }
    (table,) = (table for table in tables(results) if table.title == "Probes")
    assert table.columns == ("cell", "minimal pairs, accuracy", "random weights")
    assert [row[0] for row in table.rows] == ["masked", "decoder"]
    assert (out / "runs" / "masked-1" / "evaluations" / "probe-minimal-pairs.json").is_file()
    # The lines of the table of values, the page and the plot have them too.
    words = ["compare", grids.write_grid(folder, **MORE), "--out", str(out), "--quiet"]
    assert command(words) == 0
    with (out / "results.csv").open(encoding="utf-8") as file:
        lines = [line for line in csv.DictReader(file) if line["task"] == "minimal pairs"]
    of_pairs = ["accuracy, difference", "accuracy, corrected p"]
    assert [line["metric"] for line in lines] == ["accuracy"] * 4 + of_pairs
    assert command(["report", str(out)]) == 0
    assert "minimal pairs, accuracy" in (out / "report.html").read_text(encoding="utf-8")


@pytest.mark.full
def test_the_probe_equals_that_of_the_command(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    comparison = grids.compare(folder, tmp_path / "out", **MORE)
    probes = named(comparison.grid.probes)
    ours = gather(comparison).task_values("masked", probes[0], "pretrained")
    random = gather(comparison).task_values("masked", probes[0], "from scratch")
    words = ["probe", str(tmp_path / "out" / "runs" / "masked-1"), "minimal_pairs"]
    words += ["--set", f"files={folder / 'pairs.jsonl'}", "--untrained", "--json"]
    assert command([*words, "--out", str(tmp_path / "probed")]) == 0
    rows = [r for r in json.loads(capsys.readouterr().out)["rows"] if r["paradigm"] == ALL]
    assert [row["accuracy"] for row in rows] == [*ours, *random]


@pytest.mark.full
def test_with_several_seeds_probes_have_intervals(folder: Path, tmp_path: Path) -> None:
    more = {**MORE, "seeds": 2, "cells": [CAUSAL]}
    comparison = grids.compare(folder, tmp_path / "out", **more)
    (probe,) = named(comparison.grid.probes)
    for start in ("pretrained", "from scratch"):
        interval = gather(comparison).task_interval("decoder", probe, start)
        assert interval is not None
        assert interval.count == 2 and not math.isnan(interval.half_width)


@pytest.mark.full
def test_the_probes_of_a_recipe_are_run_as_it_trains(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    cell = {**CAUSAL, "set": {"probes": [MINIMAL]}}
    out = tmp_path / "out"
    assert begun(folder, out, cells=[cell], probes=None) == ["decoder, seed 1: pretraining"]
    assert [record["step"] for record in runs.logged(out / "runs" / "decoder-1", "probes")]
    grid = load_grid(grids.write_grid(folder, cells=[cell]))
    recipe = grid.recipe(grid.cells[0], seed=1)
    assert str(folder / "pairs.jsonl") in recipe.dumps()  # workers have other folders
    missing = {**CAUSAL, "set": {"probes": [{**MINIMAL, "files": "no.jsonl"}]}}
    with pytest.raises(UserError, match=r"cell 'decoder': .*no\.jsonl: no such"):
        grids.compare(folder, tmp_path / "other", cells=[missing], tasks=[])


@pytest.mark.full
def test_a_changed_file_repeats_its_probe_alone(folder: Path, tmp_path: Path) -> None:
    begun(folder, tmp_path / "out")
    with (folder / "pairs.jsonl").open("a", encoding="utf-8") as file:
        file.write('\n{"sentence_good": "a child sang", "sentence_bad": "sang a child"}')
    assert begun(folder, tmp_path / "out") == PIECES[1::2]
    assert begun(folder, tmp_path / "out", probes=[{**MINIMAL, "limit": 2}]) == PIECES[1::2]


@pytest.mark.full
def test_a_comparison_killed_at_a_probe_continues_there(folder: Path, tmp_path: Path) -> None:
    def die(begins: str) -> None:
        if begins == PIECES[3]:
            raise runs.Killed

    with pytest.raises(runs.Killed):
        grids.compare(folder, tmp_path / "out", Quiet(die), **MORE)
    assert begun(folder, tmp_path / "out") == PIECES[3:]


def test_a_count_based_cell_has_the_probes_that_it_supports(folder: Path, tmp_path: Path) -> None:
    (folder / "ngram.toml").write_text(offline.recipe("ngram").dumps(), encoding="utf-8")
    more = {
        "cells": [{"recipe": "ngram.toml"}],
        "probes": [MINIMAL, TAGGING],
        "tasks": [],
        "budget": {"unit": "epochs", "amount": 1},
        "set": None,
    }
    comparison = grids.compare(folder, tmp_path / "out", **more)
    assert comparison.failures == []
    (table,) = (table for table in tables(gather(comparison)) if table.title == "Probes")
    ((cell, pairs, *others),) = table.rows
    assert cell == "ngram" and 0 <= float(pairs) <= 1
    assert others == ["–", "–", "–"]


def test_probes_of_one_kind_are_numbered(folder: Path) -> None:
    grid = load_grid(grids.write_grid(folder, probes=[MINIMAL, TAGGING, {**MINIMAL, "limit": 1}]))
    assert [p.name for p in grid.measures[:3]] == ["minimal pairs", "tagging", "minimal pairs #2"]


@pytest.mark.parametrize(
    ("probe", "message"),
    [
        ({**MINIMAL, "files": "no.jsonl"}, "probes: minimal_pairs: probe.files: no.jsonl: no such"),
        ({"kind": "minimal_pears"}, "probes[0].kind: no kind 'minimal_pears'"),
        ({**MINIMAL, "limits": 3}, "probes[0].limits: kind 'minimal_pairs' has no such setting"),
    ],
)
def test_a_mistake_in_a_probe_is_refused_in_one_line(
    folder: Path, probe: dict[str, Any], message: str
) -> None:
    with pytest.raises(UserError) as caught:
        load_grid(grids.write_grid(folder, probes=[probe]))
    assert message in str(caught.value)


@pytest.mark.full
def test_a_probe_without_a_figure_fails_in_one_line(folder: Path, tmp_path: Path) -> None:
    more = {**MORE, "cells": [MASKED], "probes": [{"kind": "attention", "sentence": "the dog"}]}
    (failure,) = grids.compare(folder, tmp_path / "out", **more).failures
    assert failure.error == "probes: attention has no single figure for a table"
    assert not failure.is_fault


@pytest.mark.full
def test_a_bag_of_words_stands_in_the_table_once_per_task(folder: Path, tmp_path: Path) -> None:
    few = {**TASK, "rows": 0, "tune": {**TASK["tune"], "examples": 10}}
    comparison = grids.compare(folder, tmp_path / "out", tasks=[few])
    results, (task,) = gather(comparison), comparison.grid.tasks
    values = results.task_values("", task, "bag of words")
    assert len(values) == task.tune.seeds  # one for what each seed drew
    (table,) = (table for table in tables(results) if table.title == "Fine-tuning")
    assert [row[0] for row in table.rows] == [
        "masked",
        "decoder",
        "majority class",
        "bag of words",
    ]


@pytest.mark.full
def test_the_bag_of_words_learns_from_all_training_examples(folder: Path, tmp_path: Path) -> None:
    comparison = grids.compare(folder, tmp_path / "out", cells=[CAUSAL], tasks=[TASK])
    (task,) = comparison.grid.tasks
    examples = comparison.examples[task.name]
    expected = bag_of_words(task.task, examples.train, examples.dev)
    assert expected is not None
    assert gather(comparison).task_values("", task, "bag of words") == [expected.row["matthews"]]
    assert Comparison(comparison.grid, tmp_path / "out", Quiet()).examples
