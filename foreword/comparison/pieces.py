"""The pieces of a comparison, and how their progress is reported."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from foreword.comparison.grid import Cell, GridTask
from foreword.comparison.probing import GridProbe, GridText
from foreword.comparison.sweep import Slot
from foreword.comparison.time_left import TimeLeft
from foreword.runs.stages import LOOP_STAGES

NO_CELL = Cell("")
BAG_OF_WORDS = "bag of words"


@dataclass(frozen=True)
class Piece:
    """A piece of the comparison.

    It is a trial of a sweep, a pretraining, a probe or a fine-tuning of its model, or a baseline.

    Attributes:
        cell: the cell of the grid; `NO_CELL` of a baseline.
        seed: seed of pretraining.
        task: the task to fine-tune on; None for the pretraining.
        is_scratch: whether the network is fine-tuned from random weights.
        slot: the place of a trial in its sweep; None for other pieces.
        probe: the probe or the text to measure the model with; None for other pieces.
    """

    cell: Cell
    seed: int
    task: GridTask | None = None
    is_scratch: bool = False
    slot: Slot | None = None
    probe: GridProbe | GridText | None = None

    @property
    def is_pretraining(self) -> bool:
        """Whether it is a pretraining, a seed of its cell."""
        return self.task is None and self.slot is None and self.probe is None

    @property
    def is_baseline(self) -> bool:
        """Whether it is a bag of words on a task."""
        return self.cell == NO_CELL

    def __str__(self) -> str:
        if self.slot is not None:
            return f"{self.cell.name}, sweep: {self.slot}"
        if self.task is not None and self.is_baseline:
            return f"{self.task.name}: {BAG_OF_WORDS}"
        stage = "pretraining" if (measure := self.probe or self.task) is None else measure.name
        return f"{self.cell.name}, seed {self.seed}: {stage}{' from scratch' * self.is_scratch}"


@dataclass(frozen=True)
class Failure:
    """A piece that failed.

    Attributes:
        piece: the piece.
        error: the reason, in one line.
        is_fault: whether it is a bug in Foreword, not a mistake or a lack of memory.
    """

    piece: Piece
    error: str
    is_fault: bool


@dataclass(frozen=True)
class CellProgress:
    """The progress of a comparison.

    Attributes:
        piece: the current piece.
        number: number of the piece, from 1.
        total: number of pieces in all.
        share: share of the piece that is done.
        seconds_left: time left of all pieces whose time is known.
        is_all: whether these are all pieces left.
        note: latest result, such as the loss.
    """

    piece: Piece
    number: int
    total: int
    share: float
    seconds_left: float
    is_all: bool
    note: str


class ComparisonReporter(Protocol):
    """A display of a comparison's progress."""

    def note(self, text: str) -> None:
        """Show a line."""

    def warn(self, text: str) -> None:
        """Show a line, even where others are not wanted."""

    def stage(self, name: str) -> Callable[..., None]:
        """Show a stage before the work; the returned function takes (done, total)."""

    def show_progress(self, progress: CellProgress) -> None:
        """Show how far the comparison is."""


class PieceReporter:
    """The progress reporter of one piece, shown as progress of the whole comparison.

    Args:
        comparison: receives the progress of the comparison.
        time_left: estimates the time left.
        piece: the piece.
        number_and_total: number of the piece from 0, and of all pieces.
    """

    def __init__(
        self,
        comparison: ComparisonReporter,
        time_left: TimeLeft,
        piece: Piece,
        number_and_total: tuple[int, int],
    ) -> None:
        self._comparison, self._time_left, self._piece = comparison, time_left, piece
        self._number, self._total = number_and_total
        self._shown = (0.0, 0.0, "")

    def show(self, share: float, seconds: float, note: str) -> None:
        """Show the progress when `share` of this piece is done after `seconds`."""
        self._shown = (share, seconds, note)
        left, is_all = self._time_left.estimate(self._number, share, seconds)
        number = self._number + 1
        self._comparison.show_progress(
            CellProgress(self._piece, number, self._total, share, left, is_all, note)
        )

    def stage(self, name: str) -> Callable[..., None]:
        """Show a stage before training; during training, the piece's progress."""
        if name in LOOP_STAGES:
            self.show(*self._shown)
            return lambda *_: None
        return self._comparison.stage(name)

    def note(self, text: str) -> None:
        """Show a line; those of a trial, which are the same for all, are left out."""
        if self._piece.slot is None:
            self._comparison.note(f"{self._piece}: {text}")

    def warn(self, text: str) -> None:
        """Show a line, even where others are not wanted; those of a trial are left out."""
        if self._piece.slot is None:
            self._comparison.warn(f"{self._piece}: {text}")

    def record(self, record: dict[str, Any], progress: float) -> None:
        """Show the loss of a record."""
        if record["kind"] == "train":
            self.show(progress, record["seconds"], f"loss {record['loss']:.3f}")
        elif record["kind"] == "heldout":
            self.note(f"step {record['step']:,}: held-out loss {record['loss']:.4f}")
