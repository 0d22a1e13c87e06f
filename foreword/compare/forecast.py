"""What a comparison will take, measured on a few steps of each cell."""

from __future__ import annotations

import gc
from dataclasses import dataclass

from foreword.compare.grid import Cell
from foreword.compare.run import Comparison
from foreword.data.prepared_text import HELDOUT, TRAIN, PreparedText
from foreword.errors import UserError
from foreword.runs.estimate import estimate
from foreword.runs.setup import set_up_training
from foreword.train.budget import Budget


@dataclass(frozen=True)
class Forecast:
    """What a cell will take.

    Attributes:
        cell: its name.
        recipe: as the grid has it.
        parameters: of the model.
        flops_per_token: of training.
        tokens: that the budget pays for.
        epochs: how often the text is read in them.
        bytes: of memory that training holds at once.
        pretraining_seconds: of each seed, without evaluations.
        tuning_seconds: of all its fine-tunings; roughly, at pretraining's time per token.
        error: why it cannot be run, or "".
        note: why no more is said of it, or "".
    """

    cell: str
    recipe: str
    parameters: int = 0
    flops_per_token: float = 0.0
    tokens: float = 0.0
    epochs: float = 0.0
    bytes: int = 0
    pretraining_seconds: float = 0.0
    tuning_seconds: float = 0.0
    error: str = ""
    note: str = ""


def forecast(comparison: Comparison, cell: Cell) -> Forecast:
    """Takes a few steps of a cell that learns in steps; its data must have been prepared."""
    recipe = comparison.recipes[cell.name, 1]
    prepared = comparison.corpora.shards_for(recipe)
    gc.collect()
    try:
        if recipe.model.trains_offline:
            return _offline_forecast(comparison, cell)
        tokenizer = comparison.corpora.tokenizer_for(recipe)
        found = estimate(set_up_training(recipe, tokenizer, prepared, or_shape=True))
    except UserError as error:
        return Forecast(cell.name, cell.recipe, error=str(error))
    seconds_per_token = found.seconds_per_step / found.tokens_per_step
    return Forecast(
        cell=cell.name,
        recipe=cell.recipe,
        parameters=sum(found.parameters.values()),
        flops_per_token=found.flops_per_step / found.tokens_per_step,
        tokens=found.steps * found.tokens_per_step,
        epochs=found.epochs,
        bytes=found.memory.total,
        pretraining_seconds=found.steps * found.seconds_per_step,
        tuning_seconds=_tuning_tokens(comparison, prepared) * seconds_per_token,
    )


def _offline_forecast(comparison: Comparison, cell: Cell) -> Forecast:
    """What is known of a cell that is fitted to the text at once.

    Raises:
        UserError: a budget that it cannot keep.
    """
    recipe = comparison.recipes[cell.name, 1]
    budget = Budget.of(recipe.train)
    epochs = recipe.model.offline_epochs(budget.unit, budget.amount)
    tokens = epochs * comparison.corpora.shards_for(recipe).counts[TRAIN].tokens
    note = "fitted, not forecast"
    return Forecast(cell.name, cell.recipe, tokens=tokens, epochs=epochs, note=note)


def _tuning_tokens(comparison: Comparison, prepared: PreparedText) -> float:
    """Tokens that a cell's fine-tunings read, as many per byte as pretraining's text has."""
    counts = [prepared.counts[name] for name in (TRAIN, HELDOUT)]
    per_byte = sum(c.tokens for c in counts) / max(1, sum(c.bytes for c in counts))
    total = 0.0
    for task in comparison.grid.tasks:
        examples = comparison.examples[task.name].train
        size = sum(len(f"{e.text}{e.pair or ''}".encode()) for e in examples)
        variants = comparison.grid.seeds + task.scratch
        total += size * per_byte * task.tune.epochs * task.tune.seeds * variants
    return total
