"""`foreword resume`."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

from foreword.verbs._arguments import assignments
from foreword.verbs._contract import ARGUMENT, SET, PathName, Settings
from foreword.verbs._run import PretrainingResult, TrainsRun


@dataclass(frozen=True)
class Resume(TrainsRun):
    """Continue a run from its newest complete checkpoint.

        foreword.resume("runs/books")

    With a budget in steps, epochs, tokens or FLOPs it ends as if it had never been stopped, bit for
    bit on the CPU. With a budget in hours it uses the hours that are left; the learning rate then
    follows the clock, so no two such runs are equal.

    A run that stopped because its loss was no longer finite may continue with a lower learning
    rate: --set changes the recipe, and run.json records it.

    The number of processes may differ from that before: the same rows are read in the same order.

    Attributes:
        run: the run folder.
        settings: a setting of optimizer.* or parallel.*, or train.clip, to change from here on:
            optimizer.lr=1e-4.
    """

    run: Annotated[PathName, ARGUMENT]
    settings: Annotated[Settings, SET] = field(default=(), kw_only=True)

    @property
    def folder(self) -> Path:
        """The run folder."""
        return Path(self.run)

    def __call__(self) -> PretrainingResult:
        from foreword.runs.override import override
        from foreword.runs.tracking import trackers_of
        from foreword.train import processes
        from foreword.train.joining import first_alone, joined

        folder, display = self.folder, self.opened_progress()
        with joined():
            with first_alone():
                if processes.is_first():
                    trackers_of(self.track)
                    if changed := assignments(self.settings):
                        override(folder, changed)
            return self.train(display)
