"""`foreword probe`: examine the inside of models, side by side."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from foreword.cli import console
from foreword.cli._model_options import Device, Json, Quiet, open_model
from foreword.cli._options import PathText
from foreword.cli._reading import Reading

if TYPE_CHECKING:
    from foreword.figures import Rendered
    from foreword.probes._contract import Finding, ProbedModel


def probe(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN...", help="Run folders.")],
    kind: Annotated[
        str, typer.Option(help="Probe: minimal_pairs, tagging, ...; 'foreword show probes'.")
    ],
    reading: Reading,
    settings: Annotated[
        list[str] | None, typer.Option("--set", help="A setting of the probe: layer=0.")
    ] = None,
    data: Annotated[
        list[PathText] | None, typer.Option(help="Text to use; default: each run's held-out text.")
    ] = None,
    untrained: Annotated[
        bool, typer.Option("--untrained", help="Also probe each model with random weights.")
    ] = False,
    out: Annotated[
        Path | None, typer.Option(help="Folder for the result; default: RUN/evaluations.")
    ] = None,
    device: Device = "auto",
    quiet: Quiet = False,
    json: Json = False,
) -> None:
    """Examine one or more models with a probe: one table and one plot for all.

    The figures are saved as probe-KIND.json, the plot as probe-KIND.png.
    """
    from foreword import atomic, config
    from foreword.api.progress import progress_of
    from foreword.errors import UserError
    from foreword.kinds import Part

    table = {"kind": kind, **config.assign({}, settings or [])}
    built = config.build_kind(Part("probes"), table, "probe")
    if data and not built.reads_text:
        raise UserError(f"--data: '{kind}' brings its own sentences; see its settings")
    if not data:
        reading.refuse("requires --data")
    models = _open_models(runs, reading, tuple(data or ()), device, untrained=untrained)
    folders = (
        [out] if out else list(dict.fromkeys(one.trained.run / "evaluations" for one in models))
    )
    for folder in folders:
        remedy = atomic.OTHER_OUT if out else atomic.MOVE_AWAY
        atomic.require_writable(folder, is_folder=True, remedy=remedy)
    with progress_of(not quiet) as shown:
        shown.stage(f"probing {', '.join(one.label for one in models)}")
        finding = built.measure(models)
    result = _result(kind, finding, models)
    plot = _plot(finding)
    result["notes"] += [plot.note] if plot.note else []
    for folder in folders:
        _save(folder, result, plot)
    if json:
        console.emit(result)
        return
    _show(finding)
    for note in result["notes"]:
        console.say(note)
    for folder in folders:
        console.say(f"saved to {folder / result['name']}.json and .png")


def _open_models(
    runs: Sequence[Path], reading: Reading, texts: tuple[str, ...], device: str, *, untrained: bool
) -> list[ProbedModel]:
    """Return the models, each with a unique name."""
    from foreword.errors import UserError
    from foreword.probes._contract import ProbedModel
    from foreword.probes._random_weights import with_random_weights

    runs = list(dict.fromkeys(runs))
    names = [run.absolute().name for run in runs]
    models = []
    for run, name in zip(runs, names, strict=True):
        trained = reading.of(open_model(run, device).trained)
        name = name if names.count(name) == 1 else str(run)
        models.append(ProbedModel(name, trained, texts))
        if untrained:
            if trained.is_count_based:
                raise UserError(
                    f"--untrained: {run} is a count-based model without weights to randomise"
                )
            models.append(ProbedModel(f"{name}, untrained", with_random_weights(trained), texts))
    return models


def _result(kind: str, finding: Finding, models: Sequence[ProbedModel]) -> dict[str, Any]:
    from foreword.runs.provenance import command

    return {
        "name": f"probe-{kind}",
        "task": finding.title,
        "runs": {one.label: str(one.trained.run) for one in models},
        "rows": list(finding.rows),
        "details": list(finding.details),
        "notes": list(finding.notes),
        "command": command(),
    }


def _plot(finding: Finding) -> Rendered:
    import matplotlib
    from matplotlib.figure import Figure

    from foreword import figures

    with matplotlib.rc_context(figures.STYLE):
        figure = Figure(layout="constrained")
        finding.plot(figure)
        return figures.render(figure, "png")


def _save(folder: Path, result: dict[str, Any], plot: Rendered) -> None:
    """Write the figures and the plot."""
    from foreword import atomic, stored

    text = stored.to_json(result, indent=1) + "\n"
    atomic.write_text(folder / f"{result['name']}.json", text)
    atomic.write_bytes(folder / f"{result['name']}.png", plot.data)


def _show(finding: Finding) -> None:
    rows = [list(row.values()) for row in finding.rows]
    console.table("", list(finding.rows[0]), rows)
