"""The evaluations of a run, each as a table with its plots."""

from __future__ import annotations

import base64
import struct
from html import escape
from pathlib import Path

from foreword.formatting import cell, with_bounds, with_intervals
from foreword.reports import fragments, suite, tuning
from foreword.reports.charts import Chart, ChartAxis, Line
from foreword.reports.folder import Picture, SavedEvaluation, number
from foreword.reports.meaning import loss_sentence
from foreword.reports.tables import Table

# Columns plotted for count-based models, which have no curves, and their captions.
BY_ORDER = {
    "never seen": "Share of the text's n-grams never seen, by order",
    "megabytes": "Size in megabytes, by order",
}
LOSS = "held-out loss"  # the task of an evaluation of the loss
SCREEN_DPI = 96


def evaluation_section(evaluation: SavedEvaluation, *, says_meaning: bool = True) -> str:
    """Return an evaluation as a table with its plots and notes.

    Args:
        says_meaning: whether to begin with what the figures mean.
    """
    task = evaluation.task if evaluation.task and evaluation.task != evaluation.name else ""
    command = f"<code>{escape(evaluation.command)}</code>" * bool(evaluation.command)
    origin = " · ".join(part for part in (escape(task), command) if part)
    sentence = meaning(evaluation) if says_meaning else ""
    parts = [
        f"<h2>{escape(heading(evaluation))}</h2>",
        f'<p class="meaning">{escape(sentence)}</p>' if sentence else "",
        _table(evaluation),
        bars_by_order(evaluation),
        *(plot_figure(evaluation, drawn) for drawn in evaluation.pictures),
        *map(fragments.note, evaluation.notes),
        f'<p class="note">{origin}</p>',
    ]
    return "".join(parts)


def _table(evaluation: SavedEvaluation) -> str:
    if suite.is_suite(evaluation):
        return suite.section(evaluation)
    if tuning.metrics(evaluation):
        return tuning.section(evaluation)
    return Table.of_records([with_bounds(with_intervals(row)) for row in evaluation.rows]).html()


def heading(evaluation: SavedEvaluation) -> str:
    """Return the heading of an evaluation."""
    if not evaluation.title and evaluation.task == LOSS:
        text = _text(evaluation)
        return f"Loss on {text}" if text else "Held-out loss"
    return evaluation.title or evaluation.name.replace("-", " ").replace("_", " ").capitalize()


def meaning(evaluation: SavedEvaluation) -> str:
    """Return what the figures of an evaluation mean, in words; "" if nothing is known to say."""
    if evaluation.task == LOSS:
        prediction = str(evaluation.content.get("prediction") or "prediction")
        return loss_sentence(evaluation.rows, prediction, _text(evaluation) or "held-out text")
    return tuning.meaning(evaluation)


def _text(evaluation: SavedEvaluation) -> str:
    """Return the names of the files of an evaluation's text; "" for the run's own held-out text."""
    text = evaluation.content.get("text", "")
    texts = text if isinstance(text, list) else [text]
    return ", ".join(Path(str(path)).name for path in texts)


def bars_by_order(evaluation: SavedEvaluation) -> str:
    """Return bar charts by order of n-grams; "" for another evaluation."""
    if not all({"order", *BY_ORDER} <= row.keys() for row in evaluation.rows):
        return ""
    order = ChartAxis("order", names=[cell(row["order"]) for row in evaluation.rows])
    figures = []
    for column, caption in BY_ORDER.items():
        values = [number(row, column) for row in evaluation.rows]
        line = Line("", range(len(values)), values, style="bars")
        figures.append(Chart(caption, [line], order).html())
    return fragments.side_by_side(figures)


def plot_figure(evaluation: SavedEvaluation, drawn: Picture) -> str:
    """Return a plot as an HTML figure with its data inline, so the page stays one file."""
    data = base64.b64encode(drawn.png).decode("ascii")
    alt = escape(f"{evaluation.task or evaluation.name}: {drawn.label or 'plot'}", quote=True)
    caption = f"<figcaption>{escape(drawn.label)}</figcaption>" if drawn.label else ""
    width = f' width="{pixels}"' if (pixels := screen_width(drawn.png)) else ""
    image = f'<img src="data:image/png;base64,{data}"{width} alt="{alt}">'
    return f'<figure class="card">{caption}{image}</figure>'


def screen_width(png: bytes) -> int:
    """Return the pixels at which a plot's text is as large as that of other plots; 0 if unknown.

    They follow from its width and resolution.
    """
    at = png.find(b"pHYs")
    if at < 0 or png[12:16] != b"IHDR" or len(png) < at + 13:
        return 0
    (width,) = struct.unpack(">I", png[16:20])
    per_metre, _, unit = struct.unpack(">IIB", png[at + 4 : at + 13])
    return round(width * SCREEN_DPI * 39.37 / per_metre) if unit == 1 and per_metre else 0
