"""The page of claims, from its rows alone: Markdown, tables of all numbers, a plot."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine

from foreword import figures
from foreword.atlas.rows import CELLS, CLAIMS, ClaimRow, PageRows, figure
from foreword.atlas.verdict import FAILS, HOLDS, MISSING, NOT_SHOWN
from foreword.comparison.tables import MarkdownTable
from foreword.disk import atomic
from foreword.evaluation.statistics import LEVEL
from foreword.formatting import at_most, power, probability, quantity

PAGE, PLOT = "claims.md", "claims.png"
FILES = (PAGE, CLAIMS, CELLS, PLOT)
TITLES = {
    HOLDS: "Holds",
    FAILS: "Does not hold",
    NOT_SHOWN: "Not shown at this budget",
    MISSING: "Not measured yet",
}
COLOURS = {HOLDS: "tab:green", FAILS: "tab:red", NOT_SHOWN: "tab:gray"}
PANELS = 4  # in a row


def write(rows: PageRows, left_out: Mapping[str, str], folder: Path) -> str:
    """Write claims.md, claims.csv, claims_cells.csv and claims.png.

    Args:
        rows: what the page tells.
        left_out: why other claims are not decided, by name.
        folder: created if it does not exist.

    Returns:
        A note on characters that no font of the machine has, or "".

    Raises:
        UserError: the disk is full or the folder cannot be written.
    """
    folder.mkdir(parents=True, exist_ok=True)
    plot = _plot(rows.claims)
    atomic.write_text(folder / PAGE, _markdown(rows, left_out))
    rows.write(folder)
    atomic.write_bytes(folder / PLOT, plot.data)
    return plot.note


def _markdown(rows: PageRows, left_out: Mapping[str, str]) -> str:
    claims = rows.claims
    own = {of: [row for row in claims if row.verdict == of] for of in TITLES}
    counts = Counter(row.run for row in claims if row.verdict != MISSING)
    numbers = {run: str(n) for n, run in enumerate(sorted(counts), 1)}
    trained = [f"{n}. {run} ({counts[run]} of the claims)\n" for run, n in numbers.items()]
    numbers = numbers if len(numbers) > 1 else {}
    sure = sum(row.p_holm < 1 - LEVEL for row in (*own[HOLDS], *own[FAILS]))
    parts = [
        "# What lectures claim, each decided by experiment\n",
        f"Verdicts on {len(claims)} claims: holds {len(own[HOLDS])}, does not hold "
        f"{len(own[FAILS])}, not shown at this budget {len(own[NOT_SHOWN])}, not measured yet "
        f"{len(own[MISSING])}. Of the decided, {sure} are so by p too, corrected for the number of "
        "claims (below 0.05, Holm). Written by `foreword claims table` from the results alone; "
        "[how to read it, and how to add a claim](writing_claims.md).\n",
        "Trained:\n\n" + "".join(trained) if trained else "Nothing is trained yet.\n",
        f"![each claim's number, less what it had to exceed]({PLOT})\n",
    ]
    parts += [_table(of, own[of], numbers).markdown() for of in TITLES if own[of]]
    if left_out:
        parts.append("## Left out\n\n" + "".join(f"- {n}: {w}\n" for n, w in left_out.items()))
    parts.append(_cells(rows, numbers).markdown())
    late = [row.claim for row in claims if not row.recorded_before]
    corrections = sum(not math.isnan(row.p) for row in claims)
    notes = [
        f"Intervals are Welch's t at {LEVEL:.0%} over seeds of pretraining, and ± is half of "
        "Student's. A claim holds if the interval of its number lies above what was predicted, "
        "does not hold if it lies below, and "
        "is not shown if it includes it: then the table says how far from it the number would have "
        "to be to be told from it in 8 of 10 cases, and how many seeds would tell one as far from "
        "it as this one is (at most 100). Nor is a claim on quality shown while the loss of one of "
        "its cells (of a sum, the part that predicts tokens) is not 3 % below that of token "
        "frequencies; cells without that number are not judged so. p is corrected for "
        f"{corrections} claims (Holm). All is of models this small, after budgets this small, on "
        "this text.",
        "Intervals leave out the variation between examples of a task or probe.",
    ]
    if late:
        notes.append(
            "Recorded or changed after some of their cells had been trained, so that they may have "
            f"been made to fit: {', '.join(late)}."
        )
    parts.append("".join(f"- {note}\n" for note in notes))
    return "\n".join(parts)


def _table(verdict: str, rows: Sequence[ClaimRow], numbers: Mapping[str, str]) -> MarkdownTable:
    """Return the claims of a verdict; with their runs, where `numbers` has several."""
    is_decided = verdict in (HOLDS, FAILS)
    columns = ["claim", "predicted", "measured", "number"]
    columns += ["p (Holm)" if is_decided else "what could show it", *["run"] * bool(numbers)]
    body = []
    for row in rows:
        number = f"{figure(row.number)} ({figure(row.low)} to {figure(row.high)})"
        body.append(
            (
                f"{row.sentence} ({row.source})",
                row.predicted,
                row.measured,
                "–" if verdict == MISSING else number,
                probability(row.p_holm) if is_decided else row.power,
                *[numbers.get(row.run, "–")] * bool(numbers),
            )
        )
    return MarkdownTable(TITLES[verdict], tuple(columns), tuple(body))


def _cells(rows: PageRows, numbers: Mapping[str, str]) -> MarkdownTable:
    """Return the table of cells: what was trained, and what came out."""
    columns = ["cell", "recipe", "parameters", "tokens", "epochs", "FLOPs", "seeds", "loss"]
    columns += ["token frequencies", "bits per byte"]
    body = [
        (
            cell.cell,
            cell.recipe,
            quantity(cell.parameters),
            quantity(cell.tokens),
            "–" if math.isnan(cell.epochs) else f"{cell.epochs:.2g}",
            power(cell.flops),
            str(cell.seeds),
            at_most(figure(cell.loss), cell.is_bound),
            figure(cell.unigram),
            at_most(figure(cell.bits_per_byte), cell.is_bound),
            *[numbers.get(cell.run, "–")] * bool(numbers),
        )
        for cell in rows.cells
    ]
    return MarkdownTable("The cells", (*columns, *["run"] * bool(numbers)), tuple(body))


def _plot(rows: Sequence[ClaimRow]) -> figures.Rendered:
    """Plot all claims in one panel, then each trend, and each difference of differences."""
    measured = [row for row in rows if row.verdict != MISSING]
    drawn = [row for row in measured if len(row.terms) > 2]
    lines = math.ceil(len(drawn) / PANELS)
    tall = max(1.5, 0.24 * len(measured) + 1)
    ratios = [tall, 3.2 * lines][: 1 + bool(lines)]
    with matplotlib.rc_context(figures.STYLE):
        layout = ConstrainedLayoutEngine(w_pad=0.2)
        whole = Figure(figsize=(3.2 * PANELS, sum(ratios)), layout=layout)
        parts = whole.subfigures(len(ratios), 1, squeeze=False, height_ratios=ratios)
        above, *below = parts[:, 0]
        axis = above.add_subplot()
        for number, row in enumerate(measured):
            scaled = math.log if row.is_factor else float
            away = scaled(row.number) - scaled(row.least)
            half = (scaled(row.high) - scaled(row.low)) / 2
            unit = math.hypot(away, half) or 1.0  # so that all fit on one axis, sides kept
            colour = COLOURS[row.verdict]
            axis.errorbar(away / unit, number, xerr=half / unit, fmt="o", color=colour, capsize=2)
        axis.axvline(0.0, color="black", linewidth=0.8)
        axis.set_yticks(range(len(measured)), [row.claim.replace("_", " ") for row in measured])
        axis.set_ylim(max(1, len(measured)) - 0.5, -0.5)
        axis.set(
            xlabel="the claim's number less what it had to exceed, each in a unit of its own",
            title="green: holds; red: does not hold; gray: not shown",
        )
        for number, row in enumerate(drawn, 1):
            axis = below[0].add_subplot(lines, PANELS, number)
            axis.set(title=row.claim.replace("_", " "), ylabel=row.measure.replace("_", " "))
            axis.grid(alpha=0.3)
            (_plot_trend if row.is_trend else _plot_crossing)(axis, row)
        return figures.render(whole)


def _plot_trend(axis: Any, row: ClaimRow) -> None:
    """Plot the means of a trend's cells, with their intervals, over their numbers."""
    along = sorted(row.terms, key=lambda term: term.at)
    numbers = [term.at for term in along]
    halves = [0.0 if math.isnan(term.half) else term.half for term in along]
    axis.errorbar(numbers, [term.mean for term in along], halves, fmt="o", markersize=4, capsize=2)
    axis.set_xscale("log")
    axis.minorticks_off()
    axis.set_xticks(numbers, [f"{x:g}" for x in numbers])


def _plot_crossing(axis: Any, row: ClaimRow) -> None:
    """Plot two lines, which a difference of differences compares: from the last pair to the first.

    Of more than two differences it is the first and the last.
    """
    highs, lows = ([term for term in row.terms if term.at * sign > 0] for sign in (1, -1))
    for begin, end in ((lows[-1], highs[0]), (highs[-1], lows[0])):
        halves = [0.0 if math.isnan(term.half) else term.half for term in (begin, end)]
        label = end.label if begin.label == end.label else f"{begin.label} to {end.label}"
        means = [begin.mean, end.mean]
        axis.errorbar([0, 1], means, halves, marker="o", markersize=4, capsize=2, label=label)
    axis.set_xticks([])
    axis.legend(frameon=False, fontsize=6)
