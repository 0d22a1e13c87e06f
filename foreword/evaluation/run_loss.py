"""The loss of a run as a result to save: next to counts, or by the length of the context."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from foreword.data.prepared_text import PreparedText
from foreword.data.shards import Shards
from foreword.evaluation import context, heldout, sparsity
from foreword.evaluation.baselines import prediction_name
from foreword.evaluation.context import MemoryLoss
from foreword.evaluation.heldout import HeldOut
from foreword.formatting import unknown_share_note
from foreword.runs.provenance import command
from foreword.runs.stages import Stage
from foreword.runs.trained_model import TrainedModel


@dataclass(frozen=True)
class TextToEvaluate:
    """What to measure the loss on.

    Attributes:
        files: text files, folders, globs; none for the run's held-out text.
        rows: maximum number of rows; None for all.
        streams: parallel streams of a model with a memory; see `heldout.on_shards`.
        draws: how often each row is masked, for a model whose loss is a bound.
        lengths: lengths of the context to measure it by; None for the loss next to counts.
    """

    files: Sequence[str] = ()
    rows: int | None = None
    streams: int = 0
    draws: int = 1
    lengths: Sequence[int] | None = None


def run_loss(
    prompted: TrainedModel, text: TextToEvaluate, note: Callable[[str], None], stage: Stage
) -> list[dict[str, Any]]:
    """Return the results to save: the losses, then of a count-based model its n-grams by order.

    Raises:
        UserError: the text is too short, or the model has no such context.
    """
    with _opened(prompted, text.files, note, stage) as (prepared, shards):
        losses = _losses(prompted, text, prepared, shards, stage)
        content = _content(prompted, text, losses)
        if not prompted.is_count_based or text.lengths is not None:
            return [content]
        stage("counting n-grams")
        rows = [order.as_row() for order in sparsity.by_order(prompted, shards[0])]
    name, task = f"{content['name']}-by-order", "n-grams seen and never seen"
    return [content, {**content, "name": name, "task": task, "rows": rows, "notes": []}]


def _losses(
    prompted: TrainedModel,
    text: TextToEvaluate,
    prepared: PreparedText | None,
    shards: tuple[Shards, float],
    stage: Stage,
) -> Sequence[HeldOut | MemoryLoss]:
    rows = text.rows or heldout.ALL
    if text.lengths is not None:
        stage("measuring the loss")
        return context.by_memory(prompted, shards[0], text.lengths, shards[1], rows)
    if prepared is None:
        return [heldout.on_shards(prompted, shards, rows, text.streams, stage, text.draws)]
    return heldout.on_prepared(prompted, prepared, rows, text.streams, stage, text.draws)


def _content(
    prompted: TrainedModel, text: TextToEvaluate, losses: Sequence[HeldOut | MemoryLoss]
) -> dict[str, Any]:
    files, by_length = list(text.files), text.lengths is not None
    name = f"evaluate-{Path(files[0]).name if files else 'heldout'}"
    content: dict[str, Any] = {
        "name": f"{name}-memory" if by_length else name,
        "task": "held-out loss by memory" if by_length else "held-out loss",
        "checkpoint": prompted.folder.name,
        "prediction": prediction_name(prompted.recipe),
    }
    content |= {"text": files[0] if len(files) == 1 else files} if files else {}
    content |= {} if text.rows is None else {"max_rows": text.rows}
    content |= {"rows": [loss.as_row() for loss in losses], "command": command()}
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


@contextmanager
def _opened(
    prompted: TrainedModel, files: Sequence[str], note: Callable[[str], None], stage: Stage
) -> Iterator[tuple[PreparedText | None, tuple[Shards, float]]]:
    """Yield the run's text if no other is named, and the shards with their bytes per token."""
    if files:
        with heldout.shards_of_texts(prompted, files, note, stage) as shards:
            yield None, shards
    else:
        text = heldout.shards_of(prompted, prompted.run)
        yield text, (text.heldout, text.bytes_per_token(ends=prompted.recipe.ends_texts))
