"""A comparison as one page that stands alone, made of its `results.json` and nothing else."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

from foreword import atomic, stored
from foreword.errors import DamagedError, UserError
from foreword.report.bars import CellScores, plot_scores
from foreword.report.curves import CELLS, Line, plot_curves
from foreword.report.page import page

FILE = "results.json"
STARTS = ("pretrained", "from scratch")
LOG_SCALE_RATIO = 100  # times the least that is spent, and the axis is logarithmic


def is_comparison(folder: str | Path) -> bool:
    """Whether the folder is a comparison that has results."""
    return (Path(folder) / FILE).is_file()


def write_comparison(folder: str | Path, out: str | Path | None = None) -> Path:
    """Writes a comparison's report.

    Args:
        folder: of the comparison.
        out: the page; `report.html` in the folder if unsaid.

    Returns:
        Where it is.

    Raises:
        UserError: its results cannot be read, or the page cannot be written.
    """
    folder = Path(folder)
    try:
        results = stored.read(folder / FILE)
        name = str(results["grid"].get("description") or folder.resolve().name)
        content = body(name, results)
    except (DamagedError, ValueError, LookupError, TypeError, AttributeError, ArithmeticError) as e:
        raise UserError(f"{folder / FILE}: cannot be read; compare again: {e}") from e
    path = Path(out) if out is not None else folder / "report.html"
    atomic.write_text(path, page(name, content))
    return path


def body(name: str, results: Mapping[str, Any]) -> str:
    """The page's content.

    Args:
        name: of the comparison.
        results: as `foreword compare` writes them.
    """
    grid = results["grid"]
    sizes = [(len(grid["cells"]), "cell"), (len(results["metrics"]), "task")]
    said = " and ".join(f"{n} {what}{'s' * (n != 1)}" for n, what in sizes if n)
    notes = "".join(f"<li>{escape(str(note))}</li>" for note in results["notes"])
    sections = [
        f"<h1>{escape(name)}</h1>",
        f'<p class="lead">{escape(said)}, at equal budgets.</p>',
        *(_table(table) for table in results["tables"] if table["title"] != "What they say"),
        _losses(results),
        _tasks(results),
        *(_table(table) for table in results["tables"] if table["title"] == "What they say"),
        f'<h2>How to read it</h2><ul class="note">{notes}</ul>',
    ]
    return "\n".join(section for section in sections if section)


def _table(table: Mapping[str, Any]) -> str:
    """A table as it was written, numbers to the right."""

    def line(tag: str, values: Sequence[str]) -> str:
        kinds = ["t", *["t" if table["title"] == "What they say" else "n"] * (len(values) - 1)]
        pairs = zip(kinds, values, strict=True)
        return "".join(f'<{tag} class="{kind}">{escape(str(v))}</{tag}>' for kind, v in pairs)

    lines = "".join(f"<tr>{line('td', row)}</tr>" for row in table["rows"])
    return (
        f'<h2>{escape(table["title"])}</h2><div class="card scroll"><table><thead>'
        f"<tr>{line('th', table['columns'])}</tr></thead><tbody>{lines}</tbody></table></div>"
    )


def _losses(results: Mapping[str, Any]) -> str:
    """Held-out losses against what was spent, a colour per cell."""
    spent = [point[0] for run in results["runs"] for point in run["curve"] if point[0] > 0]
    if not spent:
        return ""
    is_log = max(spent) > LOG_SCALE_RATIO * min(spent)
    power = 0 if is_log else max(0, 3 * (math.floor(math.log10(max(spent))) // 3))
    lines, named = [], set()
    cells = [cell["cell"] for cell in results["cells"]]
    for run in results["runs"]:
        if run["curve"]:
            places, losses = zip(*run["curve"], strict=True)
            colour = f"cell{cells.index(run['cell']) % CELLS}"
            label = "" if run["cell"] in named else run["cell"]
            named.add(run["cell"])
            lines.append(Line(label, [x / 10**power for x in places], losses, colour, "dots"))
    raised = str(power).translate(str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹"))
    caption = "Held-out loss, nats per prediction of each cell's own objective"
    if results["is_one_objective"]:
        caption = "Held-out loss, nats per token"
    axis = results["axis"]
    label, title = f"10{raised} {axis}" if power else axis, f"Held-out loss against {axis}"
    small = plot_curves(lines, label, title, is_log=is_log)
    broad = plot_curves(lines, label, title, tall=True, is_log=is_log)
    return (
        f'<h2>Learning</h2><figure class="card"><figcaption>{caption}</figcaption>'
        f'<div class="broad">{broad}</div><div class="narrow">{small}</div></figure>'
    )


def _tasks(results: Mapping[str, Any]) -> str:
    """A figure per task."""
    figures = []
    for task, metric in results["metrics"].items():
        bars = [
            CellScores(cell["cell"], points)
            for cell in results["cells"]
            if (points := _points(cell["tasks"][task]))
        ]
        guesses = [s["scores"] for s in results["scores"] if s["task"] == task and not s["cell"]]
        level = float(guesses[0].get(metric, math.nan)) if guesses else math.nan
        if bars:
            plot = plot_scores(bars, metric, f"{task}, {metric}", level)
            caption = f"<figcaption>{escape(task)}</figcaption>"
            figures.append(f'<figure class="card">{caption}{plot}</figure>')
    if not figures:
        return ""
    note = "Full: pretrained. Hollow: the same network from scratch. Dashed: guessing."
    return (
        f'<h2>What it is worth</h2><div class="pair">{"".join(figures)}</div>'
        f'<p class="note">{note}</p>'
    )


def _points(starts: Mapping[str, Any]) -> tuple[tuple[float, float], ...]:
    """Mean and half the interval of each start; empty where none is known."""
    found = [starts.get(start) or {"mean": math.nan, "half": None} for start in STARTS]
    points = tuple((one["mean"], math.nan if one["half"] is None else one["half"]) for one in found)
    return points if any(mean == mean for mean, _ in points) else ()
