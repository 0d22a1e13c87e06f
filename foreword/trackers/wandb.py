"""Weights & Biases."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from foreword.trackers._contract import TrackedRun, Tracker, samples, scalars


@dataclass(frozen=True)
class Wandb(Tracker):
    """Send the records to Weights & Biases, or keep them in `RUN/wandb` (`WANDB_MODE=offline`).

    The variables of its own (`WANDB_MODE`, `WANDB_PROJECT`, `WANDB_ENTITY`, ...) are heeded.

    Attributes:
        project: the project; "" for that of `WANDB_PROJECT`, or `foreword`.

    Also called: weights and biases.
    """

    package: ClassVar[str] = "wandb"

    project: str = ""

    def open(self, folder: Path, name: str, identity: str) -> TrackedRun:
        """Begin a run, or continue the one of this identity; a login may be asked for."""
        import os

        import wandb

        run = wandb.init(
            project=self.project or os.environ.get("WANDB_PROJECT") or "foreword",
            id=identity,
            name=name,
            dir=str(folder),
            resume="allow",
            settings=wandb.Settings(silent=True, console="off"),
        )
        run.define_metric("*", step_metric="step")
        return _OpenRun(run, wandb.Table)


class _OpenRun(TrackedRun):
    def __init__(self, run: Any, table: Any) -> None:
        self._run, self._table = run, table

    def configure(self, config: Mapping[str, Any]) -> None:
        self._run.config.update(dict(config), allow_val_change=True)

    def record(self, record: Mapping[str, Any]) -> None:
        values: dict[str, Any] = {"step": record["step"], **scalars(record)}
        if texts := samples(record):
            rows = [[one["prompt"], one["text"]] for one in texts]
            values[record["kind"]] = self._table(columns=["prompt", "text"], data=rows)
        self._run.log(values)

    def close(self, *, is_failed: bool) -> None:
        self._run.finish(exit_code=int(is_failed))
