"""Loading grids; a mistake is refused in one line that names the key."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from foreword.cli.main import run
from foreword.comparison.grid import load_grid, read_examples
from foreword.errors import UserError
from foreword.settings import config
from foreword.train.budget import Budget
from tests.comparison import grids
from tests.comparison.grids import CAUSAL, MASKED, TASK


def test_a_cell_is_its_recipe_with_settings_seed_and_budget(folder: Path) -> None:
    more = {"set": {"model": {"layers": 3}, "train": {"tokens": 5}}}
    grid = load_grid(grids.write_grid(folder, **more), budget=Budget("flops", 1e9))
    masked, causal = grid.cells
    assert [cell.name for cell in grid.cells] == ["masked", "decoder"]
    assert grid.recipe(masked, 7).model.layers == 3
    assert grid.recipe(causal, 7).model.layers == 1  # the cell's own come last
    train = grid.recipe(masked, 7).train
    assert (train.seed, train.flops, train.tokens, train.hours) == (7, 1e9, None, None)


def test_examples_are_the_first_rows_and_all_dev_files(folder: Path) -> None:
    (task,) = load_grid(grids.write_grid(folder)).tasks
    examples = read_examples(task)
    assert len(examples.train) == 16
    assert len(examples.dev) == 12
    assert {example.label for example in examples.dev} == {"good", "bad"}
    assert len(examples.checksums) == 3


def test_columns_are_the_usual_ones_of_the_task_and_the_format(folder: Path) -> None:
    (folder / "words.conll").write_text("Ada B-person\nsleeps O\n\n", encoding="utf-8")
    task = {"name": "Entities", "train": "words.conll", "dev": "words.conll", "task": "tag"}
    (task_read,) = load_grid(grids.write_grid(folder, tasks=[task])).tasks
    (example,) = read_examples(task_read).train
    assert (example.text, example.label) == ("Ada\nsleeps", "B-person\nO")


def test_the_texts_of_a_pair_may_be_read_as_one(folder: Path) -> None:
    (folder / "pairs.tsv").write_text("text\tpair\tlabel\na b\tc\tyes\n", encoding="utf-8")
    task = {"name": "Pairs", "train": "pairs.tsv", "dev": "pairs.tsv", "pair": "pair"}
    for joins, expected in ((False, ("a b", "c")), (True, ("a b c", None))):
        (grid_task,) = load_grid(
            grids.write_grid(folder, tasks=[{**task, "joins_pairs": joins}])
        ).tasks
        (example,) = read_examples(grid_task).dev
        assert (example.text, example.pair) == expected


def test_the_command_line_overrides_the_grid(folder: Path, tmp_path: Path) -> None:
    path = grids.write_grid(folder)
    grid = load_grid(path, ["elsewhere"], tmp_path, Budget("hours", 2))
    assert grid.data == ("elsewhere",)
    assert grid.budget == Budget("hours", 2)
    assert grid.tasks[0].train == str(tmp_path / "train.tsv")
    assert load_grid(path).data == (str(folder / "text"),)


def test_other_data_drops_the_held_out_text_of_the_grid(folder: Path) -> None:
    path = grids.write_grid(folder, heldout=["apart.txt"])
    assert load_grid(path).heldout == (str(folder / "apart.txt"),)
    assert load_grid(path, ["elsewhere"]).heldout == ()
    assert load_grid(path, ["elsewhere"], heldout=["far.txt"]).heldout == ("far.txt",)


@pytest.mark.product(few=8)
@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"cell": []}, "grid.toml: cell: a grid has no such setting; did you mean 'cells'?"),
        ({"cells": []}, "cells: give at least one"),
        ({"cells": [{"recipe": "bert_tinny"}]}, "cell 'bert_tinny': no recipe 'bert_tinny'"),
        ({"cells": [{"recipes": "bert_tiny"}]}, "cells[0].recipes: no such setting"),
        (
            {"cells": [MASKED, {**CAUSAL, "set": {"model": {"layer": 1}}}]},
            "cell 'decoder': model.layer: kind 'transformer' has no such setting; did you mean",
        ),
        ({"cells": [MASKED, MASKED]}, "cells: two are called 'masked'; give each a label"),
        ({"cells": [{**MASKED, "set": "x"}]}, "cells[0].set: expected a table"),
        ({"seeds": 0}, "seeds: must be a whole number from 1"),
        ({"seeds": 1_000_000_000}, "seeds: must be a whole number from 1 to 10,000"),
        ({"budget": {"unit": "flop", "amount": 1}}, "budget.unit: 'flop' is not a choice"),
        ({"budget": {"unit": "flops", "amount": -1}}, "budget.amount: must be a number above 0"),
        ({"budget": None}, "budget: required, one for all cells: --flops"),
        ({"data": None}, "data: required: name the text with --data"),
        ({"data": ["nowhere"]}, "nowhere: there is no such file"),
        ({"tasks": [{**TASK, "train": "no.tsv"}]}, "task 'Reviews':"),
        ({"tasks": [{**TASK, "label": "lable"}]}, "; choose one with label = ..."),
        ({"tasks": [{**TASK, "task": "clasify"}]}, "tasks[0].task.kind: no kind 'clasify'"),
        ({"tasks": [{**TASK, "metric": "f2"}]}, "tasks[0].metric: 'f2' is not a score of this"),
        ({"tasks": [{**TASK, "rows": -1}]}, "tasks[0].rows: must be a whole number from 0"),
        (
            {"tasks": [{**TASK, "tune": {"epochs": 0}}]},
            "tasks[0].tune.epochs: must be a whole number from 1",
        ),
        (
            {"tasks": [{**TASK, "tune": {"from_scratch": True}}]},
            "tasks[0].tune.from_scratch: set 'scratch' of the task instead",
        ),
        ({"tasks": [TASK, TASK]}, "tasks: two are called 'Reviews'; give each a name"),
        (
            {"set": {"tokenizer": {"kind": "unigram", "vocab": 109}}},
            "cell 'masked': tokenizer.vocab: 109 is too small",
        ),
    ],
)
def test_a_mistake_in_a_grid_is_refused_in_one_line(
    folder: Path,
    tmp_path: Path,
    more: dict[str, Any],
    message: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    out = tmp_path / "out"
    assert run(["compare", grids.write_grid(folder, **more), "--out", str(out)]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    line = captured.err.splitlines()[-1]
    assert line.startswith("foreword: ")
    assert message in line
    assert not (out / "runs").exists()


def test_an_unknown_grid_is_refused_with_the_nearest_name() -> None:
    with pytest.raises(UserError, match=r"no grid 'objectivs'.*did you mean 'objectives'"):
        load_grid("objectivs")


def test_read_settings_override_those_of_all_cells() -> None:
    settings = {"documents": "file", "errors": "replace", "blank_lines": False}
    for cell in (
        grid := load_grid("ladder", ["text"], read=settings, budget=Budget("steps", 1))
    ).cells:
        read = grid.recipe(cell, 1).read
        assert (read.documents, read.errors, read.blank_lines) == ("file", "replace", False)


@pytest.mark.parametrize("name", config.GRIDS.names())
def test_shipped_grids_name_recipes_that_build(name: str) -> None:
    grid = load_grid(name, ["text"], Path("tasks"), Budget("steps", 1))
    recipes = [grid.recipe(cell, 1) for cell in grid.cells]
    assert all(recipe.train.steps == 1 for recipe in recipes)
    assert grid.description
    if name == "objectives":  # of one size, on the same tokens
        assert len({str(recipe.tokenizer) for recipe in recipes}) == 1
        assert len({recipe.packing.length for recipe in recipes}) == 1
        assert len({(recipe.model.d_model, recipe.model.layers) for recipe in recipes}) == 1
