"""The evaluations of a run, each as a table with its plots."""

from __future__ import annotations

import base64
from collections.abc import Iterable, Sequence
from html import escape

from foreword.formatting import cell
from foreword.report.bars import plot_columns
from foreword.report.folder import Picture, Record, SavedEvaluation, number

# Columns plotted for count-based models, which have no curves, and their captions.
BY_ORDER = {
    "never seen": "Share of the text's n-grams never seen, by order",
    "megabytes": "Size in megabytes, by order",
}


def evaluation_section(one: SavedEvaluation) -> str:
    """Return an evaluation as a table with its plots and notes."""
    task = one.task if one.task and one.task != one.name else ""
    command = f"<code>{escape(one.command)}</code>" * bool(one.command)
    origin = " · ".join(part for part in (escape(task), command) if part)
    heading = one.title or one.name.replace("-", " ").replace("_", " ").capitalize()
    parts = [
        f'<h2>{escape(heading)}</h2><div class="card scroll">{html_table(one.rows)}</div>',
        bars_by_order(one),
        *(figure_of(one, drawn) for drawn in one.pictures),
        *(f'<p class="note">{escape(note)}</p>' for note in one.notes),
        f'<p class="note">{origin}</p>',
    ]
    return "".join(parts)


def bars_by_order(one: SavedEvaluation) -> str:
    """Return bar charts by order of n-grams; "" for another evaluation."""
    if not all({"order", *BY_ORDER} <= row.keys() for row in one.rows):
        return ""
    labels = [cell(row["order"]) for row in one.rows]
    figures = []
    for column, caption in BY_ORDER.items():
        values = [number(row, column) for row in one.rows]
        plot = plot_columns(labels, values, "order", escape(f"{one.name}: {caption}"))
        figures.append(f"<figcaption>{escape(caption)}</figcaption>{plot}")
    cards = "".join(f'<figure class="card">{figure}</figure>' for figure in figures)
    return f'<div class="pair">{cards}</div>'


def figure_of(one: SavedEvaluation, drawn: Picture) -> str:
    """Return a plot as an HTML figure with its data inline, so the page stays one file."""
    data = base64.b64encode(drawn.png).decode("ascii")
    alt = escape(f"{one.task or one.name}: {drawn.label or 'plot'}", quote=True)
    caption = f"<figcaption>{escape(drawn.label)}</figcaption>" if drawn.label else ""
    image = f'<img src="data:image/png;base64,{data}" alt="{alt}">'
    return f'<figure class="card">{caption}{image}</figure>'


def html_table(rows: Sequence[Record]) -> str:
    """Return flat records as an HTML table; columns in order of first occurrence."""
    columns = list(dict.fromkeys(key for row in rows for key in row))
    kinds = {
        c: "n" if all(isinstance(row.get(c), int | float | None) for row in rows) else "t"
        for c in columns
    }

    def line(tag: str, values: Iterable[str]) -> str:
        pairs = zip(columns, values, strict=True)
        cells = (f'<{tag} class="{kinds[c]}">{escape(value)}</{tag}>' for c, value in pairs)
        return f"<tr>{''.join(cells)}</tr>"

    head = line("th", (str(c).replace("_", " ") for c in columns))
    lines = (line("td", (cell(row.get(c)) for c in columns)) for row in rows)
    return f"<table><thead>{head}</thead><tbody>{''.join(lines)}</tbody></table>"
