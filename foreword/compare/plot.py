"""Results as a picture: held-out losses against what was spent, and scores with intervals."""

from __future__ import annotations

import math
from typing import Any

from matplotlib import colormaps
from matplotlib.figure import Figure

from foreword import atomic
from foreword.compare.results import Results

WIDTH = 0.38  # of a bar; two stand beside each other
MOST_INSIDE = 6  # curves whose names would hide some of them
LOG_SCALE_RATIO = 100  # times the least that is spent, and the axis is logarithmic


def write_plot(results: Results) -> None:
    """Writes plot.png; nothing where nothing is done.

    Raises:
        UserError: the disk is full or the folder cannot be written.
    """
    tasks = [task for task in results.comparison.grid.tasks if results.metric(task)]
    if not results.runs:
        return
    count = 1 + len(tasks)
    figure = Figure(figsize=(6.5 + 3.6 * len(tasks), 4.6), layout="constrained")
    axes = figure.subplots(1, count, width_ratios=[6.5, *[3.6] * len(tasks)], squeeze=False)[0]
    _plot_losses(axes[0], results)
    for axis, task in zip(axes[1:], tasks, strict=True):
        _plot_scores(axis, results, task)
    path = results.comparison.out / "plot.png"
    with atomic.writing(path, "wb") as file:
        figure.savefig(file, format="png", dpi=150, metadata={"Software": None})


def _plot_losses(axis: Any, results: Results) -> None:
    """A curve per run, a colour per cell."""
    for number, cell in enumerate(results.comparison.grid.cells):
        label = cell.name
        for run in results.runs:
            if run.cell == cell.name and run.curve:
                spent, losses = zip(*run.curve, strict=True)
                axis.plot(spent, losses, "o-", color=_colour(number), label=label, markersize=3)
                label = "_"
                if len(run.curve) == 1:  # counts: there is nothing more to come
                    axis.axhline(losses[0], color=_colour(number), linestyle=":", linewidth=1)
    is_one = results.is_one_objective
    axis.set(
        xlabel=results.axis.label,
        ylabel=f"held-out loss, nats per {'token' if is_one else 'prediction'}",
        title="Pretraining" if is_one else "Pretraining; each its own objective",
    )
    places = [spent for run in results.runs for spent, _ in run.curve if spent > 0]
    if places and max(places) > LOG_SCALE_RATIO * min(places):
        axis.set_xscale("log")
    axis.grid(alpha=0.3)
    if len(results.comparison.grid.cells) > MOST_INSIDE:
        axis.legend(frameon=False, loc="upper left", bbox_to_anchor=(1.0, 1.0), fontsize="small")
    else:
        axis.legend(frameon=False)


def _plot_scores(axis: Any, results: Results, task: Any) -> None:
    """Two bars per cell, and the guess that reads nothing as a line."""
    cells = results.comparison.grid.cells
    starts = ("pretrained", "from scratch") if task.scratch else ("pretrained",)
    for place, start in enumerate(starts):
        shift = (place - (len(starts) - 1) / 2) * WIDTH
        for number, cell in enumerate(cells):
            found = results.task_interval(cell.name, task, start)
            if found is None:
                continue
            axis.barh(
                number + shift,
                found.mean,
                WIDTH,
                xerr=None if math.isnan(found.half_width) else found.half_width,
                color=_colour(number),
                alpha=0.35 if place else 0.9,
                ecolor="black",
                capsize=2,
            )
    for chance_loss in results.scores:
        if chance_loss.task == task.name and not chance_loss.cell:
            axis.axvline(chance_loss.scores[results.metric(task)], color="gray", linestyle="--")
    axis.set_yticks(range(len(cells)), [cell.name for cell in cells])
    axis.invert_yaxis()
    pale = "\npale: from scratch" if task.scratch else ""
    axis.set(xlabel=results.metric(task), title=f"{task.name}{pale}")


def _colour(number: int) -> Any:
    return colormaps["tab20"]((2 * number + number // 10) % 20)  # the ten strong ones first
