"""Folders of runs, comparisons and fine-tunings that are watched while another process works."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from foreword.disk import atomic, stored
from foreword.errors import DamagedError, UserError
from foreword.process import holders
from foreword.runs.run_folder import is_run, read_recipe
from foreword.runs.stages import progress_folder, read_progress
from foreword.settings import config, plugins
from foreword.train import checkpoint, log
from foreword.train.budget import Budget, Progress

MOST_POINTS = 400  # of a curve
MOST_SAMPLES = 60
MOST_CELLS = 200
MOST_ROWS = 400  # of a table
CURVES = {
    "train": ("step", "loss", "tokens_per_second", "lr", "seconds"),
    "heldout": ("step", "loss", "perplexity", "bits_per_byte", "is_bound"),
}
DAMAGED = "damaged"  # the state of what cannot be read
GRID, RESULTS = "grid.toml", "results.json"  # of a comparison
RUN, COMPARISON, TUNING = "run", "comparison", "tuning"  # kinds of folders


class Watched:
    """A folder of a run, of a comparison of runs, or of a fine-tuning that is not done.

    Args:
        name: what requests call it.
        folder: where it is; no answer says so.
        can_control: whether its training may be stopped and resumed; a fine-tuning's never.
    """

    def __init__(self, name: str, folder: Path, *, can_control: bool = False) -> None:
        self.name, self.folder = name, folder
        self._allows_control = can_control
        self._first_kind = self.kind
        self._child: subprocess.Popen[bytes] | None = None
        self._records: tuple[tuple[int, int], list[dict[str, Any]]] = ((0, 0), [])

    @property
    def kind(self) -> str:
        """What the folder holds."""
        return _kind(self.folder) or TUNING

    @property
    def can_control(self) -> bool:
        """Whether its training may be stopped and resumed; a fine-tuning's never."""
        return self._allows_control and self.kind != TUNING

    @property
    def is_comparison(self) -> bool:
        """Whether the folder holds a comparison."""
        return self.kind == COMPARISON

    @property
    def has_model(self) -> bool:
        """Whether there is a model to serve: a run that has saved one."""
        return not self.is_comparison and is_run(self.folder) and bool(self.steps)

    @property
    def steps(self) -> list[int]:
        """The steps of the checkpoints that a run has kept."""
        return [int(folder.name.removeprefix("step-")) for folder in checkpoint.all_in(self.folder)]

    def checkpoint(self, step: int) -> Path:
        """Return the folder of a checkpoint."""
        return self.folder / "checkpoints" / checkpoint.name_of(step)

    def about(self) -> dict[str, Any]:
        """Return what kind of folder it is, and what goes on in it.

        Raises:
            UserError: its files are damaged, or gone.
        """
        if self._first_kind not in (TUNING, self.kind):
            raise UserError(f"{self.folder}: is no {self._first_kind} any more")
        return {"name": self.name, "kind": self.kind, "checkpoints": self.steps, **self._state()}

    def summary(self) -> dict[str, Any]:
        """Return `about`, or why it cannot be read."""
        try:
            return self.about()
        except UserError as error:
            reason = str(error).replace(str(self.folder), self.name)
            about = {
                "name": self.name,
                "kind": self._first_kind,
                "checkpoints": self.steps,
                "share": 0.0,
            }
            return about | {"state": DAMAGED, "can_control": False, "error": reason}

    def history(self) -> dict[str, Any]:
        """Return all that a page shows of it: curves, samples, checkpoints; of a comparison, cells.

        Raises:
            UserError: its files are damaged.
        """
        about = self.about()
        if self.is_comparison:
            return about | {"cells": list(self._cells()), "tables": self._tables()}
        records = self._read()
        curves = {
            kind: _curve([r for r in records if r["kind"] == kind], columns)
            for kind, columns in CURVES.items()
        }
        samples = [
            {"step": record["step"], **{key: str(s.get(key, "")) for key in ("prompt", "text")}}
            for record in records
            if record["kind"] == "samples"
            for s in record["samples"]
        ]
        more = {"samples": samples[-MOST_SAMPLES:], "tunings": list(self._tunings())}
        return about | curves | more

    # -- what goes on ------------------------------------------------------------------------------

    def _state(self) -> dict[str, Any]:
        state: dict[str, Any] = {"state": "stopped", "can_control": self.can_control}
        if atomic.is_locked(self.folder):
            state["state"] = "training"
        elif self._child is not None and (status := self._child.poll()) is None:
            state["state"] = "starting"
        elif self._child is not None and status:
            state["failed"] = status
        if self.is_comparison:
            return state | self._cells_done(state["state"])
        if self.kind == TUNING:
            ended = "finished" if self.folder.is_dir() else "stopped"
            state["state"] = "training" if any(self._tunings()) else ended
        if not is_run(self.folder):  # its recipe is written last
            return state | {"share": 0.0, "step": 0}
        recipe = read_recipe(self.folder)
        budget, spent = Budget.of(recipe.train), self._spent()
        share = budget.progress(spent)
        is_counted = recipe.model.trains_offline and spent.steps > 0  # at once, without a budget
        share = 1.0 if is_counted else share
        if state["state"] == "stopped" and (share >= 1 or recipe.model.trains_offline):
            state["state"] = "finished"
        about = {
            "description": recipe.description,
            "budget": None if recipe.model.trains_offline else budget.describe(),
        }
        return state | about | {"share": share, "step": spent.steps}

    def _spent(self) -> Progress:
        """Return what is spent of the budget, by the last record or the last checkpoint."""
        spent = Progress()
        for saved in reversed(checkpoint.all_in(self.folder)):
            with suppress(DamagedError):  # or it has just been removed
                spent = Progress(**checkpoint.read_state(saved)["spent"])
                break
        last = next((r for r in reversed(self._read()) if r["kind"] == "train"), None)
        if last is None or last["step"] <= spent.steps:
            return spent
        epochs = spent.epochs * last["step"] / spent.steps if spent.steps else 0.0
        return Progress(last["step"], last["tokens"], last["flops"], last["seconds"], epochs)

    def _read(self) -> list[dict[str, Any]]:
        """Return the records of a run, read again if there are more."""
        try:
            about = (self.folder / log.FILE).stat()
        except OSError:
            return []
        if (mark := (about.st_size, about.st_mtime_ns)) != self._records[0]:
            self._records = (mark, log.read(self.folder))
        return self._records[1]

    def _cells(self) -> Iterator[dict[str, Any]]:
        folders = sorted(path for path in (self.folder / "runs").glob("*") if is_run(path))
        for folder in folders[:MOST_CELLS]:
            cell = Watched(folder.name, folder)
            about = cell.summary()
            records = [] if about["state"] == DAMAGED else cell._read()
            heldout = [record for record in records if record["kind"] == "heldout"]
            yield about | {"heldout": _curve(heldout, CURVES["heldout"])}

    def _cells_done(self, state: str) -> dict[str, Any]:
        """Return how many of a comparison's trainings are done."""
        grid = config.read_toml(self.folder / GRID)
        planned = sum(int(c.get("seeds") or grid.get("seeds", 1)) for c in grid.get("cells", ()))
        runs = [cell["state"] for cell in self._cells()]
        done = runs.count("finished")
        if state == "stopped" and done >= planned:
            state = "finished"
        share = done / planned if planned else 0.0
        about = {"state": state, "planned": planned, "done": done, "share": share}
        return {"description": str(grid.get("description", "")), **about}

    def _tunings(self) -> Iterator[dict[str, Any]]:
        """Yield how far each fine-tuning has come that writes here or to `tuned/` of a run."""
        inside = sorted(self.folder.glob("tuned/.*.progress"))
        for folder in [progress_folder(self.folder), *inside]:
            if (progress := read_progress(folder)) is not None:
                yield {"name": folder.name[1:].removesuffix(".progress"), **progress}

    def _tables(self) -> list[dict[str, Any]]:
        """Return the tables of the results, so far as there are some."""
        try:
            tables = stored.read(self.folder / RESULTS).get("tables", [])
        except DamagedError:  # or there are none yet
            return []
        return [{**table, "rows": table["rows"][:MOST_ROWS]} for table in tables]

    # -- control -----------------------------------------------------------------------------------

    def stop(self) -> None:
        """Ask the process that trains to save and end, as Ctrl-C does.

        Raises:
            UserError: none trains, or the system does not say which.
        """
        self._require_control()
        if not atomic.is_locked(self.folder):
            raise UserError(f"{self.name}: no process trains it")
        if not holders.end_holder(self.folder / atomic.LOCK):
            raise UserError(
                f"{self.name}: the process that trains it is not known here (another user's, or on "
                "another machine); Ctrl-C in its terminal stops it"
            )

    def resume(self) -> None:
        """Continue the training in a process of its own, which goes on when the server ends.

        Raises:
            UserError: it is trained already, or finished.
        """
        self._require_control()
        if (state := self._state()["state"]) != "stopped":
            raise UserError(f"{self.name}: is {state}")
        words = ["resume", str(self.folder)]
        if self.is_comparison:
            words = ["compare", str(self.folder / GRID), "--out", str(self.folder)]
        for root in plugins.plugged_in():
            words += [] if root.distribution else ["--plugins", str(root.folder)]
        command = [sys.executable, "-P", "-m", "foreword", *words, "--quiet"]
        # In a session of its own, Ctrl-C in the server's terminal does not reach it. What it says
        # goes to that terminal: its messages may name files.
        self._child = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, start_new_session=True
        )

    def _require_control(self) -> None:
        if not self.can_control:
            raise UserError(
                "this server may only look; 'foreword app --allow-control' lets its page stop and "
                "resume training"
            )


def is_watchable(folder: Path) -> bool:
    """Return whether a folder is that of a run, begun or not, a comparison, or tuned to now."""
    return _kind(folder) is not None or read_progress(progress_folder(folder)) is not None


def _kind(folder: Path) -> str | None:
    if (folder / GRID).is_file():
        return COMPARISON
    return RUN if (folder / "run.json").is_file() else None


def _curve(records: Sequence[Mapping[str, Any]], columns: Sequence[str]) -> dict[str, list[Any]]:
    """Return records as columns, every n-th of many, with the last."""
    every = -(-len(records) // MOST_POINTS) or 1
    some = [record for n, record in enumerate(records, 1) if n % every == 0 or n == len(records)]
    return {name: [record.get(name) for record in some] for name in columns}
