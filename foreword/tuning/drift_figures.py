"""The figures of what fine-tuning changed, and of how flat the loss is around the tuned weights."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from foreword.tuning.curvature import CURVED, largest_eigenvalue
from foreword.tuning.drift import WeightChange, distances, line, mean_loss, plane, similarities
from foreword.tuning.scores import metric_name

LINE = tuple(np.linspace(-0.5, 2.0, 21).tolist())  # points of a line: 0 the start, 1 the end
PLANE = tuple(np.linspace(-0.5, 1.5, 11).tolist())  # points of a plane along each axis


def steps(changes: Sequence[WeightChange]) -> int:
    """Return how many steps `measured` takes."""
    return len(changes) * (len(LINE) + 3) + (len(changes) > 1) * len(PLANE)


def measured(changes: Sequence[WeightChange], step: Callable[[str], None]) -> dict[str, Any]:
    """Return all figures of changes.

    Args:
        changes: tuned networks, each with its start; the plane is that of the first two.
        step: called with what comes next, `steps(changes)` times.
    """
    rows, layers, states, lines = [], [], [], []
    for change in changes:
        labels = {"model": change.name, "start": change.start_name}
        step(f"{change.name}: weights")
        layer_distances = distances(change)
        layers += [
            {**labels, "layer": layer, "distance": d} for layer, d in layer_distances.items()
        ]
        step(f"{change.name}: states")
        layer_cka = similarities(change)
        states += [{**labels, "layer": layer, "cka": cka} for layer, cka in enumerate(layer_cka)]
        losses = []
        for x in LINE:
            step(f"{change.name}: line")
            losses += line(change, [x])
        lines += [
            {**labels, "x": x, "loss": loss.value, loss.metric: loss.score}
            for x, loss in zip(LINE, losses, strict=True)
        ]
        step(f"{change.name}: curvature")
        numbers = np.arange(min(CURVED, len(change.examples)))
        parameters = [p for p in change.network.parameters() if p.requires_grad]
        curvature = largest_eigenvalue(lambda: mean_loss(change, numbers), parameters)  # noqa: B023
        loss_at = dict(zip(LINE, losses, strict=True))
        rows.append(
            {
                **labels,
                "distance": layer_distances["all"],
                "CKA, last layer": layer_cka[-1] if layer_cka else None,
                "loss at start": loss_at[0.0].value,
                "loss": loss_at[1.0].value,
                metric_name(loss_at[1.0].metric): loss_at[1.0].score,
                "largest eigenvalue": curvature,
            }
        )
    content = {"rows": rows, "distances": layers, "states": states, "line": lines}
    if len(changes) > 1:
        content["plane"] = []
        for y in PLANE:
            step("plane")
            losses = plane(changes[0], changes[1], PLANE, [y])[0]
            content["plane"] += [
                {"x": x, "y": y, "loss": float(loss)} for x, loss in zip(PLANE, losses, strict=True)
            ]
    return content | {"notes": _notes(changes)}


def _notes(changes: Sequence[WeightChange]) -> list[str]:
    count = len(changes[0].examples)
    return [
        "distance: |end - start| / |start| of all weights below the head; CKA: of the states "
        "before and after, 1 if they are the same but for rotation and scale",
        f"loss: mean of {count:,} labelled examples; at the start with the tuned head",
        f"largest eigenvalue: of the Hessian of the loss at the tuned weights, on the first "
        f"{min(CURVED, count):,} examples; the smaller, the flatter",
    ]
