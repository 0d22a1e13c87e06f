"""`foreword probe`: what goes on inside models, side by side."""

from __future__ import annotations

import json as jsons
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from foreword.cli import console
from foreword.cli._model_options import Device, Json, open_model
from foreword.cli._reading import Reading

if TYPE_CHECKING:
    from foreword.probes._contract import Finding, ProbedModel


def probe(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN...", help="Run folders.")],
    kind: Annotated[str, typer.Option(help="gradient_reach, word_in_context, ...")],
    reading: Reading,
    settings: Annotated[
        list[str] | None, typer.Option("--set", help="A setting of the probe: layer=0.")
    ] = None,
    data: Annotated[
        list[str] | None, typer.Option(help="Other text than each run's held-out one.")
    ] = None,
    untrained: Annotated[
        bool, typer.Option("--untrained", help="Beside each run the same with random weights.")
    ] = False,
    out: Annotated[
        Path | None, typer.Option(help="A folder for the result; RUN/evaluations if unsaid.")
    ] = None,
    device: Device = "auto",
    json: Json = False,
) -> None:
    """Look into one model or several with a probe: one table and one plot of all.

    The figures are kept as probe-KIND.json, and the plot as probe-KIND.png.
    """
    from foreword import config
    from foreword.errors import UserError
    from foreword.kinds import Part

    table = {"kind": kind, **config.assign({}, settings or [])}
    asked = config.build_kind(Part("probes"), table, "probe")
    if data and not asked.reads_text:
        raise UserError(f"--data: '{kind}' brings its own sentences; see its settings")
    if not data:
        reading.refuse("goes with --data")
    models = _open_models(runs, reading, tuple(data or ()), device, untrained=untrained)
    with console.progress() as bar:
        bar.stage(f"looking into {', '.join(one.label for one in models)}")
        found = asked.measure(models)
    result = _result(kind, found, models)
    folders = (
        [out] if out else list(dict.fromkeys(one.trained.run / "evaluations" for one in models))
    )
    for folder in folders:
        _keep(folder, result, found)
    if json:
        console.emit(result)
        return
    _show(found)
    for note in found.notes:
        console.say(note)
    for folder in folders:
        console.say(f"kept in {folder / result['name']}.json and .png")


def _open_models(
    runs: Sequence[Path], reading: Reading, texts: tuple[str, ...], device: str, *, untrained: bool
) -> list[ProbedModel]:
    """The models, each with a name of its own."""
    from foreword.errors import UserError
    from foreword.nn.init import initialise
    from foreword.probes._contract import ProbedModel

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
                    f"--untrained: {run} is counts of a text and has no weights to draw"
                )
            model = trained.recipe.build(trained.vocab)
            initialise(model, trained.recipe.train.seed)
            fresh = replace(trained, model=model.to(trained.device).eval())
            models.append(ProbedModel(f"{name}, untrained", fresh, texts))
    return models


def _result(kind: str, found: Finding, models: Sequence[ProbedModel]) -> dict[str, Any]:
    from foreword.runs.provenance import command

    return {
        "name": f"probe-{kind}",
        "task": found.title,
        "runs": {one.label: str(one.trained.run) for one in models},
        "rows": list(found.rows),
        "details": list(found.details),
        "notes": list(found.notes),
        "command": command(),
    }


def _keep(folder: Path, result: dict[str, Any], found: Finding) -> None:
    """Writes the figures and the plot."""
    from matplotlib.figure import Figure

    from foreword import atomic

    text = jsons.dumps(result, indent=1, ensure_ascii=False) + "\n"
    atomic.write_text(folder / f"{result['name']}.json", text)
    figure = Figure(layout="constrained")
    found.draw(figure)
    path = folder / f"{result['name']}.png"
    with atomic.writing(path, "wb") as file:
        figure.savefig(file, format="png", dpi=150, metadata={"Software": None})


def _show(found: Finding) -> None:
    from rich.markup import escape

    def cell(value: Any) -> Any:
        if isinstance(value, str):
            return escape(value)
        if isinstance(value, float):  # four digits, of small numbers two
            return float(f"{value:.4f}") if abs(value) >= 0.01 else float(f"{value:.2g}")
        return "-" if value is None else value

    rows = [[cell(value) for value in row.values()] for row in found.rows]
    console.table("", list(found.rows[0]), rows)
