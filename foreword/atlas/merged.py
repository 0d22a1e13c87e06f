"""The atlas: the grids of many claims as one, in which each cell that they share occurs once."""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from foreword.comparison.claim import Claim
from foreword.comparison.grid import Cell, Grid, GridTask, load_grid
from foreword.comparison.keys import without_labels
from foreword.comparison.margins import SCRATCH
from foreword.comparison.probing import named
from foreword.comparison.results import NUMBERS
from foreword.comparison.sweep import SEED
from foreword.errors import NoFileError, UserError, nearest
from foreword.runs.recipe import Recipe
from foreword.settings import config
from foreword.train.budget import Budget

DEFAULT = Budget("flops", 1e13)  # the unit of the curves; each cell has a budget of its own


@dataclass(frozen=True)
class Atlas:
    """Claims and the one grid that decides them.

    Attributes:
        grid: the cells of all claims, each once, with the tasks and probes that each claim needs.
        claims: the claims by name, with the names of cells and measures that the grid has.
    """

    grid: Grid
    claims: Mapping[str, Claim]


def load_claims(
    names: Sequence[str],
    data: Sequence[str],
    tasks: Path | None,
    heldout: Sequence[str] = (),
    read: Mapping[str, Any] | None = None,
) -> tuple[dict[str, Grid], dict[str, str]]:
    """Return the grids of claims by name, and why some are left out: a file that is not there.

    Args:
        names: names of shipped claims, or files; none for all that are shipped.
        data: the text of all cells.
        tasks: folder of the files of tasks and probes; default: that of each claim.
        heldout: held-out text.
        read: settings of reading text.

    Raises:
        UserError: a claim does not exist, has a mistake, or is not one.
    """
    grids, left_out = dict[str, Grid](), dict[str, str]()
    for name in names or config.CLAIMS.names():
        path = config.CLAIMS.find(name)
        try:
            grid = load_grid(str(path), data, tasks, None, heldout, read)
            _require_files(grid)
        except NoFileError as error:
            left_out[path.stem] = str(error)
            continue
        if grid.claim is None:
            raise UserError(f"{path}: claim: required: [claim] with a sentence and a prediction")
        _require_known(path, grid, grid.claim)
        grids[path.stem] = grid
    return grids, left_out


def _require_files(grid: Grid) -> None:
    """Check that the files of a claim's tasks are there.

    Raises:
        NoFileError: one is not.
    """
    for task in grid.tasks:
        dev = (task.dev,) if isinstance(task.dev, str) else task.dev
        for file in (task.train, *dev):
            if not Path(file).is_file():
                raise NoFileError(f"task '{task.name}': {file}: no such file")


def _require_known(path: Path, grid: Grid, claim: Claim) -> None:
    """Check that the cells and measures of a claim exist."""
    cells = [cell.name for cell in grid.cells]
    measures = [*NUMBERS, *(one.name for one in grid.measures)]
    for _, term in claim.weighted:
        if term.cell and term.cell not in cells:
            raise UserError(f"{path}: claim: no cell '{term.cell}'{nearest(term.cell, cells)}")
        if term.measure not in measures:
            hint = nearest(term.measure, measures)
            raise UserError(f"{path}: claim: nothing measures '{term.measure}'{hint}")


def atlas(grids: Mapping[str, Grid], scale: float = 1.0) -> Atlas:
    """Return the one grid of claims.

    Cells of equal recipes, budgets and sweeps are one cell; it has the most seeds that a claim asks
    for, and is measured by what its claims need. Budgets in steps and in
    epochs are not scaled: they are those of cells whose speed is measured, and of word vectors.

    Args:
        grids: the grids of the claims, by name; at least one.
        scale: by how much to multiply the budgets.

    Raises:
        UserError: a recipe has a mistake.
    """
    merged, first = _Merged(scale), next(iter(grids.values()))
    claims = {name: merged.add(grid) for name, grid in grids.items()}
    cells = list(merged.cells.values())
    if not any(cell.after for cell in cells):  # those first that decide most claims for their cost
        needed = Counter(t.cell for claim in claims.values() for _, t in claim.weighted)
        cells.sort(key=lambda cell: -needed[cell.name] / _cost(cell))
    grid = Grid(
        cells=tuple(cells),
        description="The atlas of claims",
        data=first.data,
        heldout=first.heldout,
        budget=DEFAULT,
        tasks=tuple(merged.tasks.values()),
        probes=tuple(merged.probes),
        by_cell=True,  # so that claims are decided one after the other
    )
    return Atlas(grid, claims)


