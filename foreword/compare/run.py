"""A comparison from a grid to its results, in reading order.

    out/  grid.toml   what was last asked
          data/       tokenizers and token shards, shared by the cells
          runs/       a run folder per cell and seed, its fine-tunings in `evaluations/`
          scratch/    fine-tunings of the same networks from random weights
          table.md results.csv results.json plot.png

Whatever was done before in the same folder is found there and kept, so a comparison that was
killed carries on, and a grid that was changed runs only what changed.
"""

from __future__ import annotations

import gc
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

import torch

from foreword import atomic, config, kinds, stored
from foreword.compare import results_cache
from foreword.compare.corpora import Corpora
from foreword.compare.grid import Cell, Grid, GridTask, read_examples
from foreword.compare.time_left import TimeLeft
from foreword.errors import UserError
from foreword.evaluate.samples import samples
from foreword.runs import run as running
from foreword.runs.provenance import make_provenance
from foreword.runs.sizes import MACHINES, require_memory
from foreword.runs.trained_model import is_finished, open_run
from foreword.train import checkpoint
from foreword.tune.result import as_document
from foreword.tune.run import tune

GRID_FILE = "grid.toml"


@dataclass(frozen=True)
class Work:
    """A piece of the comparison: a pretraining, or a fine-tuning of what it made.

    Attributes:
        cell: of the grid.
        seed: of pretraining.
        task: to fine-tune on, or None for the pretraining.
        is_scratch: whether the network is fine-tuned from random weights.
    """

    cell: Cell
    seed: int
    task: GridTask | None = None
    is_scratch: bool = False

    def __str__(self) -> str:
        what = "pretraining" if self.task is None else self.task.name
        return f"{self.cell.name}, seed {self.seed}: {what}{' from scratch' * self.is_scratch}"


@dataclass(frozen=True)
class Failure:
    """A piece that could not be done.

    Attributes:
        work: the piece.
        error: why, in a line.
        is_fault: whether that is a fault of Foreword's own.
    """

    work: Work
    error: str
    is_fault: bool


@dataclass(frozen=True)
class CellProgress:
    """Where a comparison stands.

    Attributes:
        work: what is being done.
        number: of it, from 1.
        total: of all pieces.
        share: of the piece that is done.
        seconds_left: of all that something can be said about.
        is_all: whether that is everything.
        note: how it goes.
    """

    work: Work
    number: int
    total: int
    share: float
    seconds_left: float
    is_all: bool
    note: str


class ComparisonReporter(Protocol):
    """Who looks on."""

    def note(self, text: str) -> None:
        """A line worth reading."""

    def stage(self, name: str) -> Callable[[float, float], None]:
        """Something that comes before the work; the function takes what is done and to be done."""

    def show_progress(self, standing: CellProgress) -> None:
        """Where the comparison stands."""


