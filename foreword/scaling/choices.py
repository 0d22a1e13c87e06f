"""Whether the choice that wins at a small budget wins at the largest.

The losses of cells at each budget are ranked. Kendall's tau says how far a small budget's ranks are
the largest's; what it costs to choose by the small budget is how much worse its winner is at the
largest than the best there. The noise of a seed is pooled over all cells of a budget, since a cell
has few.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.stats import kendalltau

from foreword.errors import UserError
from foreword.formatting import power
from foreword.scaling.law import Z, ends
from foreword.types import Array

FEWEST_CELLS = 3
SEED, RESAMPLES = 1, 1_000


@dataclass(frozen=True)
class BudgetChoice:
    """What wins at a budget, and what that is worth at the largest.

    Attributes:
        flops: the budget.
        cells: their names, in the order of the grid.
        loss: mean over seeds, (cells,).
        noise: standard deviation between seeds, pooled over cells; None of one seed.
        margin: share of the loss by which the winner is ahead of the second.
        margin_error: half the width of its 95 % interval; None of one seed.
        tau: Kendall's, with the largest budget; nan of that budget.
        tau_interval: over cells drawn again, with the noise of seeds.
        cost: share of the loss by which the winner is worse than the best at the largest budget.
        cost_interval: with the noise of seeds; None of one seed, or of the winner there.
        stays: share of draws in which the winner here is the winner there; None of one seed.
    """

    flops: float
    cells: tuple[str, ...]
    loss: Array
    noise: float | None
    margin: float
    margin_error: float | None
    tau: float
    tau_interval: tuple[float, float] | None
    cost: float
    cost_interval: tuple[float, float] | None
    stays: float | None

    @property
    def winner(self) -> str:
        """The cell of the lowest loss."""
        return self.cells[int(self.loss.argmin())]

    @property
    def is_clear(self) -> bool:
        """Whether the winner is ahead of the second by more than the noise of seeds."""
        return self.margin_error is not None and self.margin > self.margin_error

    def as_json(self) -> dict[str, Any]:
        """Return it as plain values."""
        plain = {name: value for name, value in vars(self).items() if name not in ("cells", "loss")}
        losses = dict(zip(self.cells, map(float, self.loss), strict=True))
        known = None if math.isnan(self.tau) else self.tau
        return {**plain, "tau": known, "winner": self.winner, "is_clear": self.is_clear} | {
            "losses": losses
        }


def compare_budgets(
    rows: Sequence[Mapping[str, Any]], resamples: int = RESAMPLES
) -> tuple[list[BudgetChoice], list[str]]:
    """Return the choice of each budget, the smallest first, and what a reader should know.

    Args:
        rows: with `size` (the cell), `budget`, `seed`, `loss`, `unit` and `vocabulary`, a run each.
        resamples: number of draws, for the intervals.

    Raises:
        UserError: fewer than two budgets have three cells.
    """
    if not rows:
        raise UserError("choices: no run is finished")
    notes = []
    first = rows[0]
    kept = [row for row in rows if row["unit"] == first["unit"]]
    why = f"not in {first['unit']}"
    if not str(first["unit"]).startswith("bits per byte"):
        kept = [row for row in kept if str(row["vocabulary"]) == str(first["vocabulary"])]
        why = f"not in {first['unit']} of the same vocabulary"
    if others := dict.fromkeys(str(row["size"]) for row in rows if row not in kept):
        notes.append(f"left out: {', '.join(others)}: {why}")
    rows = kept
    losses: dict[float, dict[str, list[float]]] = defaultdict(dict)
    for row in rows:
        at = losses[float(row["budget"])]
        at.setdefault(str(row["size"]), []).append(float(row["loss"]))
    # All budgets rank the cells that all have.
    budgets = sorted(budget for budget, of in losses.items() if len(of) >= FEWEST_CELLS)
    if len(budgets) < 2:
        raise UserError(
            f"choices: two budgets with {FEWEST_CELLS} finished cells each are needed; "
            f"{len(budgets)} have them"
        )
    names = list(losses[budgets[-1]])
    cells = tuple(name for name in names if all(name in losses[b] for b in budgets))
    if len(cells) < FEWEST_CELLS:
        raise UserError(f"choices: {len(cells)} cells, of {FEWEST_CELLS} needed, have all budgets")
    if missing := [name for name in names if name not in cells]:
        notes.append(f"left out: {', '.join(missing)}: not at all budgets")
    if any(float(r["tokens"]) > 1.05 * float(r["unique_tokens"]) for r in rows if "tokens" in r):
        notes.append("some runs read their text more than once: their ranks are of repeated text")
    tables = {budget: [np.array(losses[budget][cell]) for cell in cells] for budget in budgets}
    means = {budget: np.array([of.mean() for of in table]) for budget, table in tables.items()}
    errors = {budget: _standard_errors(table) for budget, table in tables.items()}
    rng = np.random.default_rng(SEED)
    drawn = {
        budget: means[budget] + rng.normal(size=(resamples, len(cells))) * (errors[budget][1])
        for budget in budgets
    }
    chosen = rng.integers(len(cells), size=(resamples, len(cells)))
    found = [
        _choice(budget, cells, budgets[-1], means, errors[budget], drawn, chosen)
        for budget in budgets
    ]
    if found[-1].noise is None:
        notes.append("one seed: no margin can be told from the noise of a seed; give --seeds 2")
    return found, notes


def _standard_errors(losses: Sequence[Array]) -> tuple[float | None, Array]:
    """Return the noise of a seed, None if unknown, and the error of each cell's mean, (cells,)."""
    counts = np.array([len(of) for of in losses])
    if not (degrees := int((counts - 1).sum())):
        return None, np.zeros(len(losses))
    squares = sum(float(((of - of.mean()) ** 2).sum()) for of in losses)
    noise = math.sqrt(squares / degrees)
    return noise, noise / np.sqrt(counts)