def _cost(cell: Cell) -> float:
    """Return the FLOPs of a cell's budget; 1 of a budget in another unit."""
    return cell.budget.amount if cell.budget and cell.budget.unit == "flops" else 1.0


class _Merged:
    """What is collected of the grids of claims, under names that are unique."""

    def __init__(self, scale: float) -> None:
        self._scale = scale
        self.cells: dict[str, Cell] = {}
        self._recipes: dict[str, tuple[Recipe, str]] = {}  # by the name of the cell
        self.tasks: dict[str, GridTask] = {}
        self.probes: list[Any] = []

    def add(self, grid: Grid) -> Claim:
        """Add the cells of a claim, and return it with their names here."""
        claim = grid.claim
        assert claim is not None
        terms = [term for _, term in claim.weighted]
        needed = {term.measure for term in terms}
        needed |= {task.after for task in grid.tasks if task.name in needed}
        measures: dict[str, str] = {}
        for task in grid.tasks:
            if task.name in needed:
                after = measures.get(task.after, "")
                measures[task.name] = self._task(replace(task, after=after))
        measures |= {p.name: self._probe(p.probe) for p in named(grid.probes) if p.name in needed}
        cells: dict[str, str] = {"": ""}
        for cell in grid.cells:
            own = [term for term in terms if term.cell == cell.name and term.measure in measures]
            names = {measures[t.measure] + f" {SCRATCH}" * (t.start == SCRATCH) for t in own}
            names |= {measures[term.measure] for term in own}
            cells[cell.name] = self._cell(grid, cell, cells.get(cell.after, ""), names)
        return claim.renamed(cells, measures)

    def _cell(self, grid: Grid, cell: Cell, after: str, measures: set[str]) -> str:
        """Add a cell, or what is new of it, and return its name."""
        sweep = (grid.sweep if cell.sweep is None else cell.sweep) or False
        recipe = without_labels(grid.recipe(cell, SEED))
        content = (recipe, repr(sweep))
        same = [name for name, known in self._recipes.items() if known == content]
        name = same[0] if same else _unique(cell.name, self.cells)
        known = self.cells.get(name)
        seeds = max(grid.seeds_of(cell), known.seeds or 1 if known else 1)
        all_of_them = measures.union(known.measures or () if known else ())
        if known is None:
            self._recipes[name] = content
            budget = grid.budget_of(cell)
            assert budget is not None
            scale = 1.0 if budget.unit in ("steps", "epochs") else self._scale
            known = Cell(
                recipe=cell.recipe,
                label=name,
                set={} if after else _settings(grid, cell, scale),
                sweep=None if after else sweep,
                budget=replace(budget, amount=budget.amount * scale),
                after=after,
                cpus=cell.cpus or grid.cpus,
                gpus=grid.gpus if cell.gpus is None else cell.gpus,
            )
        self.cells[name] = replace(known, seeds=seeds, measures=tuple(sorted(all_of_them)))
        return name

    def _task(self, task: GridTask) -> str:
        """Add a task, and return its name; it is another if its metric or its files are."""
        for name, known in self.tasks.items():
            if replace(task, name=name, scratch=True) == known:
                return name
        name = _unique(task.name, self.tasks)
        self.tasks[name] = replace(task, name=name, scratch=True)
        return name

    def _probe(self, probe: Any) -> str:
        if probe not in self.probes:
            self.probes.append(probe)
        names = [one.name for one in named(self.probes)]
        return names[self.probes.index(probe)]


def _settings(grid: Grid, cell: Cell, scale: float) -> config.Table:
    """Return the settings of a grid and a cell as one table.

    A share of the text grows with the budget, so that it is read as often, and is not shrunk.
    It has the whole of each part that they set: `kind` drops what the grid sets of a part if it is
    another than the recipe's, and two tables merged without the recipe cannot tell.
    """
    recipe = config.read(config.RECIPES.find(cell.recipe))
    whole = functools.reduce(config.merge, (grid.set, cell.set), recipe)
    table = {part: whole[part] for part in {**grid.set, **cell.set}}
    if share := table.get("prepare", {}).get("train_share"):
        table["prepare"] = table["prepare"] | {"train_share": min(share * max(scale, 1.0), 1.0)}
    return table


def _unique(name: str, names: Iterable[str]) -> str:
    """Return a name, with a number if there are others of it."""
    taken, number, unique = set(names), 1, name
    while unique in taken:
        number += 1
        unique = f"{name} #{number}"
    return unique
