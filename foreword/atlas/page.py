"""The page of an atlas, from its results alone: Markdown, a table of all numbers, a plot."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine

from foreword import figures
from foreword.atlas.record import Findings
from foreword.atlas.verdict import FAILS, HOLDS, MISSING, NOT_SHOWN, Decision
from foreword.comparison.claim import Claim, ClaimTerm
from foreword.comparison.tables import MarkdownTable
from foreword.disk import atomic
from foreword.evaluation.statistics import LEVEL, interval
from foreword.formatting import at_most, duration, power, probability, quantity

FILES = ("claims.md", "claims.csv", "claims.png")
COLOURS = {HOLDS: "tab:green", FAILS: "tab:red", NOT_SHOWN: "tab:gray", MISSING: "tab:gray"}
PANELS = 4  # in a row
Row = dict[str, Any]


def rows_of(found: Findings) -> list[Row]:
    """Return a row for each claim, the decided ones first."""
    order = [HOLDS, FAILS, NOT_SHOWN, MISSING]
    verdicts = found.verdicts()
    rows = []
    for name in sorted(verdicts, key=lambda name: (order.index(verdicts[name].verdict), name)):
        one, claim = verdicts[name], found.record.claims[name].claim
        rows.append(
            {
                "claim": name,
                "verdict": one.verdict,
                "sentence": claim.sentence,
                "source": claim.source,
                "predicted": claim.prediction(),
                "measured": _measured(found, claim),
                "number": one.number,
                "low": one.low,
                "high": one.high,
                "least": claim.least,
                "p": one.p,
                "p_holm": one.holm,
                "seeds": one.seeds,
                "shows": one.shows,
                "needs": one.needs,
                "recorded": found.record.claims[name].at,
                "recorded_before": found.record.claims[name].is_before,
            }
        )
    return rows


def write(found: Findings, folder: Path) -> str:
    """Write claims.md, claims.csv and claims.png.

    Returns:
        A note on characters that no font of the machine has, or "".

    Raises:
        UserError: the disk is full or the folder cannot be written.
    """
    folder.mkdir(parents=True, exist_ok=True)
    rows = rows_of(found)
    plot = _plot(found, rows)
    atomic.write_text(folder / FILES[0], _markdown(found, rows))
    text = io.StringIO()
    lines = csv.DictWriter(text, list(rows[0]), lineterminator="\n")
    lines.writeheader()
    lines.writerows(
        {key: "" if value != value or value is None else value for key, value in row.items()}
        for row in rows
    )
    atomic.write_text(folder / FILES[1], text.getvalue())
    atomic.write_bytes(folder / FILES[2], plot.data)
    return plot.note


def _markdown(found: Findings, rows: Sequence[Row]) -> str:
    verdicts, record = found.verdicts(), found.record
    count = {of: sum(one.verdict == of for one in verdicts.values()) for of in COLOURS}
    flops, seconds = (sum(run[key] for run in found.runs) for key in ("flops", "seconds"))
    parts = [
        "# What lectures claim, each decided by experiment\n",
        f"Verdicts on {len(rows)} claims: holds {count[HOLDS]}, does not hold {count[FAILS]}, not "
        f"shown at this budget {count[NOT_SHOWN]}, not measured yet {count[MISSING]}. Text: "
        f"{', '.join(Path(name).name for name in record.text)}. {len(found.runs)} trainings of "
        f"{len({run['cell'] for run in found.runs})} cells, {power(flops)} FLOPs and "
        f"{duration(seconds)} of training in all, at {record.scale:g} times the budgets that are "
        "shipped. Written by `foreword claims table` from the results alone; "
        "[how to read it, and how to add a claim](writing_claims.md).\n",
        f"![each claim's number, less what it had to exceed]({FILES[2]})\n",
    ]
    for of, title in (
        (HOLDS, "Holds"),
        (FAILS, "Does not hold"),
        (NOT_SHOWN, "Not shown at this budget"),
        (MISSING, "Not measured yet"),
    ):
        own = [row for row in rows if row["verdict"] == of]
        if own:
            parts.append(_table(title, own, found, verdicts).markdown())
    if record.left_out:
        parts.append(
            "## Left out\n\n" + "".join(f"- {n}: {w}\n" for n, w in record.left_out.items())
        )
    parts.append(_cells(found).markdown())
    late = [name for name, one in record.claims.items() if not one.is_before]
    corrections = sum(not math.isnan(row["p"]) for row in rows)
    notes = [
        f"Intervals are Welch's t at {LEVEL:.0%} over seeds of pretraining, and ± is half of "
        "Student's. A claim holds if the interval of its number lies above what was predicted, "
        "does not hold if it lies below, and "
        "is not shown if it includes it: then the table says how far from it the number would have "
        "to be to be told from it in 8 of 10 cases, and how many seeds would tell one as far from "
        f"it as this one is (at most 100). p is corrected for {corrections} claims (Holm). All is "
        "of models this small, after budgets this small, on this text.",
        "Intervals leave out the variation between examples of a task or probe.",
    ]
    if late:
        notes.append(
            "Recorded or changed after some of their cells had been trained, so that they may have "
            f"been made to fit: {', '.join(late)}."
        )
    parts.append("".join(f"- {note}\n" for note in notes))
    return "\n".join(parts)


def _table(
    title: str, rows: Sequence[Row], found: Findings, verdicts: dict[str, Decision]
) -> MarkdownTable:
    columns = ["claim", "predicted", "measured", "number"]
    columns.append("what could show it" if title.startswith("Not") else "p (Holm)")
    body = []
    for row in rows:
        one, claim = verdicts[row["claim"]], found.record.claims[row["claim"]].claim
        number = f"{_number(one.number)} ({_number(one.low)} to {_number(one.high)})"
        last = _power(claim, one) if title.startswith("Not") else probability(one.holm)
        if one.verdict == MISSING:
            number = "–"
        said = f"{claim.sentence} ({claim.source})"
        body.append((said, claim.prediction(), row["measured"], number, last))
    return MarkdownTable(title, tuple(columns), tuple(body))


def _measured(found: Findings, claim: Claim) -> str:
    """Return the mean of each term over its seeds, with its interval."""
    terms = []
    for _, term in claim.weighted:
        values = found.values(term)
        half = interval(values).half_width if len(values) > 1 else math.nan
        terms.append(
            f"{term} {at_most(_mean(values), found.is_bound(term))}"
            + ("" if math.isnan(half) or not half else f" ± {_number(half)}")
        )
    return ", ".join(terms)


def _power(claim: Claim, one: Decision) -> str:
    """Return what could show a claim, in words."""
    if one.bounds:
        return f"exact losses; of {', '.join(one.bounds)} only upper bounds are known"
    if one.verdict == MISSING:
        return f"two seeds or more of: {', '.join(one.missing)}"
    far = f"a factor of {one.shows:.3f}" if claim.is_factor else f"{_number(one.shows)}"
    seeds = "more than 100 seeds" if one.needs is None else f"{one.needs} seeds"
    return f"{one.seeds} seeds show {far} from {claim.least:g}; {seeds} would show this one"


def _cells(found: Findings) -> MarkdownTable:
    """Return the table of cells: what was trained, and what came out."""
    rows = []
    for name, cell in found.cells.items():
        runs = [run for run in found.runs if run["cell"] == name]
        if not runs:
            continue
        bits = [run["bits_per_byte"] for run in runs if run["bits_per_byte"] is not None]
        losses = [run["heldout_loss"] for run in runs if run["heldout_loss"] is not None]
        is_bound = any(run.get("is_bound") for run in runs)
        rows.append(
            (
                name,
                Path(cell["recipe"]).stem,
                quantity(runs[0]["parameters"]),
                quantity(runs[0]["tokens"]),
                power(runs[0]["flops"]),
                str(len(runs)),
                at_most(_mean(losses), is_bound),
                at_most(_mean(bits), is_bound),
            )
        )
    columns = ("cell", "recipe", "parameters", "tokens", "FLOPs", "seeds", "loss", "bits per byte")
    return MarkdownTable("The cells", columns, tuple(rows))


def _mean(values: Sequence[float]) -> str:
    return _number(sum(values) / len(values)) if values else "–"


def _number(value: float) -> str:
    return f"{value:.3f}" if abs(value) < 100 else f"{value:,.0f}"


def _plot(found: Findings, rows: Sequence[Row]) -> figures.Rendered:
    """Plot all claims in one panel, then each trend, and each difference of differences."""
    verdicts = found.verdicts()
    measured = [row for row in rows if row["verdict"] != MISSING]
    claims = {row["claim"]: found.record.claims[row["claim"]].claim for row in measured}
    drawn = [name for name, claim in claims.items() if len(claim.weighted) > 2]
    lines = math.ceil(len(drawn) / PANELS)
    tall = max(1.5, 0.24 * len(measured) + 1)
    ratios = [tall, 3.2 * lines][: 1 + bool(lines)]
    with matplotlib.rc_context(figures.STYLE):
        layout = ConstrainedLayoutEngine(w_pad=0.2)
        figure = Figure(figsize=(3.2 * PANELS, sum(ratios)), layout=layout)
        parts = figure.subfigures(len(ratios), 1, squeeze=False, height_ratios=ratios)
        above, *below = parts[:, 0]
        axis = above.add_subplot()
        for number, row in enumerate(measured):
            one, claim = verdicts[row["claim"]], claims[row["claim"]]
            scaled = math.log if claim.is_factor else float
            away = scaled(one.number) - claim.threshold
            half = (scaled(one.high) - scaled(one.low)) / 2
            unit = math.hypot(away, half) or 1.0  # so that all fit on one axis, sides kept
            colour = COLOURS[one.verdict]
            axis.errorbar(away / unit, number, xerr=half / unit, fmt="o", color=colour, capsize=2)
        axis.axvline(0.0, color="black", linewidth=0.8)
        axis.set_yticks(range(len(measured)), [row["claim"].replace("_", " ") for row in measured])
        axis.set_ylim(max(1, len(measured)) - 0.5, -0.5)
        axis.set(
            xlabel="the claim's number less what it had to exceed, each in a unit of its own",
            title="green: holds; red: does not hold; gray: not shown",
        )
        for number, name in enumerate(drawn, 1):
            axis = below[0].add_subplot(lines, PANELS, number)
            axis.set(title=name.replace("_", " "), ylabel=claims[name].measure.replace("_", " "))
            axis.grid(alpha=0.3)
            draw = _plot_trend if claims[name].is_trend else _plot_crossing
            draw(axis, found, claims[name])
        return figures.render(figure)


def _plot_trend(axis: Any, found: Findings, claim: Claim) -> None:
    """Plot the values of a trend's cells over their numbers."""
    for name, x in (claim.rises or claim.falls).items():
        values = found.values(ClaimTerm(name, claim.measure))
        axis.plot([x] * len(values), values, "o", markersize=4, color="tab:blue")
    numbers = sorted((claim.rises or claim.falls).values())
    axis.set_xscale("log")
    axis.minorticks_off()
    axis.set_xticks(numbers, [f"{x:g}" for x in numbers])


def _plot_crossing(axis: Any, found: Findings, claim: Claim) -> None:
    """Plot two lines, which a difference of differences compares: from the last pair to the first.

    Of more than two differences it is the first and the last.
    """
    highs, lows = ([term for w, term in claim.weighted if w * sign > 0] for sign in (1, -1))
    for begin, end in ((lows[-1], highs[0]), (highs[-1], lows[0])):
        ends = [found.values(begin), found.values(end)]
        label = str(end) if str(begin) == str(end) else f"{begin} to {end}"
        points = axis.plot([0, 1], [sum(v) / len(v) for v in ends], label=label)
        for x, values in enumerate(ends):
            axis.plot([x] * len(values), values, "o", markersize=4, color=points[0].get_color())
    axis.set_xticks([])
    axis.legend(frameon=False, fontsize=6)
