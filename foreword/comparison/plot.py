"""The plot of a comparison: held-out loss by budget spent, and scores with intervals."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import matplotlib
from matplotlib import colormaps
from matplotlib.figure import Figure

from foreword import figures
from foreword.comparison.jobs import BAG_OF_WORDS
from foreword.comparison.probing import GridText, texts_of
from foreword.comparison.results import Results
from foreword.comparison.sweep import describe
from foreword.disk import atomic

COLUMNS = 5  # at most, so that many measures are read on a page
WIDTH_OF_LOSSES = 2  # columns
BAR_WIDTH = 0.38  # of two bars side by side
LINE = 0.21  # inches of the legend, for each cell
MOST_INSIDE = 6  # curves; with more, the legend would hide some and moves outside
LOG_SCALE_RATIO = 100  # largest / smallest amount spent, above which the axis is logarithmic


def write_plot(results: Results) -> str:
    """Write plot.png, unless no run is finished.

    Returns:
        A note on characters that no font of the machine has, or "".

    Raises:
        UserError: the disk is full or the folder cannot be written.
    """
    if not results.runs:
        return ""
    grid = results.comparison.grid
    texts = texts_of(grid.sources)
    measured = [text for text in texts if results.metric(text)]
    panels: list[Any] = [measured] if measured else []  # all texts in one, each task in its own
    panels += [
        measure for measure in grid.measures if measure not in texts and results.metric(measure)
    ]
    with matplotlib.rc_context(figures.STYLE):
        columns = min(WIDTH_OF_LOSSES + len(panels), COLUMNS)
        rows = math.ceil((WIDTH_OF_LOSSES + len(panels)) / columns)
        heights = [max(4.6, LINE * len(grid.cells) + 1), *[4.6] * (rows - 1)]
        figure = Figure(figsize=(3.6 * columns, sum(heights)), layout="constrained")
        cells = figure.add_gridspec(rows, columns, height_ratios=heights)
        _plot_losses(figure.add_subplot(cells[0, :WIDTH_OF_LOSSES]), results)
        for number, panel in enumerate(panels, WIDTH_OF_LOSSES):
            axis = figure.add_subplot(cells[divmod(number, columns)])
            if isinstance(panel, list):
                _plot_texts(axis, results, panel)
            else:
                _plot_scores(axis, results, panel)
        rendered = figures.render(figure)
    atomic.write_bytes(results.comparison.out / "plot.png", rendered.data)
    return rendered.note


def _plot_losses(axis: Any, results: Results) -> None:
    """Plot one curve per run, in one colour per cell."""
    for number, cell in enumerate(results.comparison.grid.cells):
        best = results.best(cell)
        label = cell.name if best is None else f"{cell.name}, {describe(best.values)}"
        for run in results.runs:
            if run.cell == cell.name and run.curve:
                spent, losses = zip(*run.curve, strict=True)
                axis.plot(spent, losses, "o-", color=_colour(number), label=label, markersize=3)
                label = "_"  # not in the legend
                if len(run.curve) == 1:  # offline training has one point: show it as a level
                    axis.axhline(losses[0], color=_colour(number), linestyle=":", linewidth=1)
    is_one = results.is_one_objective
    what = "sources" if results.comparison.grid.sources else "objective"
    axis.set(
        xlabel=results.axis.label,
        ylabel=f"held-out loss, nats per {'token' if is_one else 'prediction'}",
        title="Pretraining" if is_one else f"Pretraining; each its own {what}",
    )
    amounts = [spent for run in results.runs for spent, _ in run.curve if spent > 0]
    if amounts and max(amounts) > LOG_SCALE_RATIO * min(amounts):
        axis.set_xscale("log")
    axis.grid(alpha=0.3)
    if not axis.get_legend_handles_labels()[0]:
        return  # no run has a curve
    if len(results.comparison.grid.cells) > MOST_INSIDE:
        axis.legend(frameon=False, loc="upper left", bbox_to_anchor=(1.0, 1.0))
    else:
        axis.legend(frameon=False)


def _plot_texts(axis: Any, results: Results, texts: Sequence[GridText]) -> None:
    """Plot a row of points for each text: the loss of each cell on it, in the cell's colour."""
    cells = results.comparison.grid.cells
    for number, cell in enumerate(cells):
        for row, text in enumerate(texts):
            interval = results.task_interval(cell.name, text, "pretrained")
            if interval is not None:
                axis.errorbar(
                    interval.mean,
                    row + (number - (len(cells) - 1) / 2) * BAR_WIDTH / len(cells),
                    xerr=None if math.isnan(interval.half_width) else interval.half_width,
                    fmt="o",
                    color=_colour(number),
                    capsize=2,
                )
    axis.set_yticks(range(len(texts)), [text.source for text in texts])
    axis.set_ylim(len(texts) - 0.5, -0.5)
    axis.grid(alpha=0.3)
    axis.set(xlabel="nats per prediction", title="Held-out loss by source")


def _plot_scores(axis: Any, results: Results, task: Any) -> None:
    """Plot two bars per cell, pretrained and from scratch, and the chance baseline as a line."""
    cells = results.comparison.grid.cells
    starts = ("pretrained", "from scratch") if task.scratch else ("pretrained",)
    for index, start in enumerate(starts):
        offset = (index - (len(starts) - 1) / 2) * BAR_WIDTH
        for number, cell in enumerate(cells):
            interval = results.task_interval(cell.name, task, start)
            if interval is None:
                continue
            axis.barh(
                number + offset,
                interval.mean,
                BAR_WIDTH,
                xerr=None if math.isnan(interval.half_width) else interval.half_width,
                color=_colour(number),
                alpha=0.35 if index else 0.9,
                ecolor="black",
                capsize=2,
            )
    names = dict.fromkeys(s.start for s in results.scores if s.task == task.name and not s.cell)
    for name in names:
        if (baseline := results.task_interval("", task, name)) is not None:
            style = ":" if name == BAG_OF_WORDS else "--"
            axis.axvline(baseline.mean, color="gray", linestyle=style)
    axis.set_yticks(range(len(cells)), [cell.name for cell in cells])
    axis.set_ylim(len(cells) - 0.5, -0.5)
    legend = "\npale: random weights" if task.scratch else ""
    legend += "; dotted: words" if BAG_OF_WORDS in names else ""
    axis.set(xlabel=results.metric(task), title=f"{task.name}{legend}")


def _colour(number: int) -> Any:
    return colormaps["tab20"]((2 * number + number // 10) % 20)  # the ten saturated ones first
