"""The report of a comparison: one self-contained page, made from its `results.json` alone."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import partial
from html import escape
from pathlib import Path
from typing import Any

from foreword.disk import atomic, stored
from foreword.errors import DamagedError, UserError
from foreword.evaluation.statistics import LEVEL
from foreword.reports import fragments
from foreword.reports.bars import CellScores, plot_scores
from foreword.reports.curves import Line, plot_curves
from foreword.reports.folder import number
from foreword.reports.meaning import comparison_sentences
from foreword.reports.page import page
from foreword.reports.svg import CELLS
from foreword.reports.tables import Table

FILE = "results.json"
STARTS = ("pretrained", "from scratch")
LOG_SCALE_RATIO = 100  # largest / smallest amount spent, above which the axis is logarithmic
SAMPLES = "What they say"  # title of the table of samples
BAG_OF_WORDS = "bag of words"  # a baseline, beside chance
TEXT_COLUMNS = ("cell", "recipe", "best of the sweep", "next best", "verdict")


def is_comparison(folder: str | Path) -> bool:
    """Return whether the folder is a comparison with results."""
    return (Path(folder) / FILE).is_file()


def write_comparison(folder: str | Path, out: str | Path | None = None) -> Path:
    """Write a comparison's report.

    Args:
        out: path of the page; default: `report.html` in the folder.

    Returns:
        The path of the page.

    Raises:
        UserError: the results cannot be read, or the page cannot be written.
    """
    folder = Path(folder)
    try:
        results = stored.read(folder / FILE)
        name = str(results["grid"].get("description") or folder.resolve().name)
        content = body(name, results)
    except (DamagedError, ValueError, LookupError, TypeError, AttributeError, ArithmeticError) as e:
        raise UserError(f"{folder / FILE}: cannot be read; compare again: {e}") from e
    path = Path(out) if out is not None else folder / "report.html"
    atomic.require_writable(path, is_folder=False)
    atomic.write_text(path, page(name, content))
    return path


def body(name: str, results: Mapping[str, Any]) -> str:
    """Return the content of the page.

    Args:
        results: content of `results.json`.
    """
    grid = results["grid"]
    tasks = len(grid.get("tasks", ()))
    sizes = {
        "cell": len(grid["cells"]),
        "task": tasks,
        "other measure" if tasks else "measure": len(results["metrics"]) - tasks,
    }
    counts = [f"{n} {noun}{'s' * (n != 1)}" for noun, n in sizes.items() if n]
    lead = ", ".join(counts[:-1]) + " and " * (len(counts) > 1) + counts[-1]
    notes = "".join(f"<li>{escape(str(note))}</li>" for note in results["notes"])
    sections = [
        f"<h1>{escape(name)}</h1>",
        f'<p class="lead">{escape(lead)}, at equal budgets.</p>',
        *(f'<p class="meaning">{escape(text)}</p>' for text in comparison_sentences(results)),
        *(_table(table) for table in results["tables"] if table["title"] != SAMPLES),
        _losses(results),
        _tasks(results),
        *(_table(table) for table in results["tables"] if table["title"] == SAMPLES),
        f'<h2>How to read it</h2><ul class="note">{notes}</ul>',
    ]
    return "\n".join(section for section in sections if section)


def _table(table: Mapping[str, Any]) -> str:
    """Return a table as HTML, with numbers aligned to the right."""
    columns, rows = table["columns"], [[str(v) for v in row] for row in table["rows"]]
    is_text = table["title"] == SAMPLES
    is_number = [
        not is_text and n > 0 and name not in TEXT_COLUMNS for n, name in enumerate(columns)
    ]
    return f"<h2>{escape(table['title'])}</h2>{Table(columns, rows, is_number).html()}"


def _losses(results: Mapping[str, Any]) -> str:
    """Return the figure of held-out losses by amount spent, in one colour per cell."""
    # The axis: linear in a power of ten, or logarithmic.
    spent = [point[0] for run in results["runs"] for point in run["curve"] if point[0] > 0]
    if not spent:
        return ""
    is_log = max(spent) > LOG_SCALE_RATIO * min(spent)
    power = 0 if is_log else max(0, 3 * (math.floor(math.log10(max(spent))) // 3))
    # A curve per run; the first of each cell has the label.
    lines, labelled = [], set()
    cells = [cell["cell"] for cell in results["cells"]]
    for run in results["runs"]:
        if run["curve"]:
            amounts, losses = zip(*run["curve"], strict=True)
            colour = f"cell{cells.index(run['cell']) % CELLS}"
            label = "" if run["cell"] in labelled else run["cell"]
            labelled.add(run["cell"])
            lines.append(Line(label, [x / 10**power for x in amounts], losses, colour, "dots"))
    # The figure, for narrow and for wide screens.
    exponent = str(power).translate(str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹"))
    caption = "Held-out loss, nats per prediction of each cell's own objective and sources"
    if results["is_one_objective"]:
        caption = "Held-out loss, nats per token"
    axis = results["axis"]
    label, title = f"10{exponent} {axis}" if power else axis, f"Held-out loss against {axis}"
    draw = partial(plot_curves, lines, label, title, is_log=is_log)
    return f"<h2>Learning</h2>{fragments.figure(caption, draw, is_large=True)}"


def _tasks(results: Mapping[str, Any]) -> str:
    figures = []
    for task, metric in results["metrics"].items():
        cells = [
            CellScores(cell["cell"], points)
            for cell in results["cells"]
            if (points := _points(cell["tasks"][task]))
        ]
        chance = [
            s["scores"]
            for s in results["scores"]
            if s["task"] == task and not s["cell"] and s["start"] != BAG_OF_WORDS
        ]
        level = number(chance[0], metric) if chance else math.nan
        if cells:
            title = escape(f"{task}, {metric}", quote=True)
            figures.append(
                fragments.figure(task, partial(plot_scores, cells, metric, title, level))
            )
    if not figures:
        return ""
    note = fragments.note(
        "Full: pretrained. Hollow: the same network from scratch. Dashed: chance. "
        f"Bars: {LEVEL:.0%} intervals over seeds, as in the table."
    )
    return f"<h2>What it is worth</h2>{fragments.side_by_side(figures)}{note}"


def _points(starts: Mapping[str, Any]) -> tuple[tuple[float, float], ...]:
    """Return (mean, half the interval's width) of each start; empty if none is known."""
    estimates = [starts.get(start) or {} for start in STARTS]
    points = tuple((number(each, "mean"), number(each, "half")) for each in estimates)
    return points if any(mean == mean for mean, _ in points) else ()
