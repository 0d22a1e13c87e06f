"""The plot of what fine-tuning changed: weights and states by layer, the loss around them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib
import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullFormatter

from foreword import figures

MARKERS = "os^Dv*PXhp"


def plot_drift(content: Mapping[str, Any]) -> figures.Rendered:
    """Plot the result of `foreword drift` as PNG."""
    has_plane = "plane" in content
    with matplotlib.rc_context(figures.STYLE):
        figure = Figure(figsize=(10, 8) if has_plane else (12, 4), layout="constrained")
        panels = figure.subplots(*((2, 2) if has_plane else (1, 3))).ravel()
        _plot_layers(panels[0], content, "distances", "distance")
        panels[0].set(ylabel="|end - start| / |start|", title="How far the weights moved")
        _plot_layers(panels[1], content, "states", "cka")
        panels[1].set(ylabel="linear CKA", title="How alike states are before and after")
        _plot_line(panels[2], content)
        if has_plane:
            _plot_plane(panels[3], content)
        for axes in panels[:3]:
            axes.grid(alpha=0.3)
        figure.legend(
            *panels[2].get_legend_handles_labels(),
            loc="outside lower center",
            ncols=2,
            frameon=False,
        )
        return figures.render(figure)


def _models(content: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    rows: Sequence[Mapping[str, Any]] = content["rows"]
    return list(rows)


def _style(number: int) -> dict[str, Any]:
    return {"color": f"C{number % 10}", "marker": MARKERS[number % len(MARKERS)]}


def _plot_layers(axes: Any, content: Mapping[str, Any], part: str, value: str) -> None:
    """Plot a figure by layer, a line for each model."""
    rows = [row for row in content[part] if row["layer"] not in ("all", "head")]
    layers = list(dict.fromkeys(row["layer"] for row in rows))
    for number, model in enumerate(_models(content)):
        model_rows = [row for row in rows if row["model"] == model["model"]]
        at = [layers.index(row["layer"]) for row in model_rows]
        axes.plot(at, [row[value] for row in model_rows], **_style(number))
    axes.set_xticks(range(len(layers)), [str(layer).removeprefix("layer ") for layer in layers])
    axes.set_xlabel("layer")


def _plot_line(axes: Any, content: Mapping[str, Any]) -> None:
    """Plot the loss on the line from start to end, and past both."""
    for number, model in enumerate(_models(content)):
        model_rows = [row for row in content["line"] if row["model"] == model["model"]]
        label = f"{model['model']} ({model['start']}): curvature {model['largest eigenvalue']:.3g}"
        x, loss = ([row[key] for row in model_rows] for key in ("x", "loss"))
        axes.plot(x, loss, label=label, markersize=4, **_style(number))
    for place in (0, 1):
        axes.axvline(place, color="gray", linestyle="--", linewidth=1)
    axes.set(
        xlabel="0: start with the tuned head, 1: tuned",
        ylabel="loss",
        yscale="log",
        title="The loss on the line from start to end",
    )
    axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.yaxis.set_major_formatter(lambda loss, _: f"{loss:.3g}")
    axes.yaxis.set_minor_formatter(NullFormatter())


def _plot_plane(axes: Any, content: Mapping[str, Any]) -> None:
    """Plot the contours of the loss on the plane of three weights."""
    cells = content["plane"]
    xs, ys = (sorted({cell[key] for cell in cells}) for key in ("x", "y"))
    losses = np.array([cell["loss"] for cell in cells]).reshape(len(ys), len(xs))
    logs = np.log10(np.maximum(losses, 1e-6))
    axes.contourf(xs, ys, logs, levels=14, cmap="viridis")
    lines = axes.contour(xs, ys, logs, 14, colors="white", linewidths=0.4, linestyles="solid")
    axes.clabel(lines, fmt=lambda level: f"{10**level:.2g}", fontsize=6)
    first, second = _models(content)[:2]
    places = {"start": (0, 0), first["model"]: (1, 0), second["model"]: (0, 1)}
    for name, (x, y) in places.items():
        axes.plot(x, y, "o", color="white", markeredgecolor="black", markersize=5)
        axes.annotate(name, (x, y), (4, 4), textcoords="offset points", color="white", fontsize=8)
    axes.set(
        xlabel=f"towards {first['model']}",
        ylabel=f"towards {second['model']}",
        title="The loss on the plane of the three",
    )
