"""The table of a suite of fine-tuning tasks, and each task's scores under it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from foreword.reports import fragments, tuning
from foreword.reports.folder import SavedEvaluation
from foreword.reports.tables import Table
from foreword.suites.table import OURS, cells_in_percent

SUITE = "suite"  # the task of such an evaluation


def is_suite(evaluation: SavedEvaluation) -> bool:
    """Return whether an evaluation is of a suite."""
    is_known = evaluation.task == SUITE and OURS in evaluation.rows[0]
    return is_known and isinstance(evaluation.content.get("tasks"), Mapping)


def section(evaluation: SavedEvaluation) -> str:
    """Return the table in percent, the sources of published scores, and each task's scores."""
    (_, _, *heads), cells = cells_in_percent([dict(row) for row in evaluation.rows])
    rows = [[f"{task}, {metric}" if metric else task, *row] for task, metric, *row in cells]
    table = Table(["", *heads], rows, [False, *[True] * len(heads)]).html()
    note = (
        "In percent, ± the standard deviation over seeds. Published scores marked (test) are of "
        "the test sets, all others of the dev sets."
    )
    published = evaluation.content.get("published")
    sources = dict(published) if isinstance(published, Mapping) else {}
    named = "; ".join(f"{name}: {source}" for name, source in sources.items())
    parts = [
        table,
        fragments.note(note),
        fragments.note(named),
        *(_task(name, of_task) for name, of_task in evaluation.content["tasks"].items()),
    ]
    return "".join(parts)


def _task(name: str, content: Any) -> str:
    """Return the scores of a task, folded; "" if they cannot be read."""
    rows = content.get("rows") if isinstance(content, Mapping) else None
    if not isinstance(rows, list) or not rows or not all(isinstance(row, dict) for row in rows):
        return ""
    evaluation = SavedEvaluation(name, name, "", "", tuple(rows), content=content)
    if not tuning.metrics(evaluation):
        return ""
    return fragments.folded(name, tuning.section(evaluation))
