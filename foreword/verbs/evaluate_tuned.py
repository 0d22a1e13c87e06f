"""`foreword evaluate-tuned`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from foreword.disk import atomic, store, stored
from foreword.display.results import Part, ResultTable, SavedResult
from foreword.errors import UserError
from foreword.formatting import at_most, interval
from foreword.settings import kinds
from foreword.tables.reads_rows import ReadsLabelled
from foreword.verbs._arguments import distinct_names, paths
from foreword.verbs._contract import Flag, PathName, Paths, Verb
from foreword.verbs._groups import TUNED, Computes, Examples, ShowsProgress

if TYPE_CHECKING:
    from foreword.tuning.example_reader import TunedExamples


@dataclass(frozen=True, repr=False)
class TunedEvaluation(SavedResult):
    """The scores of fine-tuned models on labelled examples, with intervals.

    It is saved in `evaluations` of the first model's folder. `rows` has a row for each model: its
    scores, and `NAME_low` and `NAME_high` of each; `notes` tells how each other model differs from
    the first.
    """

    def shown_rows(self) -> list[dict[str, Any]]:
        """Return each score with its interval."""
        from foreword.tuning.scores import metric_name

        metrics = [name for name in self.rows[0] if f"{name}_low" in self.rows[0]]
        return [
            {"model": row["model"]} | {metric_name(name): _cell(row, name) for name in metrics}
            for row in self.rows
        ]

    def tables(self) -> Sequence[Part]:
        """Return the table, a row for each label of several, the notes, and where it is saved."""
        from foreword.tuning.remarks import label_rows

        table, *others = super().tables()
        labels = label_rows(self.content)
        return [table, *([ResultTable(labels)] if labels else []), *others]


@dataclass(frozen=True)
class EvaluateTuned(ReadsLabelled, ShowsProgress, Computes, Verb[TunedEvaluation]):
    """Score fine-tuned models on labelled examples that they were not trained on.

        foreword.evaluate_tuned("runs/books/tuned/reviews", "test.tsv").rows

    Each score has a 95 % interval by bootstrap over the examples; of several models, each other one
    is compared with the first on the same examples. The result is saved in 'evaluations' of the
    first model's folder, and the report of its run shows it.

    Attributes:
        tuned: folders that 'foreword tune' wrote, of models of one task.
        data: labelled examples, as 'tune' takes them; default: those that each was scored on.
    """

    tuned: Annotated[Paths, TUNED]
    data: Annotated[Examples | None, Flag(("--data", "--file"), takes=list[PathName])] = None
    _: KW_ONLY
    prefix: str | None = None

    def __call__(self) -> TunedEvaluation:
        from foreword.runs.provenance import command
        from foreword.tuning.evaluate import compared_scores
        from foreword.tuning.example_reader import name_of, tuned_examples
        from foreword.tuning.open_tuned import open_tuned

        # Open the models, and read the examples as each was tuned on.
        given = [Path(path) for path in paths(self.tuned)]
        folders = list({path.resolve(): path for path in reversed(given)}.values())[::-1]
        models = [open_tuned(folder, self.device) for folder in folders]
        names = distinct_names(folders)
        if len({kinds.name_of(model.task) for model in models}) > 1:
            tasks = (f"{n}: {kinds.name_of(m.task)}" for n, m in zip(names, models, strict=True))
            raise UserError(f"the models were tuned on different tasks: {', '.join(tasks)}")
        place = folders[0] / "evaluations"
        atomic.require_writable(place, is_folder=True, remedy=atomic.MOVE_AWAY)
        read = tuned_examples(models, self.data, self)
        _require_same_examples(read)

        # Score them, and save the results, never over those of other models, files or columns.
        with self.display() as display:
            for warning in read[0].notes:
                display.warn(warning)
            examples = [part.examples for part in read]
            by_name = dict(zip(names, models, strict=True))
            found = compared_scores(by_name, examples, read[0].read.skipped, display.stage)
        first = read[0].read
        source = first.description
        on = Path(source).name if isinstance(source, str) else "several files"
        content = {
            "name": f"evaluate-{name_of(first.sources)}",
            "title": f"{', '.join(names)}: scores on {on}" if names[1:] else f"Scores on {on}",
            "task": found.pop("task"),
            "data": source,
            **found,
            "command": command(),
            "of": {
                "models": [str(folder.resolve()) for folder in folders],
                "files": [str(Path(s.file).resolve()) if s.file else "" for s in first.sources],
                "columns": {
                    name: getattr(self, name)
                    for name in ("text", "pair", "label", "columns", "prefix")
                },
            },
        }
        file = store.file_for(place, content["name"], content["of"], "of")
        content["name"] = file.stem
        stored.write(file, content)
        return TunedEvaluation(file, content)


def _require_same_examples(read: Sequence[TunedExamples]) -> None:
    """Check that all models read the same texts and labels, so that their scores compare."""
    keys = [[(e.text, e.pair, e.label) for e in part.read.together] for part in read]
    if any(key != keys[0] for key in keys[1:]):
        raise UserError(
            "the models read other texts or labels, so their scores do not compare; name one file "
            "with --data, and its columns"
        )


def _cell(row: Mapping[str, Any], metric: str) -> str:
    score, low, high = (row[name] for name in (metric, f"{metric}_low", f"{metric}_high"))
    ends = interval(low, high)
    shown = "–" if score is None else f"{score:.3f}" + (f" ({ends})" if ends else "")
    return at_most(shown, metric == "perplexity" and bool(row.get("is_bound")))
