"""The report of a comparison: one self-contained page, made from its `results.json` alone."""

from __future__ import annotations

import math
from collections.abc import Mapping
from html import escape
from pathlib import Path
from typing import Any

from foreword.disk import atomic, stored
from foreword.errors import DamagedError, UserError
from foreword.evaluation.statistics import LEVEL
from foreword.reports import fragments
from foreword.reports.charts import CELLS, Chart, ChartAxis, Line, scores_chart
from foreword.reports.folder import number
from foreword.reports.meaning import comparison_sentences
from foreword.reports.page import LARGE, page
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
    spent = [point[0] for run in results["runs"] for point in run["curve"] if point[0] > 0]
    if not spent:
        return ""
    lines, cells = [], [cell["cell"] for cell in results["cells"]]
    for run in results["runs"]:
        if run["curve"]:
            amounts, losses = zip(*run["curve"], strict=True)
            colour = f"cell{cells.index(run['cell']) % CELLS}"
            lines.append(Line(run["cell"], amounts, losses, colour, "dots"))
    caption = "Held-out loss, nats per prediction of each cell's own objective and sources"
    if results["is_one_objective"]:
        caption = "Held-out loss, nats per token"
    axis = ChartAxis(results["axis"], log=max(spent) > LOG_SCALE_RATIO * min(spent))
    return f"<h2>Learning</h2>{Chart(caption, lines, axis, height=LARGE).html()}"


def _tasks(results: Mapping[str, Any]) -> str:
    figures = []
    for task, metric in results["metrics"].items():
        cells = {
            cell["cell"]: points
            for cell in results["cells"]
            if (points := _points(cell["tasks"][task]))
        }
        chance = [
            s["scores"]
            for s in results["scores"]
            if s["task"] == task and not s["cell"] and s["start"] != BAG_OF_WORDS
        ]
        level = number(chance[0], metric) if chance else math.nan
        if cells:
            marks = [(level, "")] if level == level else []
            figures.append(scores_chart(task, metric, cells, STARTS, marks=marks).html())
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
