"""`foreword drift`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from foreword.disk import atomic, store, stored
from foreword.display.results import Part, Remark, ResultTable, SavedResult, remarks
from foreword.errors import UserError
from foreword.settings.ranges import CountOrZero
from foreword.tables.reads_rows import ReadsLabelled
from foreword.verbs._arguments import distinct_names, paths
from foreword.verbs._contract import PathName, Paths, Verb
from foreword.verbs._groups import TUNED, Computes, Examples, ShowsProgress

if TYPE_CHECKING:
    from foreword.tables.examples import Labelled


@dataclass(frozen=True, repr=False)
class DriftResult(SavedResult):
    """What fine-tuning changed; the plot, a PNG of the same name, is beside the file."""

    def tables(self) -> Sequence[Part]:
        """Return a row for each tuned model, how to read it, and where it is saved."""
        saved = Remark(f"saved to {self.file} and .png")
        return [ResultTable(self.rows), *remarks(self.notes), saved]


@dataclass(frozen=True)
class Drift(ShowsProgress, Computes, Verb[DriftResult]):
    """Show what fine-tuning changed, and how flat the loss is around it.

        foreword.drift("runs/books/tuned/reviews")

    For each tuned model: how far the weights of each layer moved from where they started, how alike
    the states are, the loss on the straight line from start to end and past it, and the largest
    eigenvalue of the Hessian at the end. With two, the loss on the plane of the start and both: put
    a model tuned with --from-scratch beside the pretrained one to compare the basins.

    The figures are saved as drift-NAME.json in RUN/evaluations, the plot as drift-NAME.png.

    Attributes:
        tuned: folders that 'foreword tune' wrote, of one run.
        dev: labelled text for the loss; default: what they were scored on.
        run: the run they were tuned from; default: the one whose folder has them.
        examples: number of examples, evenly spaced; 0 for all.
    """

    tuned: Annotated[Paths, TUNED]
    dev: Examples | None = None
    _: KW_ONLY
    run: PathName | None = None
    examples: CountOrZero = 256

    def __call__(self) -> DriftResult:
        from foreword.reports.drift import plot_drift
        from foreword.runs.provenance import command
        from foreword.tuning.drift import change_of, measured, steps
        from foreword.tuning.example_reader import tuned_examples
        from foreword.tuning.open_tuned import open_tuned
        from foreword.tuning.tuned_model import open_start

        # Open the models and what they started from, and read the examples as each was tuned on.
        folders = [Path(folder) for folder in dict.fromkeys(paths(self.tuned))]
        models = [open_tuned(folder, self.device) for folder in folders]
        runs = {self._run_of(folder) for folder in folders}
        if len(runs) > 1:
            raise UserError(f"{', '.join(map(str, folders))}: were tuned from different runs")
        trained = open_start(runs.pop(), self.device)
        place = trained.run / "evaluations"
        atomic.require_writable(place, is_folder=True, remedy=atomic.MOVE_AWAY)
        read = tuned_examples(models, self.dev, ReadsLabelled(), "--dev")
        changes = [
            change_of(model, trained, self._some(part.examples), name)
            for model, part, name in zip(models, read, distinct_names(folders), strict=True)
        ]

        # Measure, and save the figures with their plot.
        with self.display() as display:
            for warning in dict.fromkeys(note for part in read for note in part.notes):
                display.warn(warning)
            advance, total = display.stage("measuring"), steps(changes)
            done = iter(range(total))
            figures = measured(changes, lambda note: advance(next(done), total, note))
        content = {
            "name": f"drift-{folders[0].absolute().name}",
            "title": f"What fine-tuning changed: {', '.join(change.name for change in changes)}",
            "task": "drift",
            "tuned": {
                change.name: str(folder) for change, folder in zip(changes, folders, strict=True)
            },
            "run": str(trained.run),
            **figures,
            "command": command(),
        }
        plot = plot_drift(content)
        content["notes"] = [*content["notes"], *([plot.note] if plot.note else [])]
        return DriftResult(store.save(place, content, plot.data), content)

    def _run_of(self, folder: Path) -> Path:
        from foreword.runs.run_folder import is_run
        from foreword.tuning.tuned_folder import SCORES

        if self.run is not None:
            return Path(self.run)
        if (folder / SCORES).is_file():
            data = stored.read(folder / SCORES)["settings"].get("data") or {}
            if "adapted" in data:  # by unlabelled text, before it was tuned
                return Path(data["adapted"])
        parent = folder.parent.parent if len(folder.parts) > 2 else folder.absolute().parent.parent
        if not is_run(parent):
            raise UserError(
                f"{folder}: is in no run's 'tuned'; --run names the run it was tuned from"
            )
        return parent

    def _some(self, all_of_them: Sequence[Labelled]) -> Sequence[Labelled]:
        """Return at most `examples` of the examples, evenly spaced."""
        count, limit = len(all_of_them), self.examples
        if not 0 < limit < count:
            return all_of_them
        return [all_of_them[n * count // limit] for n in range(limit)]
