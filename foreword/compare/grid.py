"""A grid: which recipes to train at one budget, and what to fine-tune them on."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from foreword import atomic, config
from foreword.errors import UserError
from foreword.kinds import part
from foreword.ranges import Count, CountOrZero, Ranged
from foreword.runs.recipe import Recipe
from foreword.train.budget import Budget
from foreword.tune.examples import LabelledTexts
from foreword.tune.fine_tuner import TuneSettings
from foreword.tune.table import Columns, labelled, read_table
from foreword.tune.tasks._contract import Labelled, Task


@dataclass(frozen=True)
class Cell:
    """One thing to be compared: a recipe, and settings laid on it.

    Attributes:
        recipe: a shipped one's name, or a file beside the grid.
        label: in tables and plots; the recipe's name if unsaid.
        set: settings laid on the recipe, a table as a recipe has them.
    """

    recipe: str
    label: str = ""
    set: Any = field(default_factory=dict)

    def __post_init__(self) -> None:
        _require_table(self.set)

    @property
    def name(self) -> str:
        """The label, or what the recipe is called."""
        return self.label or Path(self.recipe).stem


@dataclass(frozen=True)
class GridTask(Ranged):
    """A task that every cell is fine-tuned on, and its network from scratch beside it.

    Attributes:
        name: in tables and plots.
        train: the file of labelled examples to learn from.
        dev: the files, one or several, to score on.
        task: a kind in `tune/tasks/`.
        text: the column of the text.
        label: the column of the label.
        pair: the column of the second text of a pair.
        columns: names of all columns, where the files have no header.
        rows: only the first so many training examples; 0 for all.
        metric: what tables and plots show; the task's first if unsaid.
        scratch: whether the same network is tuned from random weights too.
        tune: how to fine-tune.
    """

    name: str
    train: str
    dev: str | tuple[str, ...]
    task: Task = part("tune/tasks", "classify")
    text: str = "text"
    label: str = "label"
    pair: str = ""
    columns: tuple[str, ...] = ()
    rows: CountOrZero = 0
    metric: str = ""
    scratch: bool = True
    tune: TuneSettings = field(default_factory=TuneSettings)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.tune.from_scratch:
            raise ValueError("tune.from_scratch: set 'scratch' of the task instead")


@dataclass(frozen=True)
class Grid(Ranged):
    """What is compared.

    Attributes:
        cells: what to train.
        description: one line for people.
        data: files, folders, patterns, beside the grid; or one folder of token shards.
        heldout: files, folders, patterns to hold out; then all of `data` is trained on.
        budget: of each cell, in the place of its recipe's own.
        seeds: of pretraining: 1, 2, ...
        set: settings laid on all recipes, below those of the cell.
        tasks: what to fine-tune on.
    """

    cells: tuple[Cell, ...]
    description: str = ""
    data: tuple[str, ...] = ()
    heldout: tuple[str, ...] = ()
    budget: Budget | None = None
    seeds: Count = 1
    set: Any = field(default_factory=dict)
    tasks: tuple[GridTask, ...] = ()

    def __post_init__(self) -> None:
        super().__post_init__()
        _require_table(self.set)
        if not self.cells:
            raise ValueError("cells: give at least one, [[cells]] with a recipe")
        for key, names in (
            ("cells", [cell.name for cell in self.cells]),
            ("tasks", [task.name for task in self.tasks]),
        ):
            twice = [name for name, count in Counter(names).items() if count > 1]
            if twice:
                what = "label" if key == "cells" else "name"
                raise ValueError(f"{key}: two are called '{twice[0]}'; give each a {what}")

    def recipe(self, cell: Cell, seed: int) -> Recipe:
        """What `cell` trains: its recipe with the grid's settings, its own, seed and budget.

        Raises:
            UserError: there is no such recipe, or a mistake in it; the cell is named.
        """
        try:
            recipe = config.load(Recipe, config.find_recipe(cell.recipe), self.set, cell.set)
        except UserError as error:
            raise UserError(f"cell '{cell.name}': {error}") from error
        train = replace(recipe.train, seed=seed)
        if self.budget is not None:
            train = self.budget.put_on(train)
        return replace(recipe, train=train)


@dataclass(frozen=True)
class TaskExamples:
    """What a task learns from and is scored on.

    Attributes:
        train: labelled examples.
        dev: labelled examples.
        skipped: rows of the files without text or label.
        checksums: of the files, in order.
    """

    train: Sequence[Labelled]
    dev: Sequence[Labelled]
    skipped: int
    checksums: tuple[str, ...]


def load_grid(
    name: str,
    data: Sequence[str] = (),
    tasks: Path | None = None,
    budget: Budget | None = None,
    heldout: Sequence[str] = (),
    read: Mapping[str, Any] | None = None,
) -> Grid:
    """A grid from a file or by the name of a shipped one, with what the command line says on it.

    What it names beside it is then named by its whole path.

    Args:
        name: of the grid.
        data: in the place of the grid's own.
        tasks: the folder of its tasks' files; beside the grid if unsaid.
        budget: in the place of the grid's own.
        heldout: in the place of the grid's own; none where `data` is given alone.
        read: how text is read, in the place of what the grid says of it for all cells.

    Raises:
        UserError: no such grid, or a mistake in it; the key is named.
    """
    path = config.find_grid(name)
    folder = path.resolve().parent
    grid = config.load(Grid, path)
    grid = replace(
        grid,
        cells=tuple(replace(cell, recipe=_recipe_path(folder, cell.recipe)) for cell in grid.cells),
        tasks=tuple(_with_full_paths(task, (tasks or folder).resolve()) for task in grid.tasks),
        data=tuple(data) or tuple(str(folder / text) for text in grid.data),
        heldout=tuple(heldout)
        or (() if data else tuple(str(folder / text) for text in grid.heldout)),
        budget=budget or grid.budget,
        set=config.merge(grid.set, {"read": dict(read)}) if read else grid.set,
    )
    if grid.budget is None:
        raise UserError(
            f"{path}: budget: the same for all cells, so it is needed: --flops, --tokens, "
            "--epochs, --steps or --hours, or budget = { unit = ..., amount = ... } in the grid"
        )
    if not grid.data:
        raise UserError(f"{path}: data: name the text with --data, or in the grid")
    return grid


def read_examples(task: GridTask) -> TaskExamples:
    """The examples of a task.

    Raises:
        UserError: a file or a column is missing; the task is named.
    """
    columns = Columns(task.text, task.label, task.pair)
    files = [Path(task.train), *map(Path, _as_tuple(task.dev))]
    try:
        found = [labelled(read_table(file, task.columns), columns) for file in files]
    except UserError as error:
        raise UserError(f"task '{task.name}': {error}") from error
    (train, skipped), *devs = found
    return TaskExamples(
        train[: task.rows or None],
        LabelledTexts.of(example for dev, _ in devs for example in dev),
        skipped + sum(count for _, count in devs),
        tuple(map(atomic.checksum, files)),
    )


def _recipe_path(folder: Path, recipe: str) -> str:
    """A recipe's file beside the grid, or the name as it is."""
    is_there = recipe.endswith(".toml") and (folder / recipe).is_file()
    return str(folder / recipe) if is_there else recipe


def _with_full_paths(task: GridTask, folder: Path) -> GridTask:
    dev = tuple(str(folder / name) for name in _as_tuple(task.dev))
    return replace(task, train=str(folder / task.train), dev=dev)


def _as_tuple(names: str | tuple[str, ...]) -> tuple[str, ...]:
    return (names,) if isinstance(names, str) else names


def _require_table(value: Any) -> None:
    if not isinstance(value, Mapping):
        raise ValueError(f"set: expected a table such as {{ model.layers = 6 }}, got {value!r}")
