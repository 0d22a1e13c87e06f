"""The page of choices: which cell wins at each budget, and whether it stays the winner."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import Any

from foreword.disk import atomic
from foreword.formatting import figure, interval, power
from foreword.reports import fragments
from foreword.reports.charts import CELLS, Chart, ChartAxis, Line
from foreword.reports.page import page
from foreword.reports.scaling import table, write_rows
from foreword.scaling.choices import BudgetChoice

HEIGHT = 420  # pixels
HOW = (
    "Kendall's tau compares the ranks of all cells with those at the largest budget: 1 for one "
    "order, 0 for none. The cost is how much worse the winner is at the largest budget than the "
    "best there. Intervals are 95 %: of tau over cells drawn again, of all with the noise of a "
    "seed, pooled over the cells of a budget."
)


def choice_rows(found: Sequence[BudgetChoice]) -> list[dict[str, Any]]:
    """Return a row for each budget: its winner, and what that is worth at the largest."""
    rows = []
    for one in found:
        low, high = one.cost_interval or (None, None)
        is_last = one is found[-1]
        cost = "" if is_last else f"{100 * one.cost:.2f} %"
        if low is not None and high is not None:
            cost += f" ({100 * low:.2f} to {100 * high:.2f})"
        error = "" if one.margin_error is None else f" ± {100 * one.margin_error:.2f}"
        tau = "" if is_last else f"{one.tau:.2f}"
        between = interval(*one.tau_interval) if one.tau_interval else None
        rows.append(
            {
                "FLOPs": power(one.flops),
                "winner": one.winner,
                "ahead by": f"{100 * one.margin:.2f} %{error}",
                "tau": tau + (f" ({between})" if between else ""),
                "cost at the largest": cost,
            }
        )
        if found[0].stays is not None:  # of several seeds
            stays = "" if one.stays is None else f"in {100 * one.stays:.0f} % of draws"
            rows[-1]["stays"] = stays
    return rows


def loss_rows(found: Sequence[BudgetChoice]) -> list[dict[str, Any]]:
    """Return a row for each cell, the best at the largest budget first: loss and rank by budget."""
    cells = found[-1].cells
    return [
        {"cell": cells[n]}
        | {power(one.flops): f"{figure(one.loss[n])} ({_rank(one, n)})" for one in found}
        for n in found[-1].loss.argsort(kind="stable")
    ]


def _rank(choice: BudgetChoice, cell: int) -> int:
    return 1 + int((choice.loss < choice.loss[cell]).sum())


def write_choices(
    out: Path, name: str, found: Sequence[BudgetChoice], unit: str, lines: Sequence[str]
) -> None:
    """Write `choices.html` and `choices.csv`.

    Args:
        lines: whether winners stay, and what a reader should know.
    """
    records = [
        {"cell": cell, "flops": one.flops, "loss": float(one.loss[n]), "rank": _rank(one, n)}
        for one in found
        for n, cell in enumerate(one.cells)
    ]
    write_rows(out / "choices.csv", records)
    items = "".join(f"<li>{escape(line)}</li>" for line in lines)
    body = [
        f"<h1>Choices: {escape(name)}</h1>",
        '<p class="lead">Does the winner at a small budget stay the winner?</p>',
        f'<ul class="note">{items}</ul>',
        table(choice_rows(found)),
        f"<h2>Loss, {escape(unit)}, and rank</h2>",
        table(loss_rows(found)),
        choices_chart(found).html(),
        fragments.note(HOW),
    ]
    atomic.write_text(out / "choices.html", page(f"Choices: {name}", "\n".join(body)))


def choices_chart(found: Sequence[BudgetChoice]) -> Chart:
    """Return the cells' losses by budget, relative to the first cell's."""
    flops = [one.flops for one in found]
    lines = [
        Line(
            found[-1].cells[n],
            flops,
            [100 * (one.loss[n] / one.loss[0] - 1) for one in found],
            f"cell{n % CELLS}",
            "dots" if n < CELLS else "dashed",
        )
        for n in found[-1].loss.argsort(kind="stable").tolist()
    ]
    title = f"Loss by budget, in % of the first cell's, {found[0].cells[0]}"
    return Chart(title, lines, ChartAxis("training FLOPs", log=True), "%", height=HEIGHT)
