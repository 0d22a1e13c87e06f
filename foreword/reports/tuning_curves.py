"""What fine-tuning did epoch by epoch, and which labels it confused."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from foreword.reports import fragments
from foreword.reports.charts import CELLS, Chart, Line, heat
from foreword.reports.folder import Record, SavedEvaluation, number
from foreword.reports.meaning import SCRATCH
from foreword.reports.tables import Table
from foreword.tuning.scores import metric_name

MOST_LABELS = 12  # of a matrix that can be read; with more, the most frequent mistakes are listed
MISTAKES = 15
LONGEST_LABEL = 24  # characters


def curves(evaluation: SavedEvaluation, metric: str) -> str:
    """Return plots of the score and of the training loss by epoch; "" for a single epoch.

    Each seed is a faint line, their mean a line with dots.

    Args:
        evaluation: the scores of fine-tuning.
        metric: the score.
    """
    epochs = evaluation.content.get("epochs")
    rows = [row for row in epochs if isinstance(row, dict)] if isinstance(epochs, list) else []
    if max((number(row, "epoch") for row in rows), default=0) < 2:
        return ""
    name = metric_name(metric)
    columns = (
        (metric, f"{name[:1].upper()}{name[1:]} on the dev examples by epoch"),
        ("train_loss", "Training loss by epoch, a mean over the epoch"),
    )
    return fragments.side_by_side(_curve(rows, column, caption) for column, caption in columns)


def _curve(rows: Sequence[Record], column: str, caption: str) -> str:
    """Return a plot of a column by epoch with its caption; "" if it has no number."""
    variants = list(dict.fromkeys((str(r.get("start")), str(r.get("strategy"))) for r in rows))
    lines = []
    for which, variant in enumerate(variants):
        colour = _colour(which, variant[0])
        variant_rows = [r for r in rows if (str(r.get("start")), str(r.get("strategy"))) == variant]
        variant_rows = [row for row in variant_rows if not math.isnan(number(row, column))]
        seeds = list(dict.fromkeys(row.get("seed") for row in variant_rows))
        for seed in seeds if len(seeds) > 1 else ():
            points = [row for row in variant_rows if row.get("seed") == seed]
            lines.append(_line(points, column, "", colour, "faint"))
        # The mean of the seeds that came as far.
        by_epoch: dict[float, list[float]] = {}
        for row in variant_rows:
            by_epoch.setdefault(number(row, "epoch"), []).append(number(row, column))
        if by_epoch:
            label = variant[0] if variant[1] == "full" else ", ".join(variant)
            means = [float(np.mean(by_epoch[epoch])) for epoch in sorted(by_epoch)]
            lines.append(Line(label, sorted(by_epoch), means, colour, "dots"))
    return Chart(caption, lines, "epoch").html() if lines else ""


def _colour(which: int, start: str) -> str:
    """Return the colour of a variant, which the chart of the scores has too where it can."""
    if start == SCRATCH:
        return "second"
    return f"cell{(which + 1) % CELLS}" if which else "accent"


def _line(points: Sequence[Record], column: str, label: str, colour: str, style: str) -> Line:
    x = [number(row, "epoch") for row in points]
    return Line(label, x, [number(row, column) for row in points], colour, style)


def confusion(evaluation: SavedEvaluation) -> str:
    """Return the confusion matrix, or of many labels the most frequent mistakes; "" without."""
    if by_label := evaluation.content.get("by_label"):
        names = ["f1", "precision", "recall"]
        cells = [[str(r["label"]), *(f"{number(r, n):.3f}" for n in names)] for r in by_label]
        return Table(["label", "F1", *names[1:]], cells, [False, True, True, True]).html()
    labels, counts = _matrix(evaluation)
    if not labels:
        return ""
    if len(labels) > MOST_LABELS:
        return _mistakes(labels, counts)
    caption = "Labels (rows) and answers (columns): the share of each label, over all seeds"
    names = [_short(label, LONGEST_LABEL) for label in labels]
    shares = [[count / (sum(row) or 1) for count in row] for row in counts]
    return fragments.side_by_side([heat(caption, names, shares)])


def _mistakes(labels: Sequence[str], counts: Sequence[Sequence[int]]) -> str:
    mistakes = [
        (counts[n][m], label, labels[m])
        for n, label in enumerate(labels)
        for m in range(len(labels))
        if m != n and counts[n][m]
    ]
    rows = []
    for count, label, answer in sorted(mistakes, key=lambda mistake: -mistake[0])[:MISTAKES]:
        share = count / sum(counts[labels.index(label)])
        rows.append([label, answer, f"{count:,}", f"{100 * share:.0f}%"])
    if not rows:
        return ""
    heads = ["label", "answered", "times, over all seeds", "share of the label"]
    return (
        "<h3>The most frequent mistakes</h3>"
        + Table(heads, rows, [False, False, True, True]).html()
    )


def _matrix(evaluation: SavedEvaluation) -> tuple[list[str], list[list[int]]]:
    """Return the labels and the counts; empty if there are none, or they do not fit."""
    labels, counts = evaluation.content.get("labels"), evaluation.content.get("confusion")
    if not isinstance(labels, list) or not isinstance(counts, list) or len(labels) != len(counts):
        return [], []
    for row in counts:
        is_row = isinstance(row, list) and len(row) == len(labels)
        if not is_row or not all(isinstance(count, int) and count >= 0 for count in row):
            return [], []
    return [str(label) for label in labels], counts


def _short(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[: most - 1]}…"
