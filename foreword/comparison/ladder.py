"""A ladder: sizes of a family at several budgets, and its runs as a table to fit laws to.

Each size is one long training with a constant rate, from which a decay branches off for every
budget, so that all budgets of a size cost little more than the largest.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import numpy as np

from foreword.comparison.grid import Cell, Grid
from foreword.comparison.keys import without_labels
from foreword.comparison.margins import PRETRAINED
from foreword.comparison.results import Results, RunResult
from foreword.comparison.sweep import SEED
from foreword.data.fingerprint import digest
from foreword.data.prepared_text import TRAIN
from foreword.disk import atomic
from foreword.errors import UserError
from foreword.formatting import power
from foreword.nn.model import neural_settings
from foreword.runs.recipe import Recipe
from foreword.runs.run_folder import is_run, read_run
from foreword.runs.sizes import count_parameters
from foreword.scaling.rates import RateRule
from foreword.settings import config, kinds
from foreword.tables.read import read_table
from foreword.train import log
from foreword.train.budget import Budget

LEAST_STEPS = 150  # of a run, about; fewer say nothing of its size
ROWS = "runs.csv"
BINS = 4  # of a doubling of the tokens, of whose steps the mean loss is taken
NEEDED = (
    *("size", "width", "layers", "budget", "lr", "settings", "seed"),
    *("parameters", "tokens", "flops", "loss"),
)
# Settings that say where and how often, not what is learned.
MACHINE = {"micro_batch", "threads", "precision", "device", "compile", "evaluations"}
MACHINE |= {"checkpoints", "kept_checkpoints", "heldout_rows", "max_nonfinite_steps"}
MACHINE |= {"activation_checkpointing"}

Row = Mapping[str, Any]


def ladder(
    grid: Grid, budgets: Sequence[float], known: Sequence[Row] = (), most: int | None = None
) -> tuple[Grid | None, list[Row]]:
    """Return the grid of a ladder, and the known rows that stand for cells it has not.

    Args:
        grid: a cell for each size, with schedule wsd.
        budgets: in FLOPs.
        known: rows of finished runs on the same text; a size and budget of which all seeds are
            known, by settings, has no cell.
        most: budgets of a size, the smallest first; None for all.

    Returns:
        The grid, None if all is known; and rows.

    Raises:
        UserError: fewer than two budgets have a size with enough steps, or a size has no decay to
            branch off.
    """
    ascending = sorted({float(f"{flops:g}") for flops in budgets})
    if len(ascending) < 2:
        raise UserError("--flops: several budgets are needed, as in --flops 1e12,3e12,1e13")
    done = {_run_key(row): row for row in known}
    cells: list[Cell] = []
    used: list[Row] = []
    enough: dict[str, float] = {}  # the least budget of each size
    for size in grid.cells:
        recipe = grid.recipe(size, SEED)
        if kinds.name_of(recipe.schedule) != "wsd":
            raise UserError(
                f"cell '{size.name}': schedule: a ladder branches decays off a constant rate; set "
                "it to wsd"
            )
        size = replace(size, set=config.merge(size.set, _kept_until_the_end(recipe)))
        tokens = LEAST_STEPS * recipe.rows_per_step * recipe.packing.length
        enough[size.name] = 6.0 * sum(count_parameters(recipe).values()) * tokens
        before = ""
        for flops in [flops for flops in ascending if flops >= enough[size.name]][:most]:
            name = f"{size.name}-{flops:g}".replace("e+0", "e").replace("e+", "e")
            alone = replace(size, label=name, budget=Budget("flops", flops))
            longer = Cell(size.recipe, name, budget=alone.budget, after=before)
            cell = longer if before else alone
            whole = replace(grid, cells=(*cells, cell), budget=alone.budget)
            key = settings_key(whole.recipe(cell, SEED))
            seeds = [done.get((key, str(seed))) for seed in range(1, grid.seeds + 1)]
            if all(seeds):
                used += [row for row in seeds if row]
                continue
            cells.append(cell)
            before = name
    least = min(enough.values())
    if sum(flops >= least for flops in ascending) < 2:
        raise UserError(
            f"--flops: the smallest size has {LEAST_STEPS} steps from {power(least)} FLOPs on; "
            "two budgets above are needed"
        )
    if not cells:
        return None, used
    return replace(grid, cells=tuple(cells), budget=Budget("flops", ascending[-1])), used


def _kept_until_the_end(recipe: Recipe) -> dict[str, Any]:
    """Return the setting by which the checkpoint before the decay outlives those within it.

    They are saved at the checkpoints and evaluations of the decay, and by the clock.
    """
    train, decay = recipe.train, getattr(recipe.schedule, "decay", 0.0)
    within = math.ceil(decay * train.checkpoints) + math.ceil(decay * train.evaluations)
    return {"train": {"kept_checkpoints": max(train.kept_checkpoints, 2 + within)}}


def with_rates(grid: Grid, factors: Sequence[float]) -> Grid:
    """Return a grid with each size at several learning rates.

    Args:
        grid: a cell for each size.
        factors: of the size's own rate.
    """
    cells = []
    for size in grid.cells:
        rate = grid.recipe(size, SEED).optimizer.lr
        for factor in factors:
            own = {"optimizer": {"lr": float(f"{rate * factor:.3g}")}}
            sets = config.merge(size.set, own)
            cells.append(replace(size, label=f"{size.name}-x{factor:g}", set=sets))
    return replace(grid, cells=tuple(cells))


def with_rule(grid: Grid, rule: RateRule, flops: float) -> Grid:
    """Return a grid in which each size has the rate of a rule for its width.

    Args:
        grid: a cell for each size.
        rule: the best rate.
        flops: the budget that it is taken for: of all, since they branch off one training.
    """
    cells = []
    for size in grid.cells:
        width = neural_settings(grid.recipe(size, SEED).model).d_model
        own = {"optimizer": {"lr": rule.of(width, flops)}}
        cells.append(replace(size, set=config.merge(size.set, own)))
    return replace(grid, cells=tuple(cells))


def _run_key(row: Row) -> tuple[str, str]:
    """Return what tells the run of a row from others on the same text: settings and seed."""
    return str(row["settings"]), str(row["seed"])


def settings_key(recipe: Recipe) -> str:
    """Return a key of what decides how a run learns, but for the seed.

    The warm-up is left out: a budget that branches off a longer run has that one's. So are
    settings that have their default, so that a setting to come leaves the keys of old runs alone.
    """
    table = config.to_table(without_labels(recipe), with_defaults=False)
    left_out = {"train": {*MACHINE, "seed"}, "schedule": {"warmup"}}
    for part, names in left_out.items():
        of = table.pop(part, {})
        table[part] = {name: value for name, value in of.items() if name not in names}
    table.pop("parallel", None)
    return digest([table])[:12]


def rows_of(results: Results, family: str, known: Sequence[Row] = ()) -> list[dict[str, Any]]:
    """Return a row for each finished run, as `foreword scale fit` reads them.

    Rows that are known come first, but those of runs that are here again. The loss is in bits per
    byte where all of the text is predicted, else in nats per prediction; the unit says so of upper
    bounds, so that no fit or choice takes them for exact losses.
    """
    comparison, rows = results.comparison, []
    cells = {cell.name: cell for cell in comparison.grid.cells}
    for run in results.runs:
        cell = cells[run.cell]
        recipe = comparison.recipes[cell.name, run.seed]
        parts = count_parameters(recipe, comparison.corpora.tokenizer_for(recipe).vocab)
        in_bytes = run.bits_per_byte is not None
        text = comparison.corpora.shards_for(recipe)
        more = {"score": _score(results, run)} if comparison.grid.measures else {}
        if run.unigram is not None and run.heldout_loss:
            # In the unit of the loss, which is in proportion.
            share = run.bits_per_byte / run.heldout_loss if run.bits_per_byte else 1.0
            more["unigram"] = round(run.unigram * share, 4)
        rows.append(
            {
                "family": family,
                "size": run.cell.rpartition("-")[0],
                "width": getattr(recipe.model, "d_model", 0),
                "layers": getattr(recipe.model, "layers", 0),
                "parameters": run.parameters,
                "parameters_without_embeddings": run.parameters - parts.get("embedding", 0),
                "tokens": run.tokens,
                "unique_tokens": min(run.tokens, text.counts[TRAIN].tokens),
                "flops": run.flops,
                "budget": recipe.train.flops,
                "lr": recipe.optimizer.lr,
                "loss": run.bits_per_byte if in_bytes else run.heldout_loss,
                "unit": ("bits per byte" if in_bytes else "nats per prediction")
                + run.is_bound * ", at most",
                "seed": run.seed,
                "steps": run.steps,
                "seconds": round(run.seconds, 1),
                "vocabulary": recipe.tokenizer.vocab,
                "settings": settings_key(recipe),
                **more,
            }
        )
    here = {_run_key(row) for row in rows}
    return [*(dict(row) for row in known if _run_key(row) not in here), *rows]


def _score(results: Results, run: RunResult) -> float | str:
    """Return a run's score on the first task or probe of its grid; "" before it has one."""
    measure = results.comparison.grid.measures[0]
    scores = [
        one.scores[results.metric(measure)]
        for one in results.scores
        if (one.cell, one.seed, one.task, one.start)
        == (run.cell, run.seed, measure.name, PRETRAINED)
    ]
    return float(np.mean(scores)) if scores else ""


