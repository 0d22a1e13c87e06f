"""`foreword.probe`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import MISSING, dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from foreword.api import _arguments, _saved_results
from foreword.api._arguments import PathName, Paths, Settings, checked, distinct_names
from foreword.api._result import FactsAndRows
from foreword.api.progress import ProgressDisplay, progress_of
from foreword.disk import atomic, stored
from foreword.errors import UserError, nearest
from foreword.evaluation.loaded import load
from foreword.formatting import with_intervals
from foreword.probes import _suite
from foreword.probes._contract import Finding, Probe, ProbedModel
from foreword.probes._random_weights import with_random_weights
from foreword.probes._suite import Suite
from foreword.runs.provenance import command
from foreword.settings import config, kinds
from foreword.settings.kinds import Part, name_of

if TYPE_CHECKING:
    from foreword.figures import Rendered

SUITES = {"blimp": "minimal_pairs"}  # suites that are called otherwise than their kind


@dataclass(frozen=True, repr=False)
class ProbeResult(FactsAndRows):
    """What a probe found.

    Attributes:
        files: where it is saved; a plot of the same name is beside each.
        finding: the table, the details, the notes and each prediction of a suite.
        content: what was saved.
    """

    files: tuple[Path, ...]
    finding: Finding
    content: Mapping[str, Any]

    @property
    def rows(self) -> list[dict[str, Any]]:
        """The table; the rows of each model in the order they were given."""
        return [dict(row) for row in self.finding.rows]

    def _facts(self) -> Mapping[str, Any]:
        return {"saved to": ", ".join(map(str, self.files)), **self.finding.scores}

    def _rows(self) -> Sequence[Mapping[str, Any]]:
        return [with_intervals(row) for row in self.finding.rows]


@checked
def probe(
    runs: Paths,
    kind: str | Probe,
    *,
    settings: Settings = (),
    data: Paths | None = None,
    untrained: bool = False,
    out: PathName | None = None,
    field: str | None = None,
    target: str | None = None,
    documents: str | None = None,
    errors: str | None = None,
    device: str = "auto",
    progress: bool | ProgressDisplay = True,
) -> ProbeResult:
    """Examine the inside of one or more models, or ask them the questions of a suite.

        foreword.probe(["runs/a", "runs/b"], "lambada", settings={"files": "lambada.jsonl"}).rows

    The result is saved in `RUN/evaluations` of each run, with every prediction of a suite, and the
    report shows it.

    Args:
        runs: run folders, or checkpoints in them.
        kind: `foreword.show("probes")` lists them; or a probe with its settings.
        settings: of the probe, by name; a suite's `files` are its questions.
        data: text to use, for a probe that reads text; default: each run's held-out text.
        untrained: also probe each model with random weights, but for count-based ones.
        out: folder for the result; default: that of each run.
        field: field of JSON or column of Parquet that holds the text.
        target: for parallel text, the field of the target side.
        documents: what is one document in plain text: file, paragraph or line.
        errors: bytes that are not UTF-8: strict stops, replace replaces and counts.
        device: auto, cpu, cuda or mps.
        progress: whether to show the progress, or what shows it.

    Raises:
        UserError: no such run or probe, a model does not support it, or a file cannot be read.
    """
    reading = _arguments.given_reading(
        field=field, target=target, documents=documents, errors=errors
    )
    texts = _arguments.paths(data)
    if reading and not texts:
        _arguments.refuse(reading, "requires --data")
    return measure(
        _arguments.paths(runs),
        kind if not isinstance(kind, str) else built(kind, settings),
        texts=tuple(texts),
        reading=reading,
        untrained=untrained,
        out=None if out is None else _arguments.path(out, "--out"),
        device=device,
        display=progress_of(progress),
    )


def built(kind: str, settings: Settings) -> Probe:
    """Return the probe of a name and settings.

    Raises:
        UserError: there is no such probe, or a setting is wrong.
    """
    table = config.assign({}, _arguments.assignments(settings))
    probe: Probe = config.build_kind(Part("probes"), {"kind": kind, **table}, "probe")
    return probe


def suite(name: str, settings: Settings) -> Suite:
    """Return a suite by its name.

    Args:
        name: a kind, or a name in `SUITES`.
        settings: its settings.

    Raises:
        UserError: there is no such suite, or a setting is wrong.
    """
    kind = SUITES.get(name, name)
    known = kinds.names("probes")
    if kind in known and not issubclass(kinds.load("probes", kind), Suite):
        raise UserError(f"--suite {name}: it asks no questions; run 'foreword probe --kind {kind}'")
    if kind not in known:
        suites = [*_suite.names(), *SUITES]
        raise UserError(f"--suite: no suite '{name}'{nearest(name, suites)}")
    questions = {field.name: field for field in fields(kinds.load("probes", kind))}.get("files")
    table = config.assign({}, _arguments.assignments(settings))
    if questions is not None and questions.default is MISSING and "files" not in table:
        raise UserError(f"--suite {name}: requires --data, the files of its questions")
    built_suite = built(kind, settings)
    assert isinstance(built_suite, Suite)
    return built_suite


def measure(
    runs: Sequence[str],
    probe: Probe,
    *,
    display: ProgressDisplay,
    texts: tuple[str, ...] = (),
    reading: Mapping[str, Any] | None = None,
    untrained: bool = False,
    out: Path | None = None,
    device: str = "auto",
    prefix: str = "probe",
) -> ProbeResult:
    """Measure models by a probe, and save the result.

    Args:
        runs: run folders or checkpoints.
        probe: the probe.
        display: shows the progress.
        texts: text to use.
        reading: settings of reading it.
        untrained: whether to measure each model with random weights too.
        out: folder for the result; default: that of each run.
        device: auto, cpu, cuda or mps.
        prefix: what the result's name begins with.

    Raises:
        UserError: as `probe`.
    """
    name = name_of(probe)
    if texts and not probe.reads_text:
        raise UserError(f"--data: '{name}' brings its own sentences; see its settings")
    models = _opened(runs, dict(reading or {}), texts, device, display, untrained=untrained)
    folders = (
        [out] if out else list(dict.fromkeys(model.trained.run / "evaluations" for model in models))
    )
    for folder in folders:
        remedy = atomic.OTHER_OUT if out else atomic.MOVE_AWAY
        atomic.require_writable(folder, is_folder=True, remedy=remedy)
    with ExitStack() as stack:
        for model in models:
            stack.enter_context(atomic.guarded(model.trained.run))
        stack.enter_context(display)
        stage = display.stage(f"probing {', '.join(model.label for model in models)}")
        finding = probe.measure(_shown(models, stage))
    content: dict[str, Any] = {
        "name": f"{prefix}-{name}",
        "task": finding.title,
        "runs": {model.label: str(model.trained.run) for model in models},
        "settings": config.to_table(probe),
        "rows": list(finding.rows),
        "details": list(finding.details),
        "notes": list(finding.notes),
        "command": command(),
    }
    if finding.predictions:
        content = {**content, "details": [], "predictions": list(finding.predictions)}
    plot = _plot(finding)
    content["notes"] += [plot.note] if plot.note else []
    content["notes"] += _unrandomised(models) if untrained else []
    content["of"] = {key: content[key] for key in ("runs", "settings")} | {"texts": list(texts)}
    saved = [dict(content) for _ in folders]  # the name may be another in each
    files = tuple(map(_saved_results.file_for, folders, saved))
    for file, content in zip(files, saved, strict=True):
        atomic.write_text(file, stored.record(content))
        atomic.write_bytes(file.with_suffix(".png"), plot.data)
    return ProbeResult(files, finding, saved[0])


def _shown(models: Sequence[ProbedModel], stage: Callable[..., None]) -> list[ProbedModel]:
    """Return the models, each with its progress as a part of the whole."""

    def part(before: int) -> Callable[[int, int], None]:
        return lambda done, total: stage(before * total + done, len(models) * total)

    return [replace(model, progress=part(n)) for n, model in enumerate(models)]


def _opened(
    runs: Sequence[str],
    reading: Mapping[str, Any],
    texts: tuple[str, ...],
    device: str,
    display: ProgressDisplay,
    *,
    untrained: bool,
) -> list[ProbedModel]:
    """Return the models, each with a unique name."""
    paths = list(dict.fromkeys(_arguments.path(run, "RUN") for run in runs))
    models = []
    for path, label in zip(paths, distinct_names(paths), strict=True):
        trained = load(path, device).trained
        for note in trained.notes:
            display.note(note)
        recipe = trained.recipe
        recipe = replace(recipe, read=_arguments.read_as(recipe.read, reading))
        trained = replace(trained, recipe=recipe)
        models.append(ProbedModel(label, trained, texts))
        if untrained and not trained.is_count_based:
            models.append(ProbedModel(f"{label}, untrained", with_random_weights(trained), texts))
    if untrained and all(model.trained.is_count_based for model in models):
        raise UserError(
            f"--untrained: {paths[0]} is a count-based model without weights to randomise"
        )
    return models


def _unrandomised(models: Sequence[ProbedModel]) -> list[str]:
    """Return a line for each model that has no copy with random weights beside it."""
    return [
        f"{model.label}: a count-based model without weights to randomise, so it has no untrained "
        "copy"
        for model in models
        if model.trained.is_count_based
    ]


def _plot(finding: Finding) -> Rendered:
    import matplotlib
    from matplotlib.figure import Figure

    from foreword import figures

    with matplotlib.rc_context(figures.STYLE):
        figure = Figure(layout="constrained")
        finding.plot(figure)
        return figures.render(figure, "png")
