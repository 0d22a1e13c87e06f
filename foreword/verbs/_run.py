"""The arguments of verbs that train a run, and what they return."""

from __future__ import annotations

import reprlib
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from foreword.display.progress import ProgressDisplay, Quiet
from foreword.display.results import Facts, Part, Result, Text
from foreword.errors import INTERRUPTED, UserError, quoted_command
from foreword.settings.ranges import Count
from foreword.train.hooks import Hook
from foreword.verbs._contract import PYTHON_ONLY, Verb
from foreword.verbs._groups import ShowsProgress, Tracks

if TYPE_CHECKING:
    from foreword.evaluation.loaded import LoadedModel

RECIPE = "recipe.toml"  # which a run has once it has begun


@dataclass(frozen=True, repr=False)
class PretrainingResult(Result):
    """A run that was trained, to its end or up to an interrupt.

    Attributes:
        run: the run folder.
        is_done: whether the budget is spent; if not, `foreword.resume(run)` continues.
        last: the last record of each kind in the run's log, by kind: `train`, `heldout`, `samples`.
    """

    run: Path
    is_done: bool
    last: Mapping[str, Mapping[str, Any]]

    @property
    def status(self) -> int:
        """The exit status of the command."""
        return 0 if self.is_done else INTERRUPTED

    @property
    def loss(self) -> float | None:
        """The last held-out loss, nats per prediction; None if it was never measured."""
        return self.last.get("heldout", {}).get("loss")

    @property
    def records(self) -> list[dict[str, Any]]:
        """All records of the run's log, in order."""
        from foreword.train import log

        return log.read(self.run)

    def __fspath__(self) -> str:
        return str(self.run)

    def load(self, device: str = "auto") -> LoadedModel:
        """Return the trained model.

        Raises:
            UserError: nothing is saved yet.
        """
        from foreword.evaluation.loaded import load

        return load(self.run, device)

    def tables(self) -> Sequence[Part]:
        """Return the last records, and what may follow."""
        train, heldout = self.last.get("train", {}), self.last.get("heldout", {})
        of = " at most" if heldout.get("is_bound") else ""
        facts = {
            "run": self.run,
            "done": self.is_done,
            "steps": train.get("step"),
            "tokens": train.get("tokens"),
            "training loss": train.get("loss"),
            f"held-out loss{of}": heldout.get("loss"),
            f"perplexity{of}": heldout.get("perplexity"),
            f"bits per byte{of}": heldout.get("bits_per_byte"),
        }
        following = f"{quoted_command('report', self.run)} shows it"
        if not self.is_done:
            following = f"stopped and saved; {quoted_command('resume', self.run)} continues"
        begun = self._beginning()
        return [Facts(facts), *([Text(begun)] if begun else []), Text(following)]

    def _beginning(self) -> str:
        """Return how a run with weights of another began, beside one from scratch; "" for none."""
        from foreword.formatting import at_most, figure
        from foreword.runs.run_folder import read_recipe
        from foreword.text.tokenizer import Tokenizer

        heldout = [record for record in self.records if record["kind"] == "heldout"]
        if not heldout or heldout[0]["step"] or heldout[0]["loss"] is None:
            return ""
        vocab = Tokenizer.load(self.run / "tokenizer", is_part=True).vocab.size
        chance = read_recipe(self.run).objective.chance_loss(vocab)
        losses = [at_most(figure(each["loss"]), "is_bound" in each) for each in heldout[:2]]
        after = f", {losses[1]} at step {heldout[1]['step']:,}" if heldout[1:] else ""
        return (
            f"held-out loss {losses[0]} before the first step{after}; from scratch it begins near "
            f"{figure(chance)}, that of uniform predictions"
        )

    def data(self) -> dict[str, Any]:
        """Return the run, and its last records."""
        return {"run": str(self.run), "done": self.is_done, "last": dict(self.last)}


@dataclass(frozen=True, kw_only=True)
class TrainsRun(Tracks, ShowsProgress, Verb[PretrainingResult], ABC):
    """A verb that trains a run.

    Attributes:
        processes: processes that share each step; a GPU each where there are GPUs.
        hooks: called between steps; see `foreword.train.hooks.Hook`.
    """

    processes: Count = 1
    hooks: Annotated[Sequence[Hook], PYTHON_ONLY] = ()

    @property
    @abstractmethod
    def folder(self) -> Path:
        """The run folder."""

    def interrupted(self) -> str:
        """Return what to say if it was interrupted before it saved."""
        if (self.folder / RECIPE).is_file():
            return f"interrupted; {quoted_command('resume', self.folder)} continues"
        return "interrupted before the run began; run the same command again"

    def opened_progress(self) -> ProgressDisplay:
        """Check what is only given in Python, and return the progress display.

        Raises:
            UserError: hooks are not hooks, or there are not as many processes as asked for.
        """
        from foreword.tables.given import items_of
        from foreword.train.joining import is_launched, launched_count

        if self.processes not in (1, launched_count()):
            raise UserError(
                f"--processes {self.processes}: torchrun has started {launched_count()}; leave it "
                "out"
                if is_launched()
                else f"processes: Python has started 1; start the program by torchrun "
                f"--nproc-per-node {self.processes}, and leave it out"
            )
        for number, hook in enumerate(items_of(self.hooks, "hooks", "hooks")):
            if not isinstance(hook, Hook):
                raise UserError(
                    f"hooks[{number}]: expected an object of a class of foreword.train.hooks.Hook, "
                    f"got {reprlib.repr(hook)}"
                )
        return self.display(announces=True)

    def train(self, progress: ProgressDisplay) -> PretrainingResult:
        """Train what is left of the run; of several processes the first shows and tracks it.

        Raises:
            UserError: no such run, or its text has changed.
            TrainingStoppedError: the loss is no longer finite.
        """
        from foreword.evaluation.samples import samples
        from foreword.probes._while_training import probing
        from foreword.reports import model_card
        from foreword.runs.run import train_run
        from foreword.runs.tracking import tracked, trackers_of
        from foreword.train import log, processes

        track = self.track
        if not processes.is_first():
            track, progress = (), Quiet(warns=False)
        run = self.folder
        with tracked(run, trackers_of(track), progress) as reporter, progress:
            is_done = train_run(run, reporter, samples, self.hooks, probing)
        if processes.is_first():
            model_card.write(run, run, model_card.OWN, {})
        return PretrainingResult(run, is_done, {r["kind"]: r for r in log.read(run)})