class Comparison:
    """A grid in its folder.

    All recipes and all tables of tasks are read at once: mistakes come before the work.

    Args:
        grid: what to compare.
        out: the folder; made if it is not there.
        reporter: told how it goes.

    Raises:
        UserError: a mistake in the grid, or the folder holds something else.
    """

    def __init__(self, grid: Grid, out: Path, reporter: ComparisonReporter) -> None:
        self.grid, self.out, self.reporter = grid, out, reporter
        seeds = range(1, grid.seeds + 1)
        self.recipes = {(c.name, seed): grid.recipe(c, seed) for c in grid.cells for seed in seeds}
        for cell in grid.cells:
            with _naming_cell(cell.name):
                require_memory(self.recipes[cell.name, 1], machines=MACHINES)
        self.examples = {task.name: read_examples(task) for task in grid.tasks}
        variants = [recipe.read for recipe in self.recipes.values()]
        self.corpora = Corpora(grid.data, out / "data", reporter.stage, grid.heldout, variants)
        self.failures: list[Failure] = []
        atomic.require_no_device(out)
        if (
            out.exists()
            and not (out / GRID_FILE).is_file()
            and (out.is_file() or _holds_other_files(out))
        ):
            raise UserError(f"{out}: holds something else than a comparison; choose another --out")

    def work(self) -> list[Work]:
        """All pieces in order; a cell is tuned as soon as it is trained."""
        pieces = []
        for seed in range(1, self.grid.seeds + 1):
            for cell in self.grid.cells:
                pieces.append(Work(cell, seed))
                for task in self.grid.tasks:
                    pieces.append(Work(cell, seed, task))
                    if task.scratch and seed == 1:
                        pieces.append(Work(cell, seed, task, is_scratch=True))
        return pieces

    def prepare(self) -> None:
        """Makes the tokenizers and token shards that are not there yet.

        Raises:
            UserError: the text is no good for a cell, which is named; or another process is at work
                in the folder.
        """
        with self._locked():
            for cell in self.grid.cells:
                with _naming_cell(cell.name):
                    self.corpora.shards_for(self.recipes[cell.name, 1])

    def run(self, after_piece: Callable[[], None] = lambda: None) -> bool:
        """Does what is not done yet; a piece that fails is noted, and the others go on.

        Args:
            after_piece: called after each piece that was done.

        Returns:
            False when a signal asked to stop.

        Raises:
            UserError: another process is at work in the folder.
        """
        with self._locked():
            return self._run(after_piece)

    def _run(self, after_piece: Callable[[], None]) -> bool:
        pieces, was_done = self.work(), False
        clock = TimeLeft([(piece.task and piece.task.name, piece.is_scratch) for piece in pieces])
        for number, piece in enumerate(pieces):
            if any(f.work == Work(piece.cell, piece.seed) for f in self.failures):
                continue  # nothing to tune
            with self._recording_failure(piece):
                was_done = self.seconds_taken(piece) is not None
                if not was_done:
                    progress = _PieceReporter(self.reporter, clock, piece, number, len(pieces))
                    progress.show(0.0, 0.0, "")
                    if not self._run_piece(piece, progress):
                        return False
                clock.add(number, self.seconds_taken(piece) or 0.0)
            if not was_done:
                after_piece()
                if piece.task is None:
                    _free_memory()
        return True

    def run_folder(self, cell: Cell, seed: int) -> Path | None:
        """The run folder of a cell, if it has been begun."""
        file = results_cache.find((self.out / "runs").glob("*.json"), self._run_key(cell, seed))
        return None if file is None else file.with_suffix("")

    def saved_tuning(self, piece: Work) -> dict[str, Any] | None:
        """What a fine-tuning came to, if it has been done."""
        folder = self._tuning_folder(piece)
        file = folder and results_cache.find(folder.glob("*.json"), self._tuning_key(piece))
        return stored.read(file) if file else None

    def seconds_taken(self, piece: Work) -> float | None:
        """How long a piece took, or None where it is not done."""
        if piece.task is not None:
            done = self.saved_tuning(piece)
            return None if done is None else float(done["seconds"])
        run = self.run_folder(piece.cell, piece.seed)
        if run is None or not (run / "recipe.toml").is_file() or not is_finished(run):
            return None
        spent = checkpoint.read_state(checkpoint.newest(run, []))["spent"]
        return float(spent["seconds"])

    def _run_piece(self, piece: Work, progress: _PieceReporter) -> bool:
        if piece.task is None:
            return self._pretrain(piece, progress)
        self._tune(piece, piece.task, progress)
        return True

    def _pretrain(self, piece: Work, progress: _PieceReporter) -> bool:
        recipe, asked = (
            self.recipes[piece.cell.name, piece.seed],
            self._run_key(piece.cell, piece.seed),
        )
        run = self.run_folder(piece.cell, piece.seed)
        if run is None:
            name = f"{piece.cell.name}-{piece.seed}"
            run = results_cache.store(self.out / "runs", name, asked).with_suffix("")
        if not (run / "recipe.toml").is_file():
            shards = str(self.corpora.shards_for(recipe).folder)
            running.start(recipe, running.Inputs((shards,)), run)
        return running.carry_on(run, progress, self.reporter.stage, samples)

    def _tune(self, piece: Work, task: GridTask, progress: _PieceReporter) -> None:
        run, folder = self.run_folder(piece.cell, piece.seed), self._tuning_folder(piece)
        assert run is not None and folder is not None
        examples = self.examples[task.name]
        began = time.monotonic()
        result = tune(
            open_run(run, self.recipes[piece.cell.name, piece.seed].train.device),
            task.task,
            examples.train,
            examples.dev,
            replace(task.tune, from_scratch=piece.is_scratch),
            lambda done, total, note: progress.show(done / total, time.monotonic() - began, note),
        )
        result = replace(result, examples=result.examples | {"skipped": examples.skipped})
        document = as_document(result, task.name, make_provenance()["command"])
        name = f"tune-{kinds.name_of(task.task)}-{task.name}"
        results_cache.store(
            folder,
            f"{piece.cell.name}-{name}" if piece.is_scratch else name,
            self._tuning_key(piece),
            document | {"seconds": round(time.monotonic() - began, 3)},
        )

    def _run_key(self, cell: Cell, seed: int) -> results_cache.RunKey:
        recipe = self.recipes[cell.name, seed]
        return results_cache.RunKey(
            results_cache.without_labels(recipe), self.corpora.shards_for(recipe).fingerprint
        )

    def _tuning_key(self, piece: Work) -> results_cache.TuningKey:
        assert piece.task is not None
        task, files = (
            results_cache.settings_of_task(piece.task),
            self.examples[piece.task.name].checksums,
        )
        if not piece.is_scratch:
            return results_cache.TuningKey(task, files)
        recipe = self.recipes[piece.cell.name, piece.seed]
        fields = {
            name: getattr(recipe, name) for name in ("model", "objective", "layout", "packing")
        }
        tokenizer = self.corpora.shards_for(recipe).manifest["tokenizer"]["fingerprint"]
        return results_cache.TuningKey(task, files, type(recipe)(**fields), tokenizer)

    def _tuning_folder(self, piece: Work) -> Path | None:
        if piece.is_scratch:
            return self.out / "scratch"
        run = self.run_folder(piece.cell, piece.seed)
        return run and run / "evaluations"

    @contextmanager
    def _locked(self) -> Iterator[None]:
        with atomic.alone(self.out, own=(GRID_FILE,)):
            atomic.write_text(self.out / GRID_FILE, config.dumps(config.to_table(self.grid)))
            yield

    @contextmanager
    def _recording_failure(self, piece: Work) -> Iterator[None]:
        try:
            yield
        except Exception as error:
            line = " ".join(str(error).split()) or type(error).__name__
            is_memory = isinstance(error, MemoryError | torch.OutOfMemoryError)
            is_fault = not (isinstance(error, UserError) or is_memory)
            text = f"{type(error).__name__}: {line}" if is_fault else line
            self.failures.append(Failure(piece, text, is_fault))
            self.reporter.note(f"{piece}: failed: {text}")


