"""The forecast of a comparison's time and memory, measured on a few steps of each cell."""

from __future__ import annotations

import gc
from dataclasses import asdict, dataclass, replace
from typing import Any

from foreword.comparison.grid import Cell
from foreword.comparison.run import Comparison
from foreword.data.prepared_text import HELDOUT, TRAIN, PreparedText
from foreword.errors import UserError
from foreword.planning.estimate import Estimate, estimate
from foreword.runs.first_embeddings import most_of_budget
from foreword.runs.offline import offline_epochs
from foreword.runs.recipe import Recipe
from foreword.runs.setup import set_up_training
from foreword.train.budget import Budget


@dataclass(frozen=True)
class Forecast:
    """The time and memory that a cell will take.

    Attributes:
        cell: name of the cell.
        recipe: the recipe as the grid names it.
        parameters: number of the model's parameters.
        flops_per_token: FLOPs of training per token.
        tokens: tokens that the budget allows.
        epochs: passes over the text in these tokens.
        bytes: peak memory of training.
        sweep_seconds: for all trials of the cell, roughly.
        pretraining_seconds: for each seed, without evaluations.
        tuning_seconds: for all fine-tunings of the cell; roughly, at pretraining's time per token.
        seeds: number of pretrainings.
        embeddings: the largest share of a budget in FLOPs that first embeddings take.
        error: why the cell cannot be run, or "".
        note: why there is no forecast, or "".
    """

    cell: str
    recipe: str
    parameters: int = 0
    flops_per_token: float = 0.0
    tokens: float = 0.0
    epochs: float = 0.0
    bytes: int = 0
    sweep_seconds: float = 0.0
    pretraining_seconds: float = 0.0
    tuning_seconds: float = 0.0
    seeds: int = 1
    embeddings: float = 0.0
    error: str = ""
    note: str = ""


@dataclass(frozen=True)
class ComparisonForecast:
    """The time and memory that a comparison will take.

    Attributes:
        cells: the forecast of each cell, in order.
        seeds: number of pretrainings of each cell that has none of its own.
        jobs: number of trials, pretrainings and fine-tunings in all.
    """

    cells: tuple[Forecast, ...]
    seeds: int
    jobs: int

    @property
    def seconds(self) -> float:
        """The time of all jobs that have a forecast."""
        return sum(
            c.sweep_seconds + c.seeds * c.pretraining_seconds + c.tuning_seconds for c in self.cells
        )

    @property
    def is_complete(self) -> bool:
        """Whether every cell has a forecast."""
        return not any(cell.note or cell.error for cell in self.cells)

    def as_json(self) -> dict[str, Any]:
        """Return all numbers, for programs."""
        cells = [asdict(cell) for cell in self.cells]
        return {"cells": cells, "seconds": self.seconds, "seeds": self.seeds}


def forecast(comparison: Comparison) -> ComparisonForecast:
    """Forecast a comparison, whose data is prepared, from a few training steps of each cell."""
    cells: list[Forecast] = []
    measured: dict[str, Estimate] = {}
    for cell in comparison.grid.cells:
        comparison.progress.stage(f"taking a few steps: {cell.name}")
        cells.append(_forecast_cell(comparison, cell, measured))
    return ComparisonForecast(tuple(cells), comparison.grid.seeds, len(comparison.jobs()))


