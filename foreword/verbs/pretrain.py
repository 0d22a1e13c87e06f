"""`foreword pretrain`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import KW_ONLY, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from foreword.display.progress import ProgressDisplay
from foreword.errors import UserError
from foreword.verbs._arguments import saved_texts
from foreword.verbs._contract import REQUIRED, Flag, PathName
from foreword.verbs._groups import TakesTexts
from foreword.verbs._recipe import Trains
from foreword.verbs._run import PretrainingResult, TrainsRun

if TYPE_CHECKING:
    from foreword.planning.request import RunRequest
    from foreword.probes._contract import Probe


@dataclass(frozen=True)
class Pretrain(TakesTexts, Trains, TrainsRun):
    """Pretrain a model on your own text.

        run = foreword.pretrain("bert_mini", "books/", "runs/books", hours=1)
        run.load().fill("The old man went to [MASK].")

    It trains a tokenizer if none is given, and writes token shards if there are none. Kill it at
    any moment; `foreword resume` continues. With --from, weights, architecture and tokenizer come
    from that model, the rest from the recipe. If --heldout names text, all of --data is trained on.
    Without a budget, such as --hours, that of the recipe holds.

    --processes 4 divides each step among four processes, with a GPU each where there are GPUs; so
    does torchrun --nproc-per-node 4 -m foreword pretrain ... The run is the same on any number.

    Attributes:
        out: run folder to create.
        probes: measure before training and at each evaluation, after the recipe's probes:
            "minimal_pairs files=blimp/"; repeatable.
    """

    out: Annotated[PathName, REQUIRED] = "run"
    _: KW_ONLY
    probes: Annotated[str | Probe | Sequence[str | Probe], Flag(("--probe",), takes=list[str])] = ()

    @property
    def folder(self) -> Path:
        """The run folder."""
        return Path(self.out)

    def __call__(self) -> PretrainingResult:
        from foreword.disk import credentials
        from foreword.probes._while_training import tables_of
        from foreword.runs import run as running
        from foreword.runs.tracking import trackers_of
        from foreword.train import processes
        from foreword.train.joining import first_alone, is_restart, joined

        run = self.folder
        display = self.opened_progress()
        data = self.files(self.text(), run, is_needed=False)
        for source in data:
            credentials.remember(source)  # by each of several processes
        with joined():
            if not processes.is_first() or (is_restart() and running.is_begun(run)):
                with first_alone():  # the first process begins the run
                    pass
                return self.train(display)
            running.require_free(run)
            trackers_of(self.track)
            tables = tables_of(self.probes)
            request = self._with_probes(self.request(data, display.note), tables)
            with saved_texts(self.texts, run), self._started(request, display):
                return self.train(display)

    def _with_probes(self, request: RunRequest, tables: tuple[dict[str, Any], ...]) -> RunRequest:
        """Return the request with the probes of the recipe, and those of `tables`."""
        from foreword.probes._while_training import probe_of, tables_of

        probes = tuple(map(probe_of, request.recipe.probes))
        return replace(
            request,
            recipe=replace(request.recipe, probes=probes),
            inputs=replace(request.inputs, probes=tables_of(probes) + tables),
        )

    @contextmanager
    def _started(self, request: RunRequest, progress: ProgressDisplay) -> Iterator[None]:
        """Create a run folder to train in; a run that cannot begin leaves nothing behind."""
        from foreword.planning.forecast import forecast_notes
        from foreword.runs import run as running
        from foreword.train import processes
        from foreword.train.device import choose_device
        from foreword.train.joining import fail_first, first_alone

        run = self.folder
        before, has_begun = running.names_in(run), False
        running.require_free(run)
        request = request.continued(progress.note).extended(progress.note)
        try:
            facts = {}
            if request.dial is not None:
                facts["dial"] = request.dial.facts
                for line in filter(None, [request.dial.summary, request.dial.counting]):
                    progress.note(line)
            if processes.is_first():
                facts |= forecast_notes(request)
            recipe, start = request.recipe, request.starting_model
            device = choose_device(recipe.train.device, "train.device")
            machines = processes.memories(device) if recipe.parallel.may_shard else 1
            with first_alone():
                running.start(recipe, request.inputs, run, start, machines, facts)
            has_begun = True
            yield
        except UserError as error:
            fail_first()  # others would miss what is undone
            # Where only the disk is to blame, finished shards stay, and the run can be resumed.
            keeps = isinstance(error.__cause__, OSError) and running.has_shards(run)
            if has_begun and not keeps:  # else what stands there is another process's
                running.undo_start(run, before)
            raise
