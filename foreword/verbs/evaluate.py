"""`foreword evaluate`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from foreword.display.progress import ProgressDisplay, progress_of
from foreword.display.results import Part, Remark, Result, ResultTable
from foreword.errors import UserError, quoted_command
from foreword.formatting import unknown_share_note
from foreword.settings.ranges import Count, CountOrZero, check
from foreword.verbs._contract import PYTHON_ONLY, Flag, Paths, Verb
from foreword.verbs._model import ReadsModel
from foreword.verbs._reading import ReadsText

if TYPE_CHECKING:
    from foreword.data.prepared_text import PreparedText
    from foreword.data.shards import Shards
    from foreword.evaluation.context import MemoryLoss
    from foreword.evaluation.heldout import HeldOut
    from foreword.runs.trained_model import TrainedModel


@dataclass(frozen=True, repr=False)
class EvaluationResult(Result):
    """The loss of a run on text it has not seen, next to count-based baselines.

    Attributes:
        file: where it is saved.
        content: what was saved: `rows`, `components`, `notes`, ...
        by_order: for count-based models, the n-grams seen and never seen, saved beside it.
    """

    file: Path
    content: Mapping[str, Any]
    by_order: Mapping[str, Any] | None = None

    @property
    def rows(self) -> list[dict[str, Any]]:
        """The model's row first, then the baselines'."""
        rows: list[dict[str, Any]] = self.content["rows"]
        return rows

    @property
    def loss(self) -> float | None:
        """The model's loss in nats per prediction; None if it is infinite."""
        loss: float | None = self.rows[0]["loss"]
        return loss

    def tables(self) -> Sequence[Part]:
        """Return each table and where it is saved, the components of the loss, and the notes."""
        parts: list[Part] = []
        for saved in [self.content, *([] if self.by_order is None else [self.by_order])]:
            rows = [
                {name.replace("_", " "): _cell(name, value) for name, value in row.items()}
                for row in saved["rows"]
            ]
            file = self.file.with_name(f"{saved['name']}.json")
            parts += [ResultTable(rows), Remark(f"saved to {file}")]
        if components := self.content.get("components"):
            named = (f"{name.replace('_', ' ')} {components[name]:.4f}" for name in components)
            parts.append(Remark(", ".join(named)))
        return [*parts, *map(Remark, self.content["notes"])]

    def data(self) -> dict[str, Any]:
        """Return what was saved."""
        by_order = {} if self.by_order is None else {"by_order": self.by_order["rows"]}
        return dict(self.content) | by_order


@dataclass(frozen=True)
class Evaluate(ReadsText, ReadsModel, Verb[EvaluationResult]):
    """Measure the held-out loss of a run, next to count-based baselines.

        foreword.evaluate("runs/books").loss

    The result is saved in RUN/evaluations, and 'foreword report' shows it. 'foreword probe' asks
    suites of questions, and 'foreword evaluate-tuned' scores fine-tuned models.

    Attributes:
        data: text files, folders, globs; default: the run's held-out text.
        rows: maximum number of rows; default: all.
        streams: for models with a memory: 1 reads the text as one stream.
        memory: for causal models, the loss by number of earlier tokens seen: 0,64,128.
        progress: whether to show the progress, or what shows it.
    """

    data: Annotated[Paths | None, Flag(("--data", "--file"))] = None
    rows: Count | None = field(default=None, kw_only=True)
    streams: CountOrZero = field(default=0, kw_only=True)
    memory: Annotated[str | Sequence[CountOrZero] | None, Flag(takes=str)] = field(
        default=None, kw_only=True
    )
    progress: Annotated[bool | ProgressDisplay, PYTHON_ONLY] = field(default=True, kw_only=True)

    def __call__(self) -> EvaluationResult:
        from foreword.disk import atomic
        from foreword.verbs import _arguments

        memories = None if self.memory is None else _memories(self.memory)
        files = _arguments.paths(self.data)
        if not files:
            self.refuse_reading("requires --data")
        display = progress_of(self.progress)
        prompted = self._prompted(display)
        run = prompted.run
        atomic.require_writable(run / "evaluations", is_folder=True, remedy=atomic.MOVE_AWAY)
        with (
            atomic.guarded(run),
            display,
            _opened(prompted, files, display) as (text, shards),
        ):
            losses = self._losses(prompted, text, shards, memories, display)
            content = self._content(prompted, files, losses)
            orders = None
            if prompted.is_count_based and memories is None:
                orders = _by_order(prompted, shards[0], content, display)
            file = _save(run, content)
            if orders is not None:
                _save(run, orders)
        return EvaluationResult(file, content, orders)

    def _prompted(self, display: ProgressDisplay) -> TrainedModel:
        """Return the model with a recipe that reads text as is given.

        Raises:
            UserError: there is no such run, or it is a tuned model.
        """
        from foreword.evaluation.loaded import load
        from foreword.tuning.tuned import is_tuned
        from foreword.verbs._arguments import path

        run = path(self.run, "RUN")
        if run.is_file():
            raise UserError(f"{run}: a file, not a run folder; give it as --data {run}")
        if is_tuned(run):
            raise UserError(
                f"{run}: a fine-tuned model, which {quoted_command('evaluate-tuned', run)} scores "
                "on labelled text"
            )
        trained = load(run, self.device).trained
        for note in trained.notes:
            display.note(note)
        recipe = trained.recipe
        return replace(trained, recipe=replace(recipe, read=self.read_as(recipe.read)))

    def _losses(
        self,
        prompted: TrainedModel,
        text: PreparedText | None,
        shards: tuple[Shards, float],
        memories: Sequence[int] | None,
        display: ProgressDisplay,
    ) -> Sequence[HeldOut | MemoryLoss]:
        """Return the losses on shards, with their bytes per token."""
        from foreword.evaluation import context, heldout

        rows = self.rows or heldout.ALL
        if memories is not None:
            display.stage("measuring the loss")
            return context.by_memory(prompted, shards[0], memories, shards[1], rows)
        if text is None:
            return [heldout.on_shards(prompted, shards, rows, self.streams, display.stage)]
        return heldout.on_prepared(prompted, text, rows, self.streams, display.stage)

    def _content(
        self,
        prompted: TrainedModel,
        files: Sequence[str],
        losses: Sequence[HeldOut | MemoryLoss],
    ) -> dict[str, Any]:
        """Return the result to save."""
        from foreword.evaluation.baselines import prediction_name
        from foreword.evaluation.heldout import HeldOut
        from foreword.runs.provenance import command

        is_by_memory = self.memory is not None
        name = f"evaluate-{Path(files[0]).name if files else 'heldout'}"
        content: dict[str, Any] = {
            "name": f"{name}-memory" if is_by_memory else name,
            "task": "held-out loss by memory" if is_by_memory else "held-out loss",
            "checkpoint": prompted.folder.name,
            "prediction": prediction_name(prompted.recipe),
        }
        content |= {"text": files[0] if len(files) == 1 else list(files)} if files else {}
        content |= {} if self.rows is None else {"max_rows": self.rows}
        content |= {"rows": [loss.as_row() for loss in losses], "command": command()}
        first = losses[0]
        if isinstance(first, HeldOut) and first.components:
            content["components"] = first.components
        return content | {"notes": _notes(losses)}