def _forecast_cell(
    comparison: Comparison, cell: Cell, measured_before: dict[str, Estimate]
) -> Forecast:
    """Forecast a cell from a few training steps.

    A cell with offline training is not run: its forecast has tokens, epochs and a note.

    Args:
        comparison: the comparison.
        cell: a cell of its grid.
        measured_before: what the steps of earlier cells cost, by what decides it; added to.
    """
    recipe = comparison.recipes[cell.name, 1]
    prepared = comparison.corpora.shards_for(recipe)
    # Measure a few steps; a mistake that shows only now is the forecast.
    try:
        if recipe.model.trains_offline:
            return _offline_forecast(comparison, cell)
        tokenizer = comparison.corpora.tokenizer_for(recipe)
        key = prepared.fingerprint + _step_of(recipe)
        if key not in measured_before:
            gc.collect()
        setup = set_up_training(recipe, tokenizer, prepared, or_shape=True)
        measured = estimate(setup, measured=measured_before.get(key))
        measured_before[key] = measured
    except UserError as error:
        return Forecast(cell.name, cell.recipe, error=str(error))
    # Extrapolate them to the budget.
    seconds_per_token = measured.seconds_per_step / measured.tokens_per_step
    seconds = measured.steps * measured.seconds_per_step * _own_share(comparison, cell)
    return Forecast(
        cell=cell.name,
        recipe=cell.recipe,
        parameters=sum(measured.parameters.values()),
        flops_per_token=measured.flops_per_step / measured.tokens_per_step,
        tokens=measured.steps * measured.tokens_per_step,
        epochs=measured.epochs,
        bytes=measured.memory.total,
        sweep_seconds=seconds * _sweep_runs(comparison, cell),
        pretraining_seconds=seconds,
        tuning_seconds=_tuning_tokens(comparison, cell, prepared) * seconds_per_token,
        seeds=comparison.grid.seeds_of(cell),
        embeddings=most_of_budget(recipe, tokenizer.vocab),
    )


def _step_of(recipe: Recipe) -> str:
    """Return what decides the cost of a step: not the budget, the seed and the learning rate."""
    train = Budget("steps", 1).applied_to(replace(recipe.train, seed=1))
    parts = (recipe.model, recipe.objective, recipe.layout, recipe.packing, recipe.stages)
    return repr((*parts, replace(recipe.optimizer, lr=1.0), train, recipe.continuation))


def _own_share(comparison: Comparison, cell: Cell) -> float:
    """Return the share of its budget that a cell trains for itself, beside the one before it."""
    grid, before = comparison.grid, comparison.grid.before(cell)
    if before is None:
        return 1.0
    less, all_of_it = grid.budget_of(before), grid.budget_of(cell)
    assert less is not None and all_of_it is not None
    decay = getattr(comparison.recipes[before.name, 1].schedule, "decay", 0.0)
    return 1 - (1 - decay) * less.amount / all_of_it.amount


def _offline_forecast(comparison: Comparison, cell: Cell) -> Forecast:
    """Return the tokens and epochs of a cell with offline training; its time is not forecast."""
    recipe = comparison.recipes[cell.name, 1]
    epochs = offline_epochs(recipe)
    tokens = epochs * comparison.corpora.shards_for(recipe).counts[TRAIN].tokens
    note = "offline, no forecast"
    return Forecast(cell.name, cell.recipe, tokens=tokens, epochs=epochs, note=note)


def _sweep_runs(comparison: Comparison, cell: Cell) -> float:
    """Return how many pretrainings a cell's sweep is worth; a step takes as long as its rows."""
    grid = comparison.grid
    assert grid.budget is not None
    trials = [grid.trial_recipe(cell, values) for values in grid.trials(cell)]
    if not trials:
        return 0.0
    rows = comparison.recipes[cell.name, 1].rows_per_step
    in_steps = grid.budget.unit == "steps"
    mean = sum(t.rows_per_step / rows if in_steps else 1.0 for t in trials) / len(trials)
    rounds = enumerate(grid.rounds(cell), 1)
    return mean * sum(grid.share_of(number) * size for number, size in rounds)


def _tuning_tokens(comparison: Comparison, cell: Cell, prepared: PreparedText) -> float:
    """Return the tokens that a cell's fine-tunings read, at the pretraining text's tokens/byte."""
    counts = [prepared.counts[name] for name in (TRAIN, HELDOUT)]
    per_byte = sum(c.tokens for c in counts) / max(1, sum(c.bytes for c in counts))
    total = 0.0
    for task in comparison.tasks_of(cell):
        examples = comparison.examples[task.name].train
        size = 1.0 * sum(len(f"{e.text}{e.pair or ''}".encode()) for e in examples)
        is_too = task.scratch and cell.is_measured_by(task.name, is_scratch=True)
        starts = comparison.grid.seeds_of(cell) + is_too
        if task.tune.examples is not None:
            size *= task.tune.examples / len(examples)
        total += size * per_byte * task.tune.epochs * task.tune.seeds * starts
    return total
