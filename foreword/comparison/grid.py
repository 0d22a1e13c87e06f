"""A grid: recipes to train at one budget, and tasks to fine-tune them on."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from foreword.comparison.claim import Claim
from foreword.comparison.margins import SCRATCH
from foreword.comparison.probing import GridProbe, GridText, named, texts_of
from foreword.comparison.sweep import SEED, Values, as_table, combinations, settings_of
from foreword.disk import atomic
from foreword.errors import UserError
from foreword.probes._contract import Probe
from foreword.probes._while_training import with_absolute_paths
from foreword.process.cluster import Resources
from foreword.runs.branch import going_on
from foreword.runs.recipe import Recipe
from foreword.settings import config, kinds
from foreword.settings.kinds import Part, part
from foreword.settings.ranges import Count, CountOrZero, OpenShare, Ranged, Trainings
from foreword.tables.columns import Columns
from foreword.tables.examples import Labelled, LabelledTexts
from foreword.tables.reads_rows import ReadsLabelled
from foreword.train.budget import Budget
from foreword.tuning.example_reader import ExampleReader, ExampleSource
from foreword.tuning.scores import CHANGE
from foreword.tuning.settings import TuneSettings
from foreword.tuning.tasks._contract import Task, require_score


@dataclass(frozen=True)
class Cell(Ranged):
    """A recipe to compare, with settings that override its own.

    Attributes:
        recipe: name of a shipped recipe, or of a file next to the grid.
        label: name in tables and plots; default: the recipe's name.
        set: settings that override the recipe's, a table like a recipe.
        sweep: a sweep of its own instead of the grid's; false for none.
        budget: a budget of its own instead of the grid's, in the same unit.
        after: the name of a cell above, whose runs this one's go on from, before their decay
            (schedule wsd), with all of its settings and a larger budget: several budgets cost
            little more than the largest.
        cpus: cores that it takes with `--ray`; default: the grid's.
        gpus: GPUs that it takes with `--ray`; default: the grid's.
        seeds: number of pretraining seeds; default: the grid's.
        measures: names of the tasks and probes that it is measured by, and "NAME from scratch" of
            tasks that its network learns from random weights; default: all.
    """

    recipe: str
    label: str = ""
    set: Any = field(default_factory=dict)
    sweep: Any = None
    budget: Budget | None = None
    after: str = ""
    cpus: Count | None = None
    gpus: CountOrZero | None = None
    seeds: Trainings | None = None
    measures: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        _require_table(self.set)
        if self.after and (self.set or self.sweep or self.budget is None):
            raise ValueError(
                f"after: its settings are those of '{self.after}'; give only a larger budget"
            )
        if self.sweep is not None and self.sweep is not False:
            settings_of(self.sweep)

    @property
    def name(self) -> str:
        """The label, or the recipe's name."""
        return self.label or Path(self.recipe).stem

    def is_measured_by(self, name: str, *, is_scratch: bool = False) -> bool:
        """Return whether it is measured by a task or probe of this name."""
        name += f" {SCRATCH}" * is_scratch
        return self.measures is None or name in self.measures


@dataclass(frozen=True)
class GridTask(Ranged):
    """A task on which every cell is fine-tuned, next to the same network from scratch.

    Attributes:
        name: name in tables and plots.
        train: file of labelled training examples.
        dev: file or files to score on.
        task: a kind in `tuning/tasks/`.
        text: column of the text; default: the task's usual one, as in `foreword tune`.
        label: column of the label, likewise.
        pair: column of the second text of a pair, likewise.
        columns: names of all columns, for files without a header.
        rows: number of training examples, the first of the file; 0 for all.
        joins_pairs: whether a pair is read as one text, without a special token between its two.
        after: the name of a task above, on which the model is fine-tuned first (intermediate-task
            tuning, Phang et al. 2018), with one seed.
        metric: metric in tables and plots; default: the first of the task.
        scratch: whether the same network is also fine-tuned from random weights.
        tune: settings of fine-tuning.
    """

    name: str
    train: str
    dev: str | tuple[str, ...]
    task: Task = part("tuning/tasks", "classify")
    text: str = ""
    label: str = ""
    pair: str = ""
    columns: tuple[str, ...] = ()
    rows: CountOrZero = 0
    joins_pairs: bool = False
    after: str = ""
    metric: str = ""
    scratch: bool = True
    tune: TuneSettings = field(default_factory=TuneSettings)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.tune.from_scratch:
            raise ValueError("tune.from_scratch: set 'scratch' of the task instead")
        if not (self.tune.measures_change and self.metric in CHANGE):
            require_score(self.task, self.metric, "metric")
        require_score(self.task, self.tune.metric, "tune.metric")


