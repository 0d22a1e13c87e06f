"""`foreword probe`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import MISSING, dataclass, field, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from foreword.disk import atomic, store
from foreword.display.progress import ProgressDisplay
from foreword.display.results import Part, Remark, Result, ResultTable, remarks, spaced
from foreword.errors import UserError
from foreword.formatting import with_intervals
from foreword.settings import config, kinds, plugins
from foreword.verbs._arguments import assignments, distinct_names, paths
from foreword.verbs._contract import SET, Flag, PathName, Paths, Settings, Verb
from foreword.verbs._groups import Computes, ReadsText, ShowsProgress

if TYPE_CHECKING:
    from foreword.probes._contract import Finding, ProbedModel
    from foreword.probes._contract import Probe as ProbeKind


@dataclass(frozen=True, repr=False)
class ProbeResult(Result):
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

    def tables(self) -> Sequence[Part]:
        """Return the table, the notes, and where it is saved."""
        rows = [spaced(with_intervals(row)) for row in self.finding.rows]
        saved = [Remark(f"saved to {file} and .png") for file in self.files]
        return [ResultTable(rows), *remarks(self.content["notes"]), *saved]

    def data(self) -> dict[str, Any]:
        """Return what was saved."""
        return dict(self.content)


@dataclass(frozen=True)
class Probe(ReadsText, ShowsProgress, Computes, Verb[ProbeResult]):
    """Examine one or more models with a probe, or ask them the questions of a suite.

        foreword.probe(["runs/a", "runs/b"], "lambada", "lambada_test.jsonl").rows

    One table and one plot show all models; a suite compares the first with each other one, and
    saves every answer. 'foreword show probes' lists probes and suites, 'foreword show NAME' their
    settings. The figures are saved in RUN/evaluations as probe-KIND.json or suite-KIND.json with a
    plot beside, and 'foreword report' shows them.

    Attributes:
        runs: run folders, or checkpoints in them.
        name: what to measure: attention, tagging, ... or a suite: blimp, cloze, lambada, ..., or a
            .toml file of one's own.
        data: questions of a suite; for a probe that reads text, the text; default: each run's
            held-out text.
        settings: a setting of it: layer=0, limit=100; repeatable.
        untrained: also measure each model with random weights.
        out: folder for the result; default: RUN/evaluations.
    """

    runs: Annotated[Paths, Flag(is_argument=True, metavar="RUN...")]
    name: Annotated[str | ProbeKind, Flag(is_argument=True, takes=str)]
    data: Paths | None = None
    settings: Annotated[Settings, SET] = field(default=(), kw_only=True)
    untrained: bool = field(default=False, kw_only=True)
    out: PathName | None = field(default=None, kw_only=True)

    def __call__(self) -> ProbeResult:
        from foreword.probes._suite import Suite

        # Check every argument.
        files = paths(self.data)
        if not files:
            self.refuse_reading("requires --data")
        probe = self._probe(files)
        texts = () if isinstance(probe, Suite) else files
        if isinstance(probe, Suite):
            self.refuse_reading(f"is for text, and '{self.name}' has questions")
        elif texts and not probe.reads_text:
            name = kinds.name_of(probe)
            raise UserError(f"--data: '{name}' brings its own sentences; see its settings")

        # Open the models and the folders.
        display = self.display()
        models = self._opened(texts, display)
        folders = (
            list(dict.fromkeys(model.trained.run / "evaluations" for model in models))
            if self.out is None
            else [Path(self.out)]
        )
        for folder in folders:
            remedy = atomic.MOVE_AWAY if self.out is None else atomic.OTHER_OUT
            atomic.require_writable(folder, is_folder=True, remedy=remedy)

        # Measure, and save the result.
        with ExitStack() as stack:
            for model in models:
                stack.enter_context(atomic.guarded(model.trained.run))
            stack.enter_context(display)
            stage = display.stage(f"probing {', '.join(model.label for model in models)}")
            finding = probe.measure(_shown(models, stage))
        return _saved(probe, finding, models, folders, texts, is_beside_random=self.untrained)

    def _probe(self, files: Sequence[str]) -> ProbeKind:
        """Return the probe or suite, with its settings."""
        from foreword.probes._suite import Suite

        table = config.assign({}, assignments(self.settings))
        if not isinstance(self.name, str):
            if table:
                raise UserError("settings: the probe that is given has its own")
            return self.name
        if self.name.endswith(".toml"):
            kind, file = Path(self.name).stem, Path(self.name)
            cls: Any = plugins.toml_reader("probes").kind_of(file, f"suite.{kind}")
        else:
            kind = next(iter(kinds.called("probes", self.name)), "")
            if not kind:
                hint = kinds.nearest_kind("probes", self.name)
                if Path(self.name).exists():
                    hint = "; the last word is what to measure: foreword probe RUN... NAME"
                raise UserError(f"no probe or suite '{self.name}'{hint}")
            cls = kinds.load("probes", kind)
        if issubclass(cls, Suite):
            if len(files) > 1:
                raise UserError(f"--data: '{self.name}' takes one file, folder or pattern")
            if files:
                table["files"] = files[0]
            required = [f.name for f in fields(cls) if f.default is MISSING]
            if "files" in required and "files" not in table:
                raise UserError(f"{self.name}: requires --data, the files of its questions")
        probe: ProbeKind = config.build(cls, table, "probe", f"kind '{kind}'")
        return probe

    def _opened(self, texts: tuple[str, ...], display: ProgressDisplay) -> list[ProbedModel]:
        """Return the models, each with a unique name."""
        from foreword.evaluation.loaded import load
        from foreword.probes._contract import ProbedModel
        from foreword.probes._random_weights import with_random_weights

        folders = list(dict.fromkeys(map(Path, paths(self.runs))))
        models = []
        for folder, label in zip(folders, distinct_names(folders), strict=True):
            trained = load(folder, self.device).trained
            for note in trained.notes:
                display.note(note)
            recipe = trained.recipe
            trained = replace(trained, recipe=replace(recipe, read=self.read_as(recipe.read)))
            models.append(ProbedModel(label, trained, texts))
            if self.untrained and not trained.is_count_based:
                random = with_random_weights(trained)
                models.append(ProbedModel(f"{label}, untrained", random, texts))
        if self.untrained and all(model.trained.is_count_based for model in models):
            raise UserError(
                f"--untrained: {folders[0]} is a count-based model without weights to randomise"
            )
        return models


def _shown(models: Sequence[ProbedModel], stage: Callable[..., None]) -> list[ProbedModel]:
    """Return the models, each with its progress as a part of the whole."""

    def part(before: int) -> Callable[[int, int], None]:
        return lambda done, total: stage(before * total + done, len(models) * total)

    return [replace(model, progress=part(n)) for n, model in enumerate(models)]


def _saved(
    probe: ProbeKind,
    finding: Finding,
    models: Sequence[ProbedModel],
    folders: Sequence[Path],
    texts: Sequence[str],
    *,
    is_beside_random: bool,
) -> ProbeResult:
    """Save what a probe found in each folder, and return it."""
    from foreword.probes._suite import Suite
    from foreword.runs.provenance import command

    plot = finding.drawn()
    notes = [*finding.notes, *([plot.note] if plot.note else [])]
    if is_beside_random:
        notes += [
            f"{model.label}: a count-based model without weights to randomise, so it has no "
            "untrained copy"
            for model in models
            if model.trained.is_count_based
        ]
    content: dict[str, Any] = {
        "name": f"{'suite' if isinstance(probe, Suite) else 'probe'}-{kinds.name_of(probe)}",
        "task": finding.title,
        "runs": {model.label: str(model.trained.run) for model in models},
        "settings": config.to_table(probe),
        "rows": list(finding.rows),
        "details": [] if finding.predictions else list(finding.details),
        "notes": notes,
        "command": command(),
    }
    if finding.predictions:
        content["predictions"] = list(finding.predictions)
    content["of"] = {key: content[key] for key in ("runs", "settings")} | {"texts": list(texts)}
    files = [store.file_for(f, content["name"], content["of"], "of") for f in folders]
    for file in files:
        store.save(file.parent, content | {"name": file.stem}, plot.data)
    return ProbeResult(tuple(files), finding, content | {"name": files[0].stem})
