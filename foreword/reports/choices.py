"""The page of choices: which cell wins at each budget, and whether it stays the winner."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from html import escape
from pathlib import Path
from typing import Any

from foreword.disk import atomic
from foreword.formatting import figure, interval, power
from foreword.reports import fragments
from foreword.reports.page import page
from foreword.reports.scaling import finish, table, write_rows
from foreword.reports.svg import CELLS, PLACEHOLDERS, Size, canvas, to_svg
from foreword.scaling.choices import BudgetChoice

HEIGHTS: dict[Size, float] = {"wide": 5.0, "half": 5.4, "narrow": 5.6}  # inches
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
                "stays": "" if one.stays is None else f"in {100 * one.stays:.0f} % of draws",
            }
        )
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
    caption = f"Loss by budget, in % of the first cell's, {found[0].cells[0]}"
    body = [
        f"<h1>Choices: {escape(name)}</h1>",
        '<p class="lead">Does the winner at a small budget stay the winner?</p>',
        f'<ul class="note">{items}</ul>',
        table(choice_rows(found)),
        f"<h2>Loss, {escape(unit)}, and rank</h2>",
        table(loss_rows(found)),
        fragments.figure(caption, partial(plot_choices, found), is_large=True),
        fragments.note(HOW),
    ]
    atomic.write_text(out / "choices.html", page(f"Choices: {name}", "\n".join(body)))


def plot_choices(found: Sequence[BudgetChoice], size: Size) -> str:
    """Return an `<svg>` of the cells' losses by budget, relative to the first cell's."""
    title = "loss by budget, relative to the first cell's"
    with canvas(size, HEIGHTS[size], title) as (drawing, axes):
        x = [one.flops for one in found]
        for number in found[-1].loss.argsort(kind="stable"):
            y = [100 * (one.loss[number] / one.loss[0] - 1) for one in found]
            colour = PLACEHOLDERS[f"cell{number % CELLS}"]
            marker = "s" if number >= CELLS else "o"
            label = found[-1].cells[number]
            axes.plot(x, y, marker=marker, color=colour, markersize=4, linewidth=1.2, label=label)
        axes.set_xscale("log")
        finish(axes, "training FLOPs", "%")
        where = "outside right upper" if size == "wide" else "outside lower center"
        drawing.legend(frameon=False, loc=where, ncols=1 if size == "wide" else 2)
        return to_svg(drawing, title)