@dataclass(frozen=True)
class Grid(Ranged):
    """The recipes, budget and tasks of a comparison.

    Attributes:
        cells: the recipes to train.
        description: one line.
        data: files, folders, patterns, relative to the grid; or one folder of token shards. If the
            recipes have `data.sources`, the folder that their paths start from.
        heldout: files, folders, patterns to hold out; then all of `data` is trained on.
        budget: budget of each cell, which replaces that of its recipe.
        seeds: number of pretraining seeds: 1, 2, ...
        set: settings that override those of all recipes; a cell's `set` overrides these.
        sweep: settings with lists of values to try for each cell before its seeds, a table like a
            recipe; all combinations are tried, and the best overrides the cell's settings.
        sweep_share: share of the budget for which each combination is trained.
        sweep_rounds: rounds of a sweep. Each after the first tries the better half of the one
            before again, from the start and for twice the budget (successive halving, Jamieson and
            Talwalkar 2016); the last decides.
        tasks: the tasks to fine-tune on.
        probes: kinds in `probes/`, with which each pretrained model is measured.
        cpus: cores that each cell takes with `--ray`.
        gpus: GPUs that each cell takes with `--ray`.
        by_cell: whether all seeds of a cell are trained before the next cell; else the first seed
            of all cells is.
        claim: what the cells are to decide, for `foreword claims`.
    """

    cells: tuple[Cell, ...]
    description: str = ""
    data: tuple[str, ...] = ()
    heldout: tuple[str, ...] = ()
    budget: Budget | None = None
    seeds: Trainings = 1
    set: Any = field(default_factory=dict)
    sweep: Any = field(default_factory=dict)
    sweep_share: OpenShare = 0.1
    sweep_rounds: Count = 1
    tasks: tuple[GridTask, ...] = ()
    probes: tuple[Probe, ...] = field(default=(), metadata={"part": Part("probes")})
    cpus: Count = 1
    gpus: CountOrZero = 0
    by_cell: bool = False
    claim: Claim | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        _require_table(self.set)
        settings_of(self.sweep)
        rounds = max((len(self.rounds(cell)) for cell in self.cells), default=0)
        if rounds and self.share_of(rounds) > 1:
            raise ValueError(
                f"sweep_rounds: round {rounds} would train for {self.share_of(rounds):g} of the "
                "budget, since each has twice the share of the one before; set fewer, or a "
                "smaller sweep_share"
            )
        _require_paths("data", self.data)
        _require_paths("heldout", self.heldout)
        for task in self.tasks:
            _require_paths(f"tasks.{task.name}", (task.train, *_as_tuple(task.dev)))
        if not self.cells:
            raise ValueError("cells: give at least one, [[cells]] with a recipe")
        for key, names in (
            ("cells", [cell.name for cell in self.cells]),
            ("tasks", [task.name for task in self.tasks]),
        ):
            repeated = [name for name, count in Counter(names).items() if count > 1]
            if repeated:
                setting = "label" if key == "cells" else "name"
                raise ValueError(f"{key}: two are called '{repeated[0]}'; give each a {setting}")
        for number, task in enumerate(self.tasks):
            if task.after and task.after not in [other.name for other in self.tasks[:number]]:
                raise ValueError(f"task '{task.name}': after: no task above is '{task.after}'")
        above: set[str] = set()
        for cell in self.cells:
            if cell.after and cell.after not in above:
                raise ValueError(f"cell '{cell.name}': after: no cell above is '{cell.after}'")
            above.add(cell.name)
            before = self.before(cell)
            if before is not None and before.recipe != cell.recipe:
                raise ValueError(f"cell '{cell.name}': recipe: must be that of '{before.name}'")

    @cached_property
    def sources(self) -> dict[str, str]:
        """The path of each source of the cells' mixtures, by name; none without mixtures.

        Raises:
            UserError: a recipe has a mistake, only some have sources, or two call different paths
                by one name.
        """
        recipes = {cell.name: self.recipe(cell, SEED) for cell in self.cells}
        plain = [name for name, recipe in recipes.items() if not recipe.data.sources]
        if plain and len(plain) < len(recipes):
            raise UserError(
                f"cell '{plain[0]}': data.sources: other cells have sources, and losses are "
                "comparable if all do; one source with weight 1 is text that is not mixed"
            )
        paths: dict[str, str] = {}
        for name, recipe in recipes.items():
            for source in recipe.data.sources:
                if (other := paths.setdefault(source.name, source.path)) != source.path:
                    raise UserError(
                        f"cell '{name}': data.sources: source '{source.name}' is {source.path}, "
                        f"but that of another cell is {other}; give them two names"
                    )
        return paths

    @property
    def has_budgets(self) -> bool:
        """Whether cells have budgets of their own, so that they are not compared at one."""
        return any(cell.budget for cell in self.cells)

    def task_before(self, task: GridTask) -> GridTask | None:
        """Return the task on which a model is fine-tuned before it is on another one."""
        return next((other for other in self.tasks if other.name == task.after), None)

    @property
    def measurements(self) -> tuple[GridText | GridProbe, ...]:
        """What a pretrained model is measured by without training: held-out texts and probes."""
        return (*texts_of(self.sources), *named(self.probes))

    @property
    def measures(self) -> tuple[GridText | GridProbe | GridTask, ...]:
        """All that a pretrained model is measured by, in the order of the work."""
        return (*self.measurements, *self.tasks)

    def resources(self, cell: Cell) -> Resources:
        """Return what a cell takes of a cluster's machine."""
        cpus = self.cpus if cell.cpus is None else cell.cpus
        return Resources(cpus, self.gpus if cell.gpus is None else cell.gpus)

    def before(self, cell: Cell) -> Cell | None:
        """Return the cell whose runs a cell's go on from."""
        return next((other for other in self.cells if other.name == cell.after), None)

    def seeds_of(self, cell: Cell) -> int:
        """Return the number of pretraining seeds of a cell."""
        return cell.seeds or self.seeds

    @property
    def most_seeds(self) -> int:
        """The most pretraining seeds of a cell."""
        return max(map(self.seeds_of, self.cells))

    def budget_of(self, cell: Cell) -> Budget | None:
        """Return the budget of a cell."""
        return cell.budget or self.budget

    def trials(self, cell: Cell) -> list[Values]:
        """Return the combinations of values that a cell's sweep tries; none without a sweep."""
        if cell.after:
            return []
        return combinations(self.sweep if cell.sweep is None else cell.sweep or {})

    def rounds(self, cell: Cell) -> list[int]:
        """Return the number of trials in each round of a cell's sweep; none without a sweep."""
        sizes = [len(self.trials(cell))]
        while sizes[-1] > 2 and len(sizes) < self.sweep_rounds:
            sizes.append(-(-sizes[-1] // 2))
        return [size for size in sizes if size]

    def share_of(self, sweep_round: int) -> float:
        """Return the share of the budget for which a round's trials are trained."""
        return self.sweep_share * 2.0 ** (sweep_round - 1)

    def recipe(self, cell: Cell, seed: int, values: Values | None = None) -> Recipe:
        """Return the recipe of a cell with the grid's settings, the cell's, the seed and budget.

        Args:
            cell: the cell.
            seed: the seed.
            values: values of the cell's sweep, which override its settings.

        Raises:
            UserError: the recipe does not exist or has a mistake; the cell is named.
        """
        budget = self.budget_of(cell)
        if (before := self.before(cell)) is not None:
            assert budget is not None
            less = self.budget_of(before)
            if less is not None and less.amount >= budget.amount:
                raise UserError(
                    f"cell '{cell.name}': budget: must be larger than that of '{before.name}', "
                    "from which it goes on"
                )
            return going_on(self.recipe(before, seed), budget)
        over = [self.set, cell.set, as_table(values or {})]
        try:
            recipe = config.load(Recipe, config.RECIPES.find(cell.recipe), *over)
            recipe = replace(recipe, probes=tuple(map(with_absolute_paths, recipe.probes)))
        except UserError as error:
            raise UserError(f"cell '{cell.name}': {error}") from error
        train = replace(recipe.train, seed=seed)
        if budget is not None:
            train = budget.applied_to(train)
        return replace(recipe, train=train)

    def trial_recipe(self, cell: Cell, values: Values, sweep_round: int = 1) -> Recipe:
        """Return the recipe of a trial of a cell's sweep.

        Args:
            cell: the cell.
            values: the values that it tries.
            sweep_round: the round, which decides for how long.

        Raises:
            UserError: the cell's recipe does not have the settings, or not such values.
        """
        whole = self.budget_of(cell)
        assert whole is not None
        off = f"; give cell '{cell.name}' a sweep of its own, or sweep = false"
        try:
            recipe = self.recipe(cell, SEED, values)
        except UserError as error:
            raise UserError(f"{error}{off}") from error
        if recipe.model.trains_offline:
            raise UserError(
                f"cell '{cell.name}': sweep: {kinds.name_of(recipe.model)} learns from the whole "
                f"text at once, without the settings of a sweep{off}"
            )
        budget = replace(whole, amount=whole.amount * self.share_of(sweep_round))
        train = budget.applied_to(recipe.train)
        train = replace(train, evaluations=1, checkpoints=1, kept_checkpoints=1)
        return replace(recipe, train=train)


@dataclass(frozen=True)
class TaskExamples:
    """The labelled examples of a task.

    Attributes:
        train: training examples.
        dev: examples to score on.
        skipped: number of rows in the files without text or label.
        checksums: checksums of the files, in order.
        columns: the columns of the training examples.
    """

    train: Sequence[Labelled]
    dev: Sequence[Labelled]
    skipped: int
    checksums: tuple[str, ...]
    columns: Columns


def load_grid(
    name: str,
    data: Sequence[str] = (),
    tasks: Path | None = None,
    budget: Budget | None = None,
    heldout: Sequence[str] = (),
    read: Mapping[str, Any] | None = None,
) -> Grid:
    """Load a shipped grid or a file, with the options of the command line on top.

    Paths relative to the grid become absolute.

    Args:
        name: name of a shipped grid, or path of a file.
        data: replaces the grid's own.
        tasks: folder of the files of tasks and probes; default: the folder of the grid.
        budget: replaces the grid's own.
        heldout: replaces the grid's own; if only `data` is given, there is none.
        read: settings of reading text, which override the grid's for all cells.

    Raises:
        UserError: the grid does not exist or has a mistake; the key is named.
    """
    path = config.GRIDS.find(name)
    folder = path.resolve().parent
    grid = config.load(Grid, path, what="a grid")
    grid = replace(
        grid,
        cells=tuple(replace(cell, recipe=_recipe_path(folder, cell.recipe)) for cell in grid.cells),
        tasks=tuple(_with_full_paths(task, (tasks or folder).resolve()) for task in grid.tasks),
        probes=tuple(_probe_in((tasks or folder).resolve(), probe) for probe in grid.probes),
        data=tuple(data) or tuple(str(folder / text) for text in grid.data),
        heldout=tuple(heldout)
        or (() if data else tuple(str(folder / text) for text in grid.heldout)),
        budget=budget or grid.budget,
        set=config.merge(grid.set, {"read": dict(read)}) if read else grid.set,
    )
    if grid.budget is None:
        raise UserError(
            f"{path}: budget: required, one for all cells: --flops, --tokens, --epochs, --steps "
            "or --hours, or budget = { unit = ..., amount = ... } in the grid"
        )
    other = [c for c in grid.cells if c.budget and c.budget.unit != grid.budget.unit]
    if other and grid.claim is None:  # curves have one axis
        raise UserError(f"{path}: cell '{other[0].name}': budget: give it in {grid.budget.unit}")
    if not grid.data and grid.sources:
        grid = replace(grid, data=(str(folder),))
    if grid.heldout and grid.sources:
        raise UserError(
            f"{path}: heldout: a share of each source of data.sources is held out, so no text can "
            "be named; set another share by prepare = { heldout = 0.1 } in the grid's [set]"
        )
    if not grid.data:
        raise UserError(f"{path}: data: required: name the text with --data, or in the grid")
    return grid


def read_examples(task: GridTask) -> TaskExamples:
    """Read the examples of a task.

    Raises:
        UserError: a file or a column is missing; the task is named.
    """
    named = {"text": task.text, "label": task.label, "pair": task.pair}
    reads = ReadsLabelled(
        **{field: column or None for field, column in named.items()},
        columns=",".join(task.columns),
        bad_rows=0.0,
    )
    reader = ExampleReader(task.task, reads, named="{} = ...")
    files = [task.train, *_as_tuple(task.dev)]
    try:
        parts = [reader.read_part([ExampleSource(file)]) for file in files]
        train, *devs = (part.together for part in parts)
    except UserError as error:
        raise UserError(f"task '{task.name}': {error}") from error
    dev = LabelledTexts.of(example for part in devs for example in part)
    if task.joins_pairs:
        train, dev = _joined(train), _joined(dev)
    return TaskExamples(
        train[: task.rows or None],
        dev,
        sum(part.skipped for part in parts),
        tuple(atomic.checksum(Path(file)) for file in files),
        parts[0].columns[0],
    )


def _joined(examples: Sequence[Labelled]) -> LabelledTexts:
    """Return pairs as single texts."""
    return LabelledTexts.of(e._replace(text=f"{e.text} {e.pair}", pair=None) for e in examples)


def _recipe_path(folder: Path, recipe: str) -> str:
    """Return the path of a recipe file next to the grid, or the name of a shipped recipe."""
    is_file = recipe.endswith(".toml") and (folder / recipe).is_file()
    return str(folder / recipe) if is_file else recipe


def _with_full_paths(task: GridTask, folder: Path) -> GridTask:
    dev = tuple(str(folder / name) for name in _as_tuple(task.dev))
    return replace(task, train=str(folder / task.train), dev=dev)


def _probe_in(folder: Path, probe: Probe) -> Probe:
    try:
        return with_absolute_paths(probe, folder)
    except UserError as error:
        raise type(error)(f"probes: {kinds.name_of(probe)}: {error}") from error


def _as_tuple(names: str | tuple[str, ...]) -> tuple[str, ...]:
    return (names,) if isinstance(names, str) else names


def _require_paths(name: str, paths: Sequence[str]) -> None:
    if "" in paths:
        raise ValueError(f"{name}: the path is empty; '.' is the folder of the grid")


def _require_table(value: Any) -> None:
    if not isinstance(value, Mapping):
        raise ValueError(f"set: expected a table such as {{ model.layers = 6 }}, got {value!r}")
