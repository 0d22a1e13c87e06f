"""`foreword probe`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from foreword.disk import atomic, store
from foreword.display.progress import ProgressDisplay
from foreword.display.results import Part, Remark, Result, ResultTable, remarks, spaced
from foreword.errors import UserError
from foreword.formatting import cell, with_intervals
from foreword.settings import config, kinds
from foreword.verbs._arguments import assignments, distinct_names, paths
from foreword.verbs._contract import SET, Flag, PathName, Paths, Settings, Verb
from foreword.verbs._groups import Computes, ReadsText, ShowsProgress, naming

if TYPE_CHECKING:
    from foreword.probes._contract import Finding
    from foreword.probes._contract import Probe as ProbeKind
    from foreword.runs.trained_model import TrainedModel


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
        rows, notes = self.rows, list(self.content["notes"])
        chances = {row.get("chance") for row in rows}
        if len(chances) == 1 and chances != {None}:  # no column, which a wide table would end with
            notes = [f"chance: {cell(*chances)}, in each row", *notes]
            rows = [{n: value for n, value in row.items() if n != "chance"} for row in rows]
        saved = [Remark(f"saved to {file} and .png") for file in self.files]
        return [ResultTable([spaced(with_intervals(row)) for row in rows]), *remarks(notes), *saved]

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
        from foreword.probes._results import measure, named_probe, probed_models
        from foreword.probes._suite import Suite

        # Check every argument.
        files, table = paths(self.data), config.assign({}, assignments(self.settings))
        if not files:
            self.refuse_reading("requires --data")
        if isinstance(self.name, str):
            with _naming(table):
                probe = named_probe(self.name, table, files)
        else:
            probe = self.name
            if table:
                raise UserError("settings: the probe that is given has its own")
        texts = () if isinstance(probe, Suite) else files
        if isinstance(probe, Suite):
            self.refuse_reading(f"is for text, and '{self.name}' has questions")
        elif texts and not probe.reads_text:
            name = kinds.name_of(probe)
            raise UserError(f"--data: '{name}' brings its own sentences; see its settings")

        # Open the models and the folders.
        display = self.display()
        models = probed_models(self._opened(display), texts, with_untrained=self.untrained)
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
            stack.enter_context(_naming(config.to_table(probe)))
            stage = display.stage(f"probing {', '.join(model.label for model in models)}")
            finding, content, plot = measure(probe, models, stage)
        saved = [store.file_for(f, content["name"], content["of"], "of") for f in folders]
        for file in saved:
            store.save(file.parent, content | {"name": file.stem}, plot)
        return ProbeResult(tuple(saved), finding, content | {"name": saved[0].stem})

    def _opened(self, display: ProgressDisplay) -> dict[str, TrainedModel]:
        """Return the models by unique names, with recipes that read text as is given."""
        from foreword.evaluation.loaded import load

        folders = list(dict.fromkeys(map(Path, paths(self.runs))))
        models = {}
        for folder, label in zip(folders, distinct_names(folders), strict=True):
            trained = load(folder, self.device).trained
            for note in trained.notes:
                display.note(note)
            recipe = trained.recipe
            read = self.read_as(recipe.read)
            models[label] = replace(trained, recipe=replace(recipe, read=read))
        return models


def _naming(settings: Iterable[str]) -> AbstractContextManager[None]:
    """Name settings of a probe as the command line does in the messages of user errors."""
    return naming("probe", {name: f"--set {name}" for name in settings} | {"files": "--data"})
