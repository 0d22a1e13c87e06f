"""The probes of a comparison: each measures every pretrained model, beside random weights."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from foreword.errors import UserError
from foreword.evaluation.prompting import PromptedModel
from foreword.kinds import name_of
from foreword.probes._contract import Probe, ProbedModel
from foreword.probes._random_weights import with_random_weights
from foreword.runs.trained_model import TrainedModel

MODEL, RANDOM = "model", "random weights"


@dataclass(frozen=True)
class GridProbe:
    """A probe with its name in tables and plots.

    Attributes:
        name: the name.
        probe: a kind in `probes/`.
        metric: what it measures, known once it has.
        scratch: whether random weights stand beside the model.
    """

    name: str
    probe: Probe
    metric: str = ""
    scratch: bool = True


def named(probes: Sequence[Probe]) -> tuple[GridProbe, ...]:
    """Return the probes with their names: the kind, and a number from the second of a kind on."""
    names: list[str] = []
    for probe in probes:
        name = name_of(probe).replace("_", " ")
        number = 1 + sum(other.split(" #")[0] == name for other in names)
        names.append(name if number == 1 else f"{name} #{number}")
    return tuple(GridProbe(*each) for each in zip(names, probes, strict=True))


def measure(probe: GridProbe, trained: TrainedModel) -> dict[str, Any]:
    """Return the result of a probe of a model, as in its run's `evaluations`.

    `scores` holds the figure of the model and, unless it has no weights, that of random ones. A
    count-based model that does not support the probe has none, and a note says why.

    Raises:
        UserError: a network does not support the probe, its files cannot be read, or it has no
            single figure.
    """
    prompted = PromptedModel.of(trained)
    models = [ProbedModel(MODEL, prompted)]
    if not prompted.is_count_based:
        models.append(ProbedModel(RANDOM, with_random_weights(prompted)))
    content = {"name": probe.name, "runs": {MODEL: str(trained.source)}, "command": ""}
    try:
        found = probe.probe.measure(models)
    except UserError as error:
        if not prompted.is_count_based:
            raise
        empty: dict[str, Any] = {"task": probe.name, "rows": [], "details": [], "scores": {}}
        return {**content, **empty, "measure": "", "notes": [f"not applicable: {error}"]}
    if not found.measure:
        raise UserError(f"probes: {name_of(probe.probe)} has no single figure for a table")
    return {
        **content,
        "task": found.title,
        "rows": list(found.rows),
        "details": list(found.details),
        "notes": list(found.notes),
        "measure": found.measure,
        "scores": dict(found.scores),
    }
