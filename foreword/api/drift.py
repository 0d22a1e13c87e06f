"""`foreword drift`: what fine-tuning changed, and how flat the loss is around the tuned weights."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from foreword.api._arguments import distinct_names
from foreword.api._examples import tuned_examples
from foreword.api.progress import ProgressDisplay, progress_of
from foreword.disk import atomic
from foreword.errors import UserError
from foreword.runs.provenance import command
from foreword.runs.trained_model import is_run
from foreword.tables.examples import Labelled
from foreword.tuning.curvature import largest_eigenvalue
from foreword.tuning.drift import (
    TunedWay,
    distances,
    line,
    mean_loss,
    plane,
    similarities,
    way_of,
)
from foreword.tuning.result import metric_name
from foreword.tuning.tuned_start import open_start
from foreword.tuning.written import open_tuned

LINE = tuple(np.linspace(-0.5, 2.0, 21).tolist())  # points of a line: 0 the start, 1 the end
PLANE = tuple(np.linspace(-0.5, 1.5, 11).tolist())  # points of a plane along each axis
CURVED = 64  # examples that the curvature is measured on


@dataclass(frozen=True)
class DriftResult:
    """What fine-tuning changed.

    Attributes:
        folder: where the result and its plot belong: the run's `evaluations`.
        content: the result as its file has it.
    """

    folder: Path
    content: dict[str, Any]


def drift(
    tuned: Sequence[Path],
    dev: Path | None,
    run: Path | None,
    *,
    examples: int,
    device: str,
    progress: bool | ProgressDisplay,
) -> DriftResult:
    """Compare tuned models with the weights that they started from.

    Args:
        tuned: folders that `tune` wrote, of one run; the plane is that of the first two.
        dev: labelled examples that losses are measured on; default: those it was scored on.
        run: what they were tuned from; default: the run whose `tuned` holds the folder.
        examples: number of examples, evenly spaced; 0 for all.
        device: auto, cpu, cuda or mps.
        progress: whether to show the progress, or what shows it.

    Raises:
        UserError: a folder holds no fine-tuned model or was not tuned from the run, or
            there are no labelled examples.
    """
    folders = list(dict.fromkeys(tuned))
    models = [open_tuned(folder, device) for folder in folders]
    runs = {_run_of(folder, run) for folder in folders}
    if len(runs) > 1:
        raise UserError(f"{', '.join(map(str, folders))}: were tuned from different runs")
    trained = open_start(runs.pop(), device)
    place = trained.run / "evaluations"
    atomic.require_writable(place, is_folder=True, remedy=atomic.MOVE_AWAY)
    read = tuned_examples(models, dev, option="--dev")
    ways = [
        way_of(model, trained, _evenly(part.examples, examples), name)
        for model, part, name in zip(models, read, distinct_names(folders), strict=True)
    ]
    with progress_of(progress) as display:
        for warning in dict.fromkeys(note for part in read for note in part.notes):
            display.warn(warning)
        advance = display.stage("measuring")
        count = len(ways) * (len(LINE) + 3) + (len(ways) > 1) * len(PLANE)
        done = 0

        def step(note: str) -> None:
            nonlocal done
            advance(done, count, note)
            done += 1

        content = _measured(ways, step)
    title = f"What fine-tuning changed: {', '.join(way.name for way in ways)}"
    named = {"name": f"drift-{folders[0].absolute().name}", "title": title, "task": "drift"}
    names = {way.name: str(folder) for way, folder in zip(ways, folders, strict=True)}
    content = {**named, "tuned": names, "run": str(trained.run), **content, "command": command()}
    return DriftResult(place, content)


def _measured(ways: Sequence[TunedWay], step: Callable[[str], None]) -> dict[str, Any]:
    """Return all figures of the ways; `step` is called with what comes next."""
    rows, changes, states, lines = [], [], [], []
    for way in ways:
        labels = {"model": way.name, "start": way.start_name}
        step(f"{way.name}: weights")
        layer_distances = distances(way)
        changes += [
            {**labels, "layer": layer, "distance": d} for layer, d in layer_distances.items()
        ]
        step(f"{way.name}: states")
        layer_cka = similarities(way)
        states += [{**labels, "layer": layer, "cka": cka} for layer, cka in enumerate(layer_cka)]
        losses = []
        for x in LINE:
            step(f"{way.name}: line")
            losses += line(way, [x])
        lines += [
            {**labels, "x": x, "loss": loss.value, loss.metric: loss.score}
            for x, loss in zip(LINE, losses, strict=True)
        ]
        step(f"{way.name}: curvature")
        numbers = np.arange(min(CURVED, len(way.examples)))
        parameters = [p for p in way.network.parameters() if p.requires_grad]
        curvature = largest_eigenvalue(lambda: mean_loss(way, numbers), parameters)  # noqa: B023
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
    content = {"rows": rows, "distances": changes, "states": states, "line": lines}
    if len(ways) > 1:
        content["plane"] = []
        for y in PLANE:
            step("plane")
            losses = plane(ways[0], ways[1], PLANE, [y])[0]
            content["plane"] += [
                {"x": x, "y": y, "loss": float(loss)} for x, loss in zip(PLANE, losses, strict=True)
            ]
    return content | {"notes": _notes(ways)}


def _notes(ways: Sequence[TunedWay]) -> list[str]:
    count = len(ways[0].examples)
    return [
        "distance: |end - start| / |start| of all weights below the head; CKA: of the states "
        "before and after, 1 if they are the same but for rotation and scale",
        f"loss: mean of {count:,} labelled examples; at the start with the tuned head",
        f"largest eigenvalue: of the Hessian of the loss at the tuned weights, on the first "
        f"{min(CURVED, count):,} examples; the smaller, the flatter",
    ]


def _run_of(folder: Path, run: Path | None) -> Path:
    """Return the run that a model was tuned from.

    Raises:
        UserError: it is not known.
    """
    if run is not None:
        return run
    parent = folder.parent.parent if len(folder.parts) > 2 else folder.absolute().parent.parent
    if not is_run(parent):
        raise UserError(f"{folder}: is in no run's 'tuned'; --run names the run it was tuned from")
    return parent


def _evenly(examples: Sequence[Labelled], limit: int) -> Sequence[Labelled]:
    """Return at most `limit` examples, evenly spaced; all for 0."""
    if not 0 < limit < len(examples):
        return examples
    return [examples[n * len(examples) // limit] for n in range(limit)]