@contextmanager
def _naming_cell(name: str) -> Iterator[None]:
    """Names the cell in an error."""
    try:
        yield
    except UserError as error:
        raise UserError(f"cell '{name}': {error}") from error


def _holds_other_files(folder: Path) -> bool:
    """Whether there is more in a folder than a comparison begins with."""
    return any(path.name not in (atomic.LOCK, f".{GRID_FILE}.part") for path in folder.iterdir())


def _free_memory() -> None:
    """Gives back what the model before has left in memory."""
    gc.collect()
    if "torch._dynamo" in sys.modules:  # or all models would share one cache of few places
        torch.compiler.reset()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()


class _PieceReporter:
    """The watcher of a piece, which knows the rest."""

    def __init__(
        self, look: ComparisonReporter, clock: TimeLeft, piece: Work, number: int, total: int
    ) -> None:
        self._look, self._clock, self._piece = look, clock, piece
        self._number, self._total = number, total

    def show(self, share: float, seconds: float, note: str) -> None:
        """Says where the comparison stands, after so many seconds of this piece."""
        left, is_all = self._clock.estimate(self._number, share, seconds)
        number = self._number + 1
        self._look.show_progress(
            CellProgress(self._piece, number, self._total, share, left, is_all, note)
        )

    def note(self, text: str) -> None:
        self._look.note(f"{self._piece}: {text}")

    def record(self, record: dict[str, Any], progress: float) -> None:
        if record["kind"] == "train":
            self.show(progress, record["seconds"], f"loss {record['loss']:.3f}")
        elif record["kind"] == "heldout":
            self.note(f"step {record['step']:,}: held-out loss {record['loss']:.4f}")

    def samples(self) -> list[dict[str, str]]:
        return []
