"""`foreword evaluate`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from foreword.disk import atomic, store
from foreword.display.progress import ProgressDisplay
from foreword.display.results import Part, Remark, ResultTable, SavedResult, remarks, spaced
from foreword.errors import UserError, quoted_command
from foreword.formatting import with_bounds, with_intervals
from foreword.settings.ranges import Count, CountOrZero, check
from foreword.verbs._arguments import paths
from foreword.verbs._contract import Flag, Paths, Verb
from foreword.verbs._groups import ReadsModel, ReadsText, ShowsProgress

if TYPE_CHECKING:
    from foreword.runs.trained_model import TrainedModel


@dataclass(frozen=True, repr=False)
class EvaluationResult(SavedResult):
    """The loss of a run on text it has not seen, next to count-based baselines.

    `rows` has the model's row first, then the baselines'.

    Attributes:
        by_order: for count-based models, the n-grams seen and never seen, saved beside it.
    """

    by_order: Mapping[str, Any] | None = None

    @property
    def loss(self) -> float | None:
        """The model's loss in nats per prediction; None if it is infinite."""
        loss: float | None = self.rows[0]["loss"]
        return loss

    def tables(self) -> Sequence[Part]:
        """Return each table and where it is saved, the components of the loss, and the notes."""
        parts: list[Part] = []
        for saved in [self.content, *([] if self.by_order is None else [self.by_order])]:
            file = self.file.with_name(f"{saved['name']}.json")
            parts += [ResultTable(list(map(_cells, saved["rows"]))), Remark(f"saved to {file}")]
        if components := self.content.get("components"):
            parts.append(Remark(", ".join(f"{n} {v:.4f}" for n, v in spaced(components).items())))
        return [*parts, *remarks(self.notes)]

    def data(self) -> dict[str, Any]:
        """Return what was saved."""
        by_order = {} if self.by_order is None else {"by_order": self.by_order["rows"]}
        return dict(self.content) | by_order


def _cells(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return a row of the table; perplexities are published with two decimals."""
    perplexity = row.get("perplexity")
    shown = {} if perplexity is None else {"perplexity": f"{perplexity:,.2f}"}
    return spaced(with_intervals(with_bounds({**row, **shown})))


@dataclass(frozen=True)
class Evaluate(ReadsText, ShowsProgress, ReadsModel, Verb[EvaluationResult]):
    """Measure the held-out loss of a run, next to count-based baselines.

        foreword.evaluate("runs/books").loss

    The result is saved in RUN/evaluations, and 'foreword report' shows it. 'foreword probe' asks
    suites of questions, and 'foreword evaluate-tuned' scores fine-tuned models.

    Attributes:
        data: text files, folders, globs; default: the run's held-out text.
        rows: maximum number of rows; default: all.
        streams: for models with a memory: 1 reads the text as one stream.
        draws: for models of masked diffusion, whose loss is a bound: random maskings of each row.
        context_lengths: for causal models, the loss by number of earlier tokens seen: 0,64,128.
    """

    data: Annotated[Paths | None, Flag(("--data", "--file"))] = None
    rows: Count | None = field(default=None, kw_only=True)
    streams: CountOrZero = field(default=0, kw_only=True)
    draws: Count = field(default=4, kw_only=True)
    context_lengths: Annotated[str | Sequence[CountOrZero] | None, Flag(takes=str)] = field(
        default=None, kw_only=True
    )

    def __call__(self) -> EvaluationResult:
        from foreword.evaluation.run_loss import TextToEvaluate, run_loss

        lengths = None if self.context_lengths is None else _lengths(self.context_lengths)
        text = TextToEvaluate(paths(self.data), self.rows, self.streams, self.draws, lengths)
        if not text.files:
            self.refuse_reading("requires --data")
        display = self.display()
        prompted = self._prompted(display)
        folder = prompted.run / "evaluations"
        atomic.require_writable(folder, is_folder=True, remedy=atomic.MOVE_AWAY)
        with atomic.guarded(prompted.run), display:
            contents = run_loss(prompted, text, display.note, display.stage)
            files = [store.save(folder, content) for content in contents]
        return EvaluationResult(files[0], *contents)

    def _prompted(self, display: ProgressDisplay) -> TrainedModel:
        """Return the model with a recipe that reads text as is given."""
        from foreword.evaluation.loaded import load
        from foreword.tuning.tuned_folder import is_tuned

        run = Path(self.run)
        if run.is_file():
            raise UserError(f"{run}: a file, not a run folder; give it as --data {run}")
        if is_tuned(run):
            data = ("--data", *paths(self.data)) if self.data is not None else ()
            raise UserError(
                f"{run}: a fine-tuned model, which {quoted_command('evaluate-tuned', run, *data)} "
                "scores on labelled text"
            )
        trained = load(run, self.device).trained
        for note in trained.notes:
            display.note(note)
        recipe = trained.recipe
        return replace(trained, recipe=replace(recipe, read=self.read_as(recipe.read)))


def _lengths(given: str | Sequence[int]) -> list[int]:
    try:
        numbers = list(map(int, given.split(","))) if isinstance(given, str) else list(given)
    except (TypeError, ValueError):
        numbers = []
    if not numbers:
        raise UserError(f"--context-lengths {given}: expected numbers of tokens, such as 0,64,128")
    for number in numbers:
        check(CountOrZero, number, "--context-lengths")
    return list(dict.fromkeys(map(int, numbers)))
