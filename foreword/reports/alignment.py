"""The plot of an alignment: the darker a cell, the more a target word attends to a source word."""

from __future__ import annotations

import matplotlib
from matplotlib.figure import Figure

from foreword import figures
from foreword.evaluation.alignment import Alignment

CELL = 0.32  # inches


def plot_alignment(aligned: Alignment) -> figures.Rendered:
    """Plot an alignment as PNG: source words at the top, target words on the left."""
    rows, columns = aligned.weights.shape
    size = (max(3.2, 1.6 + CELL * columns), max(2.6, 1.6 + CELL * rows))
    with matplotlib.rc_context(figures.STYLE):
        figure = Figure(figsize=size, layout="constrained")
        axes = figure.add_subplot()
        axes.imshow(aligned.weights, cmap="Blues", vmin=0.0, vmax=1.0, aspect="equal")
        axes.set_xticks(
            range(columns), aligned.source, rotation=60, ha="left", rotation_mode="anchor"
        )
        axes.set_yticks(range(rows), aligned.target)
        axes.tick_params(length=0, top=True, labeltop=True, bottom=False, labelbottom=False)
        axes.set_xticks([n - 0.5 for n in range(1, columns)], minor=True)
        axes.set_yticks([n - 0.5 for n in range(1, rows)], minor=True)
        axes.grid(which="minor", color="#e5e6e3", linewidth=0.6)
        axes.tick_params(which="minor", length=0, top=False)
        for side in axes.spines.values():
            side.set_color("#c9cbc7")
        axes.set_xlabel(aligned.what, color="#656d7a")
        return figures.render(figure)
