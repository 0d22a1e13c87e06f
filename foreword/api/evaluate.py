"""`foreword.evaluate`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from foreword.api import _arguments
from foreword.api._arguments import PathName, Paths, checked
from foreword.api._result import FactsAndRows
from foreword.api.progress import ProgressDisplay, progress_of
from foreword.data.prepared_text import PreparedText
from foreword.data.shards import Shards
from foreword.disk import atomic, stored
from foreword.errors import UserError
from foreword.evaluation import context, heldout, sparsity
from foreword.evaluation.baselines import prediction_name
from foreword.evaluation.context import MemoryLoss
from foreword.evaluation.heldout import HeldOut
from foreword.evaluation.loaded import load
from foreword.evaluation.prompting import PromptedModel
from foreword.formatting import unknown_share_note
from foreword.runs.provenance import command
from foreword.settings.ranges import Count, CountOrZero, check


@dataclass(frozen=True, repr=False)
class EvaluationResult(FactsAndRows):
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

    def _facts(self) -> Mapping[str, Any]:
        return {"saved to": self.file, **self.content.get("components", {})}

    def _rows(self) -> Sequence[Mapping[str, Any]]:
        return [{name.replace("_", " "): value for name, value in row.items()} for row in self.rows]


@checked
def evaluate(
    run: PathName,
    data: Paths | None = None,
    *,
    rows: Count | None = None,
    streams: CountOrZero = 0,
    memory: str | Sequence[int] | None = None,
    field: str | None = None,
    target: str | None = None,
    documents: str | None = None,
    errors: str | None = None,
    device: str = "auto",
    progress: bool | ProgressDisplay = True,
) -> EvaluationResult:
    """Measure the held-out loss of a run, next to count-based baselines.

        foreword.evaluate("runs/books").loss

    The result is saved in `RUN/evaluations`, and the report shows it.

    Args:
        run: a run folder, or one of its checkpoints.
        data: text files, folders, globs; default: the run's held-out text.
        rows: maximum number of rows; default: all.
        streams: for models with a memory: 1 reads the text as one stream.
        memory: for causal models, the loss by these numbers of earlier tokens seen: `[0, 64]`, or
            `"0,64"`.
        field: field of JSON or column of Parquet that holds the text.
        target: for parallel text, the field of the target side.
        documents: what is one document in plain text: file, paragraph or line.
        errors: bytes that are not UTF-8: strict stops, replace replaces and counts.
        device: auto, cpu, cuda or mps.
        progress: whether to show the progress, or what shows it.

    Raises:
        UserError: no such run, the text cannot be read or is shorter than a row, or a number is out
            of range.
    """
    memories = None if memory is None else _memories(memory)
    files = _arguments.paths(data)
    reading = _arguments.given_reading(
        field=field, target=target, documents=documents, errors=errors
    )
    if reading and not files:
        _arguments.refuse(reading, "requires --data")

    # Open the model and the text.
    display = progress_of(progress)
    loaded = load(_arguments.path(run, "RUN"), device)
    for note in loaded.trained.notes:
        display.note(note)
    recipe = loaded.trained.recipe
    recipe = replace(recipe, read=_arguments.read_as(recipe.read, reading))
    prompted = replace(loaded.trained, recipe=recipe)
    folder, max_rows = loaded.trained.run, rows or heldout.ALL
    atomic.require_writable(folder / "evaluations", is_folder=True, remedy=atomic.MOVE_AWAY)

    # Measure the loss, and see what a count-based model knows of each order.
    by_order: list[dict[str, Any]] = []
    with (
        atomic.guarded(folder),
        display,
        _opened(prompted, folder, files, display) as (text, shards),
    ):
        losses: Sequence[HeldOut | MemoryLoss]
        if memories is not None:
            display.stage("measuring the loss")
            losses = context.by_memory(prompted, shards[0], memories, shards[1], max_rows)
        elif text is None:
            losses = heldout.on_shards(prompted, shards, max_rows, streams, display.stage)
        else:
            losses = heldout.on_prepared(prompted, text, max_rows, streams, display.stage)
        if prompted.is_count_based and memory is None:
            display.stage("counting n-grams")
            by_order = [order.as_row() for order in sparsity.by_order(prompted, shards[0])]

        # Save the results.
        name = f"evaluate-{Path(files[0]).name if files else 'heldout'}"
        name += "" if memory is None else "-memory"
        about: dict[str, Any] = {"checkpoint": loaded.trained.folder.name}
        about |= {"prediction": prediction_name(recipe)}
        about |= {"text": files[0] if len(files) == 1 else list(files)} if files else {}
        about |= {} if rows is None else {"max_rows": rows}
        content = _content(name, about, losses, by_memory=memory is not None)
        file = _save(folder, content)
        orders = None
        if by_order:
            changes = {"name": f"{name}-by-order", "task": "n-grams seen and never seen"}
            orders = {**content, **changes, "rows": by_order, "notes": []}
            _save(folder, orders)
    return EvaluationResult(file, content, orders)


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


def _content(
    name: str,
    about: Mapping[str, Any],
    losses: Sequence[HeldOut | MemoryLoss],
    *,
    by_memory: bool,
) -> dict[str, Any]:
    """Return the result to save."""
    content: dict[str, Any] = {
        "name": name,
        "task": "held-out loss by memory" if by_memory else "held-out loss",
        **about,
        "rows": [loss.as_row() for loss in losses],
        "command": command(),
    }
    first = losses[0]
    if isinstance(first, HeldOut) and first.components:
        content["components"] = first.components
    return content | {"notes": _notes(losses)}


def _notes(losses: Sequence[HeldOut | MemoryLoss]) -> list[str]:
    """Return remarks on the figures, a line each."""
    notes = [
        f"{loss.what}: {loss.about}" for loss in losses if isinstance(loss, HeldOut) and loss.about
    ]
    if losses[0].unknown:
        notes.append(unknown_share_note(losses[0].unknown))
    if any(loss.as_row()["loss"] is None for loss in losses):
        notes.append("the model gives some of the text probability 0: its loss is infinite")
    return notes


def _save(run: Path, content: Mapping[str, Any]) -> Path:
    """Write a result into the run's `evaluations`; return the file."""
    path = run / "evaluations" / f"{content['name']}.json"
    atomic.write_text(path, stored.record(content))
    return path


@contextmanager
def _opened(
    prompted: PromptedModel, run: Path, files: Sequence[str], display: ProgressDisplay
) -> Iterator[tuple[PreparedText | None, tuple[Shards, float]]]:
    """Yield the run's text if no other is named, and the shards with their bytes per token."""
    if files:
        with heldout.shards_of_texts(prompted, files, display.note, display.stage) as shards:
            yield None, shards
    else:
        text = heldout.shards_of(prompted, run)
        yield text, (text.heldout, text.bytes_per_token(ends=prompted.recipe.ends_texts))
