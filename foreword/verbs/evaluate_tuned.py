"""`foreword evaluate-tuned`."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from foreword.display.progress import ProgressDisplay, progress_of
from foreword.display.results import Part, Remark, Result, ResultTable
from foreword.errors import UserError
from foreword.settings import kinds
from foreword.verbs._contract import PYTHON_ONLY, Flag, PathName, Paths, Verb
from foreword.verbs._labelled import TUNED, Examples, ReadsLabelled

if TYPE_CHECKING:
    from foreword.tuning.scored import ScoredExamples
    from foreword.tuning.tuned_model import TunedModel, TunedWriter
    from foreword.types import Array
    from foreword.verbs._examples import TunedExamples

DRAWS = 500  # of the bootstrap


@dataclass(frozen=True, repr=False)
class TunedEvaluation(Result):
    """The scores of fine-tuned models on labelled examples, with intervals.

    Attributes:
        file: where it is saved: in `evaluations` of the first model's folder.
        content: what was saved: `rows`, `notes`, `confusion`, ...
    """

    file: Path
    content: Mapping[str, Any]

    @property
    def rows(self) -> list[dict[str, Any]]:
        """A row for each model: its scores, and `NAME_low` and `NAME_high` of each."""
        return [dict(row) for row in self.content["rows"]]

    @property
    def notes(self) -> tuple[str, ...]:
        """Remarks on the scores, and how each other model differs from the first, a line each."""
        return tuple(self.content["notes"])

    def tables(self) -> Sequence[Part]:
        """Return the scores of each model with their intervals, and how to read them."""
        from foreword.tuning.scores import metric_name

        metrics = [name for name in self.rows[0] if f"{name}_low" in self.rows[0]]
        shown = [
            {"model": row["model"]} | {metric_name(name): _cell(row, name) for name in metrics}
            for row in self.rows
        ]
        lines = [*self.notes, f"saved to {self.file}"]
        return [ResultTable(shown, self.content["title"]), *map(Remark, lines)]

    def data(self) -> Any:
        """Return what was saved."""
        return self.content


@dataclass(frozen=True)
class EvaluateTuned(ReadsLabelled, Verb[TunedEvaluation]):
    """Score fine-tuned models on labelled examples that they were not trained on.

        foreword.evaluate_tuned("runs/books/tuned/reviews", "test.tsv").rows

    Each score has a 95 % interval by bootstrap over the examples; of several models, each other one
    is compared with the first on the same examples. The result is saved in 'evaluations' of the
    first model's folder, and the report of its run shows it.

    Attributes:
        tuned: folders that 'foreword tune' wrote, of models of one task.
        data: labelled examples, as 'tune' takes them; default: those that each was scored on.
        device: auto, cpu, cuda or mps.
        progress: whether to show the progress, or what shows it.
    """

    tuned: Annotated[Paths, TUNED]
    data: Annotated[Examples | None, Flag(("--data", "--file"), takes=list[PathName])] = None
    _: KW_ONLY
    prefix: str | None = None
    device: str = "auto"
    progress: Annotated[bool | ProgressDisplay, PYTHON_ONLY] = True

    def __call__(self) -> TunedEvaluation:
        from foreword.disk import atomic, store, stored
        from foreword.tuning.tuned_model import open_tuned
        from foreword.verbs._arguments import distinct_names, paths
        from foreword.verbs._examples import tuned_examples

        # Open the models, and read the examples as each was tuned on.
        given = [Path(path) for path in paths(self.tuned, "TUNED")]
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
        content = self._scored(names, models, read)
        columns = ("text", "pair", "label", "columns", "prefix")
        content["of"] = {
            "models": [str(folder.resolve()) for folder in folders],
            "files": [str(Path(s.file).resolve()) if s.file else "" for s in read[0].sources],
            "columns": {name: getattr(self, name) for name in columns},
        }
        file = store.file_for(place, content["name"], content["of"], "of")
        content["name"] = file.stem
        stored.write(file, content)
        return TunedEvaluation(file, content)

    def _scored(
        self,
        names: Sequence[str],
        models: Sequence[TunedModel | TunedWriter],
        read: Sequence[TunedExamples],
    ) -> dict[str, Any]:
        """Return the scores of the examples, with intervals from draws with replacement.

        Raises:
            UserError: the models have different scores.
        """
        from foreword.evaluation.statistics import bootstrap_each
        from foreword.tuning.scored import scored

        with progress_of(self.progress) as display:
            answered = []
            for warning in read[0].notes:
                display.warn(warning)
            for name, model, part in zip(names, models, read, strict=True):
                answered.append(scored(model, part.examples, display.stage(f"answering: {name}")))
            scores = [each.scores() for each in answered]
            _require_same_scores(names, scores)
            advance, draws = display.stage("bootstrap"), iter(range(DRAWS))

            def statistics(numbers: Array) -> list[float]:
                advance(next(draws), DRAWS)
                return _statistics([each.scores(numbers) for each in answered])

            intervals = bootstrap_each(statistics, len(read[0].examples), DRAWS)
        return _content(names, answered, read, scores, intervals)


def _require_same_examples(read: Sequence[TunedExamples]) -> None:
    """Check that all models read the same texts and labels, so that their scores compare.

    Raises:
        UserError: one reads others.
    """
    keys = [[(e.text, e.pair, e.label) for e in part.plain] for part in read]
    if any(key != keys[0] for key in keys[1:]):
        raise UserError(
            "the models read other texts or labels, so their scores do not compare; name one file "
            "with --data, and its columns"
        )


def _require_same_scores(names: Sequence[str], scores: Sequence[Mapping[str, float]]) -> None:
    """Check that the models have the same scores, so that they compare.

    Raises:
        UserError: one has others.
    """
    from foreword.tuning.scores import metric_name

    known = [", ".join(map(metric_name, of)) for of in scores]
    for name, metrics in zip(names, known, strict=True):
        if metrics != known[0]:
            raise UserError(
                f"{names[0]} has {known[0]}, and {name} has {metrics}; evaluate them alone"
            )


def _statistics(scores: Sequence[Mapping[str, float]]) -> list[float]:
    """Return all scores of each model, then the first one of the first less that of each other."""
    values = [list(of.values()) for of in scores]
    differences = [values[0][0] - other[0] for other in values[1:]]
    return [*(value for of in values for value in of), *differences]


def _content(
    names: Sequence[str],
    answered: Sequence[ScoredExamples],
    read: Sequence[TunedExamples],
    scores: Sequence[Mapping[str, float]],
    intervals: Sequence[tuple[float, float]],
) -> dict[str, Any]:
    """Return the result to save."""
    from foreword.runs.provenance import command
    from foreword.tuning.encoded import cut_warning
    from foreword.tuning.scores import metric_name
    from foreword.tuning.text_metrics import word_rules
    from foreword.verbs._examples import name_of

    left = iter(intervals)
    rows: list[dict[str, Any]] = []
    for name, of, each in zip(names, scores, answered, strict=True):
        row: dict[str, Any] = {"model": name}
        for metric, score in of.items():
            low, high = next(left)
            row |= {metric: score, f"{metric}_low": low, f"{metric}_high": high}
        rows.append(row | {"examples": len(each.results)})
    metric = next(iter(scores[0]))
    notes = [_note(answered[0], read[0]), *word_rules(scores[0])]
    cuts = (cut_warning(each.cut, len(each.results), each.max_tokens) for each in answered)
    notes += filter(None, cuts)
    for name, of, (low, high) in zip(names[1:], scores[1:], left, strict=True):
        difference = scores[0][metric] - of[metric]
        shown = f"{difference:+.3f} ({low:+.3f} to {high:+.3f}) on the same examples"
        shown = "undefined" if math.isnan(difference) else shown
        notes.append(f"{names[0]} against {name}: {metric_name(metric)} {shown}")
    if any(low == high for low, high in intervals):
        notes.append("no interval: a score that all draws share; other examples may still differ")
    confusion = answered[0].confusion()
    source = read[0].description
    title = Path(source).name if isinstance(source, str) else "several files"
    return {
        "name": f"evaluate-{name_of(read[0].sources)}",
        "title": f"{', '.join(names)}: scores on {title}" if names[1:] else f"Scores on {title}",
        "task": kinds.name_of(answered[0].task),
        "data": source,
        "rows": [{key: _known(value) for key, value in row.items()} for row in rows],
        **({} if confusion is None else {"labels": answered[0].labels, "confusion": confusion}),
        "notes": notes,
        "command": command(),
    }


def _cell(row: Mapping[str, Any], metric: str) -> str:
    score, low, high = (row[name] for name in (metric, f"{metric}_low", f"{metric}_high"))
    interval = f" ({low:.3f} to {high:.3f})" if low is not None and low < high else ""
    return "–" if score is None else f"{score:.3f}{interval}"


def _known(value: Any) -> Any:
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _note(answered: ScoredExamples, read: TunedExamples) -> str:
    """Return what a reader of the intervals has to know."""
    skipped = f", {read.skipped:,} rows skipped (empty, or without a label)" * bool(read.skipped)
    cut = f", {answered.cut:,} cut to the model's length" * bool(answered.cut)
    return (
        f"{len(answered.results):,} examples{skipped}{cut}; intervals: 95 %, by bootstrap over "
        "them: what other examples would change, not what another seed of fine-tuning would"
    )
