"""What every pretrained model of a comparison is measured by: probes, and the sources' texts."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from foreword.data.prepared_text import PreparedText
from foreword.errors import UserError
from foreword.evaluation.heldout import on_shards
from foreword.probes._contract import Probe, ProbedModel
from foreword.probes._random_weights import with_random_weights
from foreword.runs.trained_model import TrainedModel
from foreword.settings.kinds import name_of

MODEL, RANDOM = "model", "random weights"


@dataclass(frozen=True)
class GridProbe:
    """A probe with its name in tables and plots.

    Attributes:
        name: the name.
        probe: a kind in `probes/`.
    """

    metric: ClassVar[str] = ""  # known once it was measured
    scratch: ClassVar[bool] = True  # random weights stand beside the model

    name: str
    probe: Probe


@dataclass(frozen=True)
class GridText:
    """The held-out text of a source, on which the loss of every cell is measured.

    Attributes:
        name: the name in tables and plots.
        source: name of the source.
    """

    metric: ClassVar[str] = ""
    scratch: ClassVar[bool] = False

    name: str
    source: str


def texts_of(sources: Iterable[str]) -> tuple[GridText, ...]:
    """Return the held-out texts of sources with their names."""
    return tuple(GridText(f"held-out {source}", source) for source in sources)


def named(probes: Sequence[Probe]) -> tuple[GridProbe, ...]:
    """Return the probes with their names: the kind, and a number from the second of a kind on."""
    names: list[str] = []
    for probe in probes:
        name = name_of(probe).replace("_", " ")
        number = 1 + sum(other.split(" #")[0] == name for other in names)
        names.append(name if number == 1 else f"{name} #{number}")
    return tuple(GridProbe(name, probe) for name, probe in zip(names, probes, strict=True))


def measure_loss(text: GridText, shards: str, trained: TrainedModel) -> dict[str, Any]:
    """Return the loss of a model on the held-out text of a source, in the form of `measure`.

    Args:
        text: the text.
        shards: folder of the source's token shards.
        trained: the model.

    Raises:
        UserError: too little of the source is held out for a row.
    """
    prepared, rows = PreparedText.load(shards, verify=False), trained.recipe.train.heldout_rows
    per_token = prepared.bytes_per_token(ends=trained.recipe.ends_texts)
    heldout = on_shards(trained, (prepared.heldout, per_token), rows)
    return {
        "name": text.name,
        "runs": {MODEL: str(trained.source)},
        "task": f"the loss on {text.name}",
        "rows": [heldout.as_row()],
        "measure": "loss",
        "scores": {MODEL: heldout.loss},
        "bits_per_byte": heldout.bits_per_byte,
        "batches": heldout.batches,
    }


def measure(probe: GridProbe, trained: TrainedModel) -> dict[str, Any]:
    """Return the result of a probe of a model, as in its run's `evaluations`.

    `scores` holds the figure of the model and, unless it has no weights, that of random ones. A
    count-based model that does not support the probe has none, and a note says why.

    Raises:
        UserError: a network does not support the probe, its files cannot be read, or it has no
            single figure.
    """
    models = [ProbedModel(MODEL, trained)]
    if not trained.is_count_based:
        models.append(ProbedModel(RANDOM, with_random_weights(trained)))
    content = {"name": probe.name, "runs": {MODEL: str(trained.source)}, "command": ""}
    try:
        finding = probe.probe.measure(models)
    except UserError as error:
        if not trained.is_count_based:
            raise
        empty: dict[str, Any] = {"task": probe.name, "rows": [], "details": [], "scores": {}}
        return {**content, **empty, "measure": "", "notes": [f"not applicable: {error}"]}
    if not finding.measure:
        raise UserError(f"probes: {name_of(probe.probe)} has no single figure for a table")
    return {
        **content,
        "task": finding.title,
        "rows": list(finding.rows),
        "details": list(finding.details),
        "notes": list(finding.notes),
        "measure": finding.measure,
        "scores": dict(finding.scores),
    }