def _cell(name: str, value: Any) -> Any:
    """Return a value for the table; perplexities are published with two decimals."""
    return f"{value:,.2f}" if name == "perplexity" and value is not None else value


def _memories(memory: str | Sequence[int]) -> list[int]:
    """Return the lengths of memory, without duplicates.

    Raises:
        UserError: there is none, or one is not a number of tokens.
    """
    try:
        numbers = list(map(int, memory.split(","))) if isinstance(memory, str) else list(memory)
    except (TypeError, ValueError):
        numbers = []
    if not numbers:
        raise UserError(f"--memory {memory}: expected numbers of tokens, such as 0,64,128")
    for number in numbers:
        check(CountOrZero, number, "--memory")
    return list(dict.fromkeys(map(int, numbers)))


def _notes(losses: Sequence[HeldOut | MemoryLoss]) -> list[str]:
    """Return remarks on the figures, a line each."""
    from foreword.evaluation.heldout import HeldOut

    notes = [
        f"{loss.what}: {loss.about}" for loss in losses if isinstance(loss, HeldOut) and loss.about
    ]
    if losses[0].unknown:
        notes.append(unknown_share_note(losses[0].unknown))
    if any(loss.as_row()["loss"] is None for loss in losses):
        notes.append("the model gives some of the text probability 0: its loss is infinite")
    return notes


def _by_order(
    prompted: TrainedModel, shards: Shards, content: Mapping[str, Any], display: ProgressDisplay
) -> dict[str, Any]:
    """Return the n-grams of each order seen and never seen, as a result to save."""
    from foreword.evaluation import sparsity

    display.stage("counting n-grams")
    rows = [order.as_row() for order in sparsity.by_order(prompted, shards)]
    name, task = f"{content['name']}-by-order", "n-grams seen and never seen"
    return {**content, "name": name, "task": task, "rows": rows, "notes": []}


def _save(run: Path, content: Mapping[str, Any]) -> Path:
    """Write a result into the run's `evaluations`; return the file."""
    from foreword.disk import atomic, stored

    path = run / "evaluations" / f"{content['name']}.json"
    atomic.write_text(path, stored.record(content))
    return path


@contextmanager
def _opened(
    prompted: TrainedModel, files: Sequence[str], display: ProgressDisplay
) -> Iterator[tuple[PreparedText | None, tuple[Shards, float]]]:
    """Yield the run's text if no other is named, and the shards with their bytes per token."""
    from foreword.evaluation import heldout

    if files:
        with heldout.shards_of_texts(prompted, files, display.note, display.stage) as shards:
            yield None, shards
    else:
        text = heldout.shards_of(prompted, prompted.run)
        yield text, (text.heldout, text.bytes_per_token(ends=prompted.recipe.ends_texts))