def measurements_of(
    folders: Sequence[Path], losses: Literal["heldout", "train"] = "heldout"
) -> tuple[list[dict[str, Any]], list[str]]:
    """Return the losses of runs while their rate was constant, a row each, and notes.

    Of the runs of one size and seed the longest is read, with what it went on from.

    Args:
        folders: runs, or folders of a ladder or a comparison.
        losses: held-out ones, or means of those of training.

    Raises:
        UserError: there is no run, or none has such a loss.
    """
    found: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    left = []
    for folder in folders:
        inside = [run for run in sorted((folder / "runs").glob("*")) if is_run(run)]
        for run in inside or [folder]:
            rows = _constant_losses(run, losses)
            if not rows:
                left.append(run.name)
                continue
            key = tuple(rows[0][name] for name in ("family", "parameters", "seed"))
            found[key] = max(found.get(key, rows), rows, key=_longest)
    if not found:
        raise UserError(
            f"{folders[0]}: no {losses} loss at a constant learning rate; train with schedule wsd "
            "or constant and more train.evaluations, or give --losses train"
        )
    some = ", ".join([*left[:3], *["..."] * (len(left) > 3)])
    notes = [f"left out, without a {losses} loss at a constant rate: {some}"] if left else []
    return [row for rows in found.values() for row in rows], notes