def _choice(
    budget: float,
    cells: tuple[str, ...],
    largest: float,
    means: Mapping[float, Array],
    errors: tuple[float | None, Array],
    drawn: Mapping[float, Array],
    chosen: Array,
) -> BudgetChoice:
    """Return the choice of a budget."""
    (noise, error), here, there = errors, means[budget], means[largest]
    best, second = np.argsort(here, kind="stable")[:2]
    interval = stays = None
    if noise is not None:
        winners = drawn[budget].argmin(1)
        if best != (first := int(there.argmin())):
            interval = ends(drawn[largest][:, int(best)] / drawn[largest][:, first] - 1)
        stays = float((winners == drawn[largest].argmin(1)).mean())
    is_largest = budget == largest
    taus = [] if is_largest else [
        kendalltau(a[of], b[of]).statistic
        for a, b, of in zip(drawn[budget], drawn[largest], chosen, strict=True)
    ]  # fmt: skip
    return BudgetChoice(
        budget,
        cells,
        here,
        noise,
        float(here[second] / here[best] - 1),
        None if noise is None else Z * math.hypot(error[best], error[second]) / float(here[best]),
        math.nan if is_largest else float(kendalltau(here, there).statistic),
        ends(np.array(taus)),
        float(there[best] / there.min() - 1),
        None if is_largest else interval,
        None if is_largest else stays,
    )


def verdict(choice: BudgetChoice, largest: BudgetChoice) -> str:
    """Return in words whether the winner of a budget stays the winner at the largest."""
    budget, there = power(choice.flops), power(largest.flops)
    place = 1 + int((largest.loss < largest.loss[choice.cells.index(choice.winner)]).sum())
    clear = "" if choice.is_clear else ", within the noise of seeds" if choice.noise else ""
    if choice.winner == largest.winner:
        return f"{choice.winner}, first at {budget} FLOPs{clear}, stays first at {there}"
    return (
        f"{choice.winner}, first at {budget} FLOPs{clear}, comes {place} of {len(choice.cells)} at "
        f"{there}, {100 * choice.cost:.2f} % behind {largest.winner}"
    )
