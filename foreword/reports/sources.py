"""The sources of a mixture on a run's page: the held-out loss of each, as curves and as a table."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from foreword.data.mixture import effective_epochs
from foreword.formatting import figure, quantity
from foreword.reports import fragments
from foreword.reports.charts import CELLS, Chart, Line
from foreword.reports.folder import RunFolder, number
from foreword.reports.tables import Table

_NOTE = (
    "Worth: how many epochs of new text so many readings are worth (Muennighoff et al. 2023). The "
    "held-out loss of the run is the mean of the sources by their shares."
)


def source_section(run: RunFolder) -> str:
    """Return the sources of a run's mixture; "" for a single text."""
    sources = _mapping(_mapping(run.provenance.get("data")).get("sources"))
    records = [(number(r, "step"), _mapping(r.get("sources"))) for r in run.heldout]
    if not sources:
        return ""
    parts = ["<h2>Sources</h2>"]
    lines = []
    for n, name in enumerate(sources):
        points = [(step, number(losses, name)) for step, losses in records]
        points = [point for point in points if not math.isnan(point[1])]
        if points:
            steps, losses = zip(*points, strict=True)
            lines.append(Line(name, steps, losses, f"cell{n % CELLS}", "dots"))
    if lines:
        parts.append(Chart("Held-out loss by source, nats per prediction", lines, "step").html())
    last = records[-1][1] if records else {}
    columns = ("source", "tokens", "share", "epochs", "worth", "held-out loss")
    rows = [_row(name, _mapping(facts), last) for name, facts in sources.items()]
    parts.append(Table(columns, rows, [False, *[True] * 5]).html())
    parts.append(fragments.note(_NOTE))
    return "\n".join(parts)


def _row(name: str, facts: Mapping[str, Any], losses: Mapping[str, Any]) -> list[str]:
    counts = _mapping(_mapping(facts.get("counts")).get("train"))
    share, epochs = number(facts, "share"), number(facts, "epochs")
    worth = effective_epochs(epochs) if epochs == epochs else math.nan
    return [
        name,
        quantity(number(counts, "tokens")),
        f"{share:.2%}" if share == share else "–",
        figure(epochs),
        figure(worth),
        figure(number(losses, name)),
    ]


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}