def _longest(rows: Sequence[Row]) -> tuple[float, float]:
    """Return what the longest run of a size has most of: tokens, and then the lowest loss."""
    return rows[-1]["tokens"], -rows[-1]["loss"]


def _constant_losses(run: Path, losses: str) -> list[dict[str, Any]]:
    """Return the losses of a run while its rate was the highest, a row each."""
    (recipe, state), records = read_run(run), log.read(run)
    rates = [(each["lr"], each["step"]) for each in records if each["kind"] == "train"]
    steps = [step for rate, step in rates if rate == max(rates)[0]]
    measured = [
        each
        for each in records
        if each["kind"] == losses and steps[:1] <= [each["step"]] <= steps[-1:]
    ]
    # Single steps are many and noisy: their means count.
    bins: dict[float, list[dict[str, Any]]] = {}
    for each in measured if "parameters" in state else ():
        if each["loss"] is not None:
            is_step = losses == "train"
            place = int(BINS * math.log2(each["tokens"])) if is_step else each["tokens"]
            bins.setdefault(place, []).append(each)
    unique = state.get("data", {}).get("counts", {}).get("train", {}).get("tokens")
    rows = []
    for group in bins.values():
        tokens = float(np.exp(np.mean(np.log([one["tokens"] for one in group]))))
        has_bits = all(one.get("bits_per_byte") is not None for one in group)
        unit = "bits_per_byte" if has_bits else "loss"
        rows.append(
            {
                "family": kinds.name_of(recipe.objective),
                "parameters": state["parameters"],
                "tokens": tokens,
                "unique_tokens": unique or tokens,
                "loss": float(np.mean([one[unit] for one in group])),
                "seed": recipe.train.seed,
                "run": str(run),
                "checkpoint": group[-1]["step"],
            }
        )
    return rows


def read_rows(file: Path) -> list[dict[str, Any]]:
    """Return the rows of a file of finished runs, the last of each run.

    Raises:
        UserError: it cannot be read, or has not their columns.
    """
    table, rows = read_table(file), {}
    for number, row in table.sound_rows():
        if missing := [name for name in NEEDED if row.get(name) in (None, "")]:
            where = table.source_of(number)
            raise UserError(f"{where}: has no '{missing[0]}'; is it a {ROWS} of a ladder?")
        try:
            is_loss = 0 < float(row["loss"]) < math.inf
        except ValueError:
            is_loss = False
        if not is_loss:
            raise UserError(f"{table.source_of(number)}: loss: must be above 0 and finite")
        rows[_run_key(row)] = dict(row)
    return list(rows.values())


def write_rows(file: Path, rows: Sequence[Row]) -> None:
    """Write the rows of finished runs; the columns are those of the last."""
    columns = list(rows[-1]) if rows else ["size"]
    with atomic.writing(file) as lines:
        writer = csv.DictWriter(lines, columns, extrasaction="ignore", lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
