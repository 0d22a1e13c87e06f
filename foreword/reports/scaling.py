"""The page of scaling laws, and their tables: three methods side by side, and what to trust."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from html import escape
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from foreword.disk import atomic
from foreword.formatting import figure, interval, power, quantity
from foreword.reports import fragments
from foreword.reports.charts import CELLS, Chart, ChartAxis, Line
from foreword.reports.page import LARGE, page
from foreword.reports.tables import Table
from foreword.scaling.fit import METHODS, FamilyFit
from foreword.scaling.law import Law, losses, per_token
from foreword.scaling.optima import Envelope
from foreword.scaling.repeated import FORMS
from foreword.scaling.runs import ONCE
from foreword.scaling.surface import NAMES
from foreword.tables.write import SourcedRow, writing_rows

TITLES = {
    "direct": "direct fit",
    "isoflop": "isoFLOP, parabolas",
    "akima": "isoFLOP, Akima",
    "envelope": "lower envelope",
}
FLOPS = ChartAxis("training FLOPs", log=True)
MOST_BUDGETS = 12  # with a curve each
WORDS = ("state", "remark", "winner")  # columns without numbers, besides the first
HOW = (
    "The direct fit (approach 3) reads all runs and all sizes at once, and is the one to trust "
    "where it is not refused. IsoFLOP minima (approach 2) need no form of the loss, but a parabola "
    "is biased and Akima's interpolation follows the noise. The lower envelope (approach 1) knows "
    "only the sizes that were tried. Where the methods disagree by more than their intervals, do "
    "not extrapolate. Intervals are 95 %, over whole runs drawn again."
)


def method_rows(fit: FamilyFit) -> list[dict[str, Any]]:
    """Return a row for each method: its law, and the optimum of the largest budget."""
    largest = float(fit.runs.flops.max())
    rows = []
    for name in METHODS:
        found = fit.methods[name]
        plain = found.as_json()["interval"]
        tokens, ends = found.tokens(largest)
        exponent, level = plain["exponent"], figure(found.law.log10_intercept)
        between = f" ({quantity(ends[0])} to {quantity(ends[1])})" if ends else ""
        rows.append(
            {
                "method": TITLES[name],
                "exponent": f"{found.law.exponent:.3f} ({interval(*exponent)})"
                if exponent
                else figure(found.law.exponent, 3),
                "log10 intercept": level,
                f"tokens at {power(largest)}": quantity(tokens) + between,
                "state": "refused" if found.refused else "marked" if found.marks else "",
            }
        )
    return rows


def _family_rows(fits: Sequence[FamilyFit]) -> list[dict[str, Any]]:
    """Return a row for each family: what its direct fit says of its largest budget."""
    names = ("family", "exponent", "largest budget, FLOPs", "optimal tokens", "state")
    rows = []
    for fit in (fit for fit in fits if fit.counted == "all"):
        _, exponent, _, tokens, state = method_rows(fit)[0].values()
        row = (fit.name, exponent, power(float(fit.runs.flops.max())), tokens, state)
        rows.append(dict(zip(names, row, strict=True)))
    return rows


def value_rows(fit: FamilyFit) -> list[dict[str, Any]]:
    """Return a row for each value of the direct fit."""
    rows = []
    for name, value in zip(NAMES, fit.values, strict=True):
        low, high = fit.intervals[name] or (math.nan, math.nan)
        rows.append(
            {"value": name, "fit": figure(float(value)), "low": figure(low), "high": figure(high)}
        )
    return rows


def repeated_rows(fit: FamilyFit) -> list[dict[str, Any]]:
    """Return a row for each value that the laws of repeated text add, and for their errors."""
    rows = []
    for form, found in fit.repeated.items():
        for name in FORMS[form]:
            between = found.intervals[name]
            rows.append(
                {
                    "law": form.replace("_", "-"),
                    "value": name,
                    "fit": figure(found.values[name]),
                    "interval": interval(*between) if between else "",
                    "error": f"{100 * found.error:.2f} %",
                    "held out": ""
                    if found.held_out_error is None
                    else f"{100 * found.held_out_error:.2f} %",
                }
            )
    return rows


def score_rows(fit: FamilyFit) -> list[dict[str, Any]]:
    """Return a row for each run of the largest budget: its score, and what forecast it."""
    found, runs = fit.score, fit.runs
    assert found is not None and runs.score is not None
    return [
        {
            "parameters": quantity(float(runs.parameters[one.item])),
            "score": figure(float(runs.score[one.item]), 3),
            "forecast from size and tokens": figure(one.forecast, 3),
            "interval": interval(one.low, one.high) or "–",
            "from its own loss": figure(one.from_loss, 3),
        }
        for one in sorted(found.forecasts, key=lambda one: runs.parameters[one.item])
    ]


def score_line(fit: FamilyFit) -> str:
    """Return how the score follows the loss, in words."""
    found = fit.score
    assert found is not None
    floor, top, steepness, middle = found.values
    mark = f"; marked: {found.mark}" if found.mark else ""
    return (
        f"score = {figure(floor, 3)} + {figure(top - floor, 3)} / (1 + exp({figure(steepness, 3)} "
        f"(loss - {figure(middle, 3)}))); runs scatter by {figure(found.spread, 2)}; rank "
        f"correlation of score and loss {found.rank:.2f} (p {found.rank_p:.2g}){mark}"
    )


def remarks_of(fit: FamilyFit) -> list[str]:
    """Return what is wrong with each method, and what else a reader should know."""
    lines: dict[str, None] = {}
    said = {
        name: [f" refused: {of.refused}"] if of.refused else [f": {mark}" for mark in of.marks]
        for name, of in fit.methods.items()
    }
    for name in METHODS:
        for line in said[name]:
            # What holds for both ways to find minima is said once.
            is_of_both = line in said["isoflop"] and line in said["akima"]
            lines[(TITLES[name].partition(",")[0] if is_of_both else TITLES[name]) + line] = None
    marks = [f"{name.replace('_', '-')}: {f.mark}" for name, f in fit.repeated.items() if f.mark]
    return [*lines, *marks, *fit.notes]


def write_laws(
    out: Path, name: str, fits: Sequence[FamilyFit], about: tuple[str, str, str]
) -> dict[str, Law]:
    """Write the page, the tables and the files of the laws.

    Args:
        about: unit of the loss, text and machine.

    Returns:
        The laws by the name of their file.

    Raises:
        UserError: a file cannot be written.
    """
    out.mkdir(parents=True, exist_ok=True)
    laws = {}
    for fit in fits:
        ending = "" if fit.counted == "all" else "-without-embeddings"
        family = re.sub(r"[^\w.-]+", "_", fit.runs.family or "all").strip(".")
        file = f"{family}{ending}.toml"
        (out / file).unlink(missing_ok=True)  # of an earlier fit
        if (law := fit.law(*about)) is not None:
            laws[file] = law
            law.save(out / file)
    write_rows(out / "methods.csv", [row for fit in fits for row in _method_records(fit)])
    write_rows(out / "runs.csv", [row for fit in fits for row in _run_records(fit)])
    atomic.write_text(out / "laws.html", page(f"Scaling laws: {name}", _body(name, fits)))
    return laws


def write_rows(path: Path, rows: Sequence[dict[str, Any]]) -> None:
    """Write rows, which have the columns of the first, as CSV."""
    with writing_rows(path, dict.fromkeys(rows[0], pa.string())) as write:
        write([SourcedRow(path.name, row) for row in rows])


def _method_records(fit: FamilyFit) -> list[dict[str, Any]]:
    rows = []
    for name in METHODS:
        plain = fit.methods[name].as_json()
        ends = {key: of or (None, None) for key, of in plain["interval"].items()}
        values: dict[str, Any] = {}
        for number, key in enumerate(NAMES):
            low, high = fit.intervals[key] or (None, None)
            cells = (float(fit.values[number]), low, high) if name == "direct" else (None,) * 3
            values |= dict(zip((key, f"{key}_low", f"{key}_high"), cells, strict=True))
        rows.append(
            {
                "family": fit.runs.family,
                "parameters": fit.counted,
                "method": name,
                "exponent": plain["exponent"],
                "exponent_low": ends["exponent"][0],
                "exponent_high": ends["exponent"][1],
                "log10_intercept": plain["log10_intercept"],
                "log10_intercept_low": ends["log10_intercept"][0],
                "log10_intercept_high": ends["log10_intercept"][1],
                **values,
                "refused": plain["refused"],
                "marks": "; ".join(plain["marks"]),
            }
        )
    return rows


def _run_records(fit: FamilyFit) -> list[dict[str, Any]]:
    forecasts = {held.item: held for held in fit.held_out}
    runs, rows = fit.runs, []
    for item in range(len(runs.loss)):
        held = forecasts.get(item)
        rows.append(
            {
                "family": runs.family,
                "counted": fit.counted,
                "parameters": float(runs.parameters[item]),
                "tokens": float(runs.tokens[item]),
                "flops": float(runs.flops[item]),
                "loss": float(runs.loss[item]),
                "direct_fit": float(fit.predicted[item]),
                "log_residual": float(fit.residuals[item]),
                "fitted": int(fit.fitted[item]),
                "forecast_low": None if held is None else held.low,
                "forecast_high": None if held is None else held.high,
            }
        )
    return rows


def _body(name: str, fits: Sequence[FamilyFit]) -> str:
    families = len({fit.runs.family for fit in fits})
    runs = sum(len(fit.runs.loss) for fit in fits if fit.counted == "all")
    of = f"{runs} runs" + (f" of {families} families" if families > 1 else "")
    sections = [
        f"<h1>Scaling laws: {escape(name)}</h1>",
        f'<p class="lead">{escape(of)}; the optimal number of tokens of a budget, and the loss to '
        "expect.</p>",
        *([f"<h2>Direct fits</h2>{table(_family_rows(fits))}"] if families > 1 else []),
        *(_section(fit, is_open=families == 1 and fit.counted == "all") for fit in fits),
        f"<h2>How to read it</h2>{fragments.note(HOW)}",
    ]
    return "\n".join(sections)


def _section(fit: FamilyFit, *, is_open: bool) -> str:
    remarks = "".join(f"<li>{escape(line)}</li>" for line in remarks_of(fit))
    refused = ", refused" if fit.methods["direct"].refused else ""
    parts = [
        table(method_rows(fit)),
        f"<h3>Direct fit{refused}: L = E + A / N<sup>alpha</sup> + B / D<sup>beta</sup></h3>",
        table(value_rows(fit)),
        f'<ul class="note">{remarks}</ul>',
    ]
    if fit.runs.budgets():
        parts.append(budgets_chart(fit).html())
    parts.append(fragments.side_by_side([optima_chart(fit).html(), residuals_chart(fit).html()]))
    if fit.repeated:
        parts += ["<h3>Text read several times</h3>", table(repeated_rows(fit))]
    if fit.held_out:
        parts += ["<h3>The largest budget, forecast</h3>", table(_held_rows(fit))]
    if fit.score is not None:
        parts += [
            "<h3>The score, in two steps</h3>",
            fragments.note(score_line(fit)),
            *([table(score_rows(fit))] if fit.score.forecasts else []),
            score_chart(fit).html(),
        ]
    return fragments.folded(fit.name, "\n".join(parts), is_open=is_open, is_chapter=True)


def table(rows: Sequence[dict[str, Any]]) -> str:
    """Return rows as HTML, with numbers on the right."""
    columns = list(rows[0])
    cells = [[str(value) for value in row.values()] for row in rows]
    is_number = [number > 0 and name not in WORDS for number, name in enumerate(columns)]
    return Table(columns, cells, is_number).html()


def _held_rows(fit: FamilyFit) -> list[dict[str, Any]]:
    runs = fit.runs
    return [
        {
            "parameters": quantity(float(runs.parameters[held.item])),
            "tokens": quantity(float(runs.tokens[held.item])),
            "forecast": figure(held.forecast),
            "interval": interval(held.low, held.high) or "–",
            "loss": figure(float(runs.loss[held.item])),
            "error": f"{100 * (held.forecast / float(runs.loss[held.item]) - 1):+.2f} %",
        }
        for held in sorted(fit.held_out, key=lambda held: runs.parameters[held.item])
    ]


def budgets_chart(fit: FamilyFit) -> Chart:
    """Return loss against parameters: a colour, a curve and a parabola a budget."""
    runs, lines = fit.runs, list[Line]()
    curves = {round(math.log(m.flops), 2): m for m in fit.minima if m.curve}
    for number, group in enumerate(runs.budgets()[-MOST_BUDGETS:]):
        colour = f"cell{number % CELLS}"
        flops = float(np.exp(np.log(runs.flops[group]).mean()))
        n = runs.parameters[group]
        style = "points" if fit.fitted[group].all() else "hollow"
        lines.append(Line(power(flops), n, runs.loss[group], colour, style))
        sizes = np.geomspace(n.min(), n.max(), 100)
        tokens = flops / per_token(fit.flops_per_token, sizes)
        if not fit.methods["direct"].refused:
            expected = losses(fit.values[None], sizes, tokens).ravel()
            lines.append(Line("", sizes, expected, colour))
        if (found := curves.get(round(math.log(flops), 2))) is not None:
            parabola = np.polyval(found.curve, np.log10(tokens))
            lines.append(Line("", sizes, parabola, colour, "dashed"))
    low, high = float(runs.loss.min()), float(runs.loss.max())
    margin = 0.06 * max(high - low, 1e-3 * high)
    title = (
        f"{fit.name}: loss against parameters, by training FLOPs. Solid: direct fit; dashed: "
        "parabolas; hollow: held out"
    )
    return Chart(
        title,
        lines,
        ChartAxis("parameters", log=True),
        ChartAxis("loss", range=[low - margin, high + margin]),
        legend="training FLOPs",
        height=LARGE,
    )


def optima_chart(fit: FamilyFit) -> Chart:
    """Return the optimal tokens by each method against FLOPs."""
    runs = fit.runs.where(fit.fitted)
    on_it = Envelope.of(runs.flops).items(runs.loss)
    x = np.geomspace(fit.runs.flops.min(), fit.runs.flops.max(), 30)
    points: dict[str, tuple[Iterable[float], Iterable[float]]] = {
        "envelope": (runs.flops[on_it], runs.tokens[on_it]),
        "isoflop": ([m.flops for m in fit.minima], [m.parabola for m in fit.minima]),
        "akima": ([m.flops for m in fit.minima], [m.akima for m in fit.minima]),
    }
    lines: list[Line] = []
    for number, name in enumerate(METHODS):
        found, colour = fit.methods[name], f"cell{number}"
        if name in points:
            x_values, y_values = points[name]
            lines.append(Line("", x_values, y_values, colour, "points"))
        if found.refused:
            continue
        style, state = ("dashed", " (marked)") if found.marks else ("line", "")
        tokens, ends = zip(*(found.tokens(float(flops)) for flops in x), strict=True)
        lines.append(Line(TITLES[name] + state, x, tokens, colour, style))
        if name == "direct" and all(ends):
            lines.append(Line("", x, tokens, colour, "area", ends=ends))
    title = f"{fit.name}: optimal tokens by budget; shaded: the direct fit's 95 %"
    return Chart(title, lines, FLOPS, ChartAxis("tokens", log=True))


def residuals_chart(fit: FamilyFit) -> Chart:
    """Return the residuals of the direct fit against FLOPs, and the seed noise."""
    is_once = fit.runs.epochs <= ONCE
    groups = {"fitted": fit.fitted, "held out": is_once & ~fit.fitted, "read again": ~is_once}
    colours = {"fitted": "accent", "held out": "cell2", "read again": "second"}
    lines = [
        Line(label, fit.runs.flops[chosen], 100 * fit.residuals[chosen], colours[label], "points")
        for label, chosen in groups.items()
        if chosen.any()
    ]
    if fit.seed_noise is not None:
        noise = 100 * fit.seed_noise / float(np.median(fit.runs.loss))
        x = [fit.runs.flops.min(), fit.runs.flops.max()]
        lines.append(Line("", x, [0, 0], "muted", "area", ends=[(-noise, noise)] * 2))
    largest = max(float(np.abs(100 * fit.residuals).max()) * 1.15, 1e-3)
    title = f"{fit.name}: residuals of the direct fit, % of the loss"
    y_axis = ChartAxis("% above the fit", range=[-largest, largest])
    return Chart(title, lines, FLOPS, y_axis, levels=[(0.0, "")])


def score_chart(fit: FamilyFit) -> Chart:
    """Return the score against the loss, with the sigmoid."""
    runs, found = fit.runs, fit.score
    assert found is not None and runs.score is not None
    x = np.linspace(runs.loss.min(), runs.loss.max(), 100)
    lines = [
        *(
            Line("score", runs.loss[chosen], runs.score[chosen], "accent", style)
            for chosen, style in ((fit.fitted, "points"), (~fit.fitted, "hollow"))
        ),
        Line("", x, found.at(x), "muted", "faint"),
    ]
    title = f"{fit.name}: score against loss; hollow: the largest budget, not fitted"
    return Chart(title, lines, ChartAxis("loss", flip=True), "score")
