"""`foreword resume`."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from pathlib import Path
from typing import Annotated

from foreword.errors import UserError
from foreword.verbs._arguments import assignments
from foreword.verbs._contract import ARGUMENT, SET, PathName, Settings
from foreword.verbs._groups import Budgets
from foreword.verbs._run import PretrainingResult, TrainsRun


@dataclass(frozen=True)
class Resume(Budgets, TrainsRun):
    """Continue a run from its newest complete checkpoint.

        foreword.resume("runs/books")

    With a budget in steps, epochs, tokens or FLOPs it ends as if it had never been stopped, bit for
    bit on the CPU. With a budget in hours it uses the hours that are left; the learning rate then
    follows the clock, so no two such runs are equal.

    A run that stopped because its loss was no longer finite may continue with a lower learning
    rate: --set changes the recipe, and run.json records it.

    The number of processes may differ from that before: the same rows are read in the same order.

    With --out a new run goes on from a checkpoint, and the old one stays. With schedule wsd or
    constant it may end at another budget, that of the whole training:

        foreword.resume("runs/books/checkpoints/step-00004000", out="runs/short", steps=5000)

    decays from step 4,000 on. If the warm-up is in steps, it ends as if trained alone for 5,000.

    Attributes:
        run: the run folder; with --out also one of its checkpoints/step-*.
        out: folder of a new run, which goes on from the checkpoint.
        settings: a setting of optimizer.* or parallel.*, or train.clip, to change from here on:
            optimizer.lr=1e-4; with --out, of schedule.*, or how often to measure and save.
    """

    run: Annotated[PathName, ARGUMENT]
    _: KW_ONLY
    out: PathName | None = None
    settings: Annotated[Settings, SET] = ()

    @property
    def folder(self) -> Path:
        """The run folder."""
        return Path(self.run if self.out is None else self.out)

    def __call__(self) -> PretrainingResult:
        from foreword.runs.branch import branch
        from foreword.runs.override import override
        from foreword.runs.tracking import trackers_of
        from foreword.train import processes
        from foreword.train.joining import first_alone, joined

        folder, display = self.folder, self.opened_progress()
        budget, changed = self.budget(), assignments(self.settings)
        if budget is not None and self.out is None:
            raise UserError(
                f"--{budget.unit}: a run keeps its budget; with --out NEW a new run goes on from "
                "its checkpoint to another"
            )
        with joined():
            with first_alone():
                if processes.is_first():
                    trackers_of(self.track)
                    if self.out is not None:
                        branch(Path(self.run), folder, budget, changed)
                    elif changed:
                        override(folder, changed)
            return self.train(display)
