"""`foreword.pretrain` and `foreword.resume`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from foreword.api import _arguments
from foreword.api._arguments import PathName, Paths, Settings, Track, checked
from foreword.api._result import FactsAndRows
from foreword.api.progress import ProgressDisplay, Quiet, progress_of
from foreword.api.request import RunRequest, request
from foreword.disk import credentials
from foreword.errors import UserError
from foreword.evaluation.loaded import LoadedModel, load
from foreword.evaluation.samples import samples
from foreword.probes._contract import Probe
from foreword.probes._while_training import probe_of, probing, tables_of
from foreword.runs import run as running
from foreword.runs.override import override
from foreword.runs.recipe import Recipe
from foreword.runs.tracking import tracked, trackers_of
from foreword.settings.ranges import CountOrZero
from foreword.train import log, processes
from foreword.train.device import choose_device
from foreword.train.hooks import Hook
from foreword.train.joining import fail_first, first_alone, is_restart, joined


@dataclass(frozen=True, repr=False)
class PretrainingResult(FactsAndRows):
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
    def loss(self) -> float | None:
        """The last held-out loss, nats per prediction; None if it was never measured."""
        return self.last.get("heldout", {}).get("loss")

    @property
    def records(self) -> list[dict[str, Any]]:
        """All records of the run's log, in order."""
        return log.read(self.run)

    def __fspath__(self) -> str:
        return str(self.run)

    def load(self, device: str = "auto") -> LoadedModel:
        """Return the trained model.

        Raises:
            UserError: nothing is saved yet.
        """
        return load(self.run, device)

    def _facts(self) -> Mapping[str, Any]:
        train, heldout = self.last.get("train", {}), self.last.get("heldout", {})
        return {
            "run": self.run,
            "done": self.is_done,
            "steps": train.get("step"),
            "tokens": train.get("tokens"),
            "training loss": train.get("loss"),
            "held-out loss": heldout.get("loss"),
            "perplexity": heldout.get("perplexity"),
            "bits per byte": heldout.get("bits_per_byte"),
        }


@checked
def pretrain(
    recipe: PathName | Recipe,
    data: Paths | None = None,
    out: PathName = "run",
    *,
    texts: Iterable[str] | None = None,
    heldout: Paths | float | None = None,
    tokenizer: PathName | None = None,
    from_: PathName | None = None,
    extend_vocabulary: CountOrZero = 0,
    settings: Settings = (),
    hours: float | None = None,
    tokens: float | None = None,
    epochs: float | None = None,
    steps: int | None = None,
    flops: float | None = None,
    field: str | None = None,
    target: str | None = None,
    documents: str | None = None,
    errors: str | None = None,
    track: Track = (),
    probes: str | Probe | Sequence[str | Probe] = (),
    hooks: Sequence[Hook] = (),
    progress: bool | ProgressDisplay = True,
) -> PretrainingResult:
    """Pretrain a model on text.

        run = foreword.pretrain("bert_mini", "books/", "runs/books", hours=1)
        run.load().fill("The old man went to [MASK].")

    With a dial in place of a recipe, `encoder`, `decoder` or `encoder_decoder`, model and training
    are chosen by `hours`, this machine and the text: `foreword.show("encoder")`.

    A tokenizer is trained if none is given, and token shards are written if there are none. Ctrl-C
    ends it saved; `foreword.resume` continues.

    Args:
        recipe: the name of a shipped recipe (`foreword.show("recipes")`), a `.toml` file, a
            recipe object, or a dial.
        data: text files, folders or globs (.txt, .md, .jsonl, .parquet, .warc, any of them
            compressed); or a folder that `foreword.prepare` wrote, which may be on object storage
            (`s3://bucket/shards`) and is then read while training. Of a recipe with
            `[[data.sources]]`, the folder that their paths start from; default: the current folder.
        out: the run folder to create.
        texts: documents in place of `data`, any iterable of texts, read once; they are kept in
            `OUT.jsonl`, from which the run can be resumed.
        heldout: text never trained on: a share of the documents, or files, folders, globs.
        tokenizer: its folder; default: train one on the text.
        from_: start from the weights of a run or of a Hugging Face folder.
        extend_vocabulary: with `from_`, the number of new tokens to learn from the text.
        settings: of the recipe, by name: `{"model.layers": 6, "objective.rate": 0.3}`.
        hours: budget in hours of training; tokenizer and token shards are made before.
        tokens: budget in tokens.
        epochs: budget in readings of the text.
        steps: budget in steps.
        flops: budget in floating-point operations.
        field: field of JSON or column of Parquet that holds the text.
        target: for parallel text, the field of the target side.
        documents: what is one document in plain text: file, paragraph or line.
        errors: bytes that are not UTF-8: strict stops, replace replaces and counts.
        track: where the records go too: `"tensorboard"`, `"wandb"`, or a tracker object.
        probes: measures of the model before training and at each evaluation, as a curve:
            `"minimal_pairs files=blimp/"`, or a probe object; `foreword.show("probes")`. They come
            after those of the recipe.
        hooks: called between steps; see `foreword.train.hooks.Hook`.
        progress: whether to show the progress, or what shows it.

    Raises:
        UserError: bad text, an impossible recipe, `out` holds something; the message says what is
            wrong, where, and how to fix it.
        TrainingStoppedError: the loss is no longer finite.
    """
    run = _arguments.path(out, "--out")
    if data is not None and texts is not None:
        raise UserError(_arguments.DATA_OR_TEXTS)
    _arguments.require_hooks(hooks)
    display = progress_of(progress, announces=True)
    sources = _arguments.paths(data)
    for source in sources:
        credentials.remember(source)  # by each of several processes
    with joined():
        if not processes.is_first() or (is_restart() and running.is_begun(run)):
            with first_alone():  # the first process begins the run
                pass
            return _train(run, display, hooks=hooks, track=track)
        running.require_free(run)
        trackers_of(track)
        tables = tables_of(probes)
        run_request = request(
            recipe,
            sources if texts is None else [str(_arguments.texts_file(run))],
            settings=_arguments.assignments(settings),
            budget=_arguments.budget_of(
                hours=hours, tokens=tokens, epochs=epochs, steps=steps, flops=flops
            ),
            heldout=_arguments.heldout(heldout),
            reading=_arguments.given_reading_of(
                texts, field=field, target=target, documents=documents, errors=errors
            ),
            tokenizer=None if tokenizer is None else str(_arguments.path(tokenizer, "--tokenizer")),
            from_=None if from_ is None else str(_arguments.path(from_, "--from")),
            extend_vocabulary=extend_vocabulary,
            note=display.note,
        )
        recipe_probes = tuple(map(probe_of, run_request.recipe.probes))
        inputs = replace(run_request.inputs, probes=tables_of(recipe_probes) + tables)
        probed = replace(run_request.recipe, probes=recipe_probes)
        run_request = replace(run_request, recipe=probed, inputs=inputs)
        with _arguments.kept(texts, run):
            return _start(run_request, run, display, hooks=hooks, track=track)


def _start(
    run_request: RunRequest,
    run: Path,
    progress: ProgressDisplay,
    *,
    hooks: Sequence[Hook],
    track: Track,
) -> PretrainingResult:
    """Create a run folder and train; a run that cannot begin leaves nothing behind.

    If only the disk is to blame, finished shards stay, and the run can be resumed.
    """
    before = running.names_in(run)
    running.require_free(run)
    run_request = run_request.extended(progress.note)
    try:
        facts = None
        if run_request.dial is not None:
            facts = run_request.dial.facts
            progress.note(run_request.dial.summary)
        device = choose_device(run_request.recipe.train.device, "train.device")
        machines = processes.memories(device) if run_request.recipe.parallel.may_shard else 1
        with first_alone():
            running.start(
                run_request.recipe,
                run_request.inputs,
                run,
                run_request.starting_model,
                machines,
                facts,
            )
        return _train(run, progress, hooks=hooks, track=track)
    except UserError as error:
        fail_first()  # others would miss what is undone
        if not (isinstance(error.__cause__, OSError) and running.has_shards(run)):
            running.undo_start(run, before)
        raise


@checked
def resume(
    run: PathName,
    *,
    settings: Settings = (),
    track: Track = (),
    hooks: Sequence[Hook] = (),
    progress: bool | ProgressDisplay = True,
) -> PretrainingResult:
    """Continue a run from its newest complete checkpoint.

    With a budget in steps, epochs, tokens or FLOPs it ends as if it had never been stopped, bit for
    bit on the CPU. With a budget in hours it uses the hours that are left.

    Args:
        run: the run folder.
        settings: of `optimizer.*`, `parallel.*`, or `train.clip`, to change from here on.
        track: as in `pretrain`; the same tracker continues the same run there.
        hooks: called between steps.
        progress: whether to show the progress, or what shows it.

    Raises:
        UserError: no such run, or its text has changed.
        TrainingStoppedError: the loss is no longer finite.
    """
    folder = _arguments.path(run, "RUN")
    _arguments.require_hooks(hooks)
    display = progress_of(progress, announces=True)
    with joined():
        with first_alone():
            if processes.is_first():
                trackers_of(track)
                if changed := _arguments.assignments(settings):
                    override(folder, changed)
        return _train(folder, display, hooks=hooks, track=track)


def _train(
    run: Path,
    progress: ProgressDisplay,
    *,
    hooks: Sequence[Hook],
    track: Track,
) -> PretrainingResult:
    """Train what is left of a run; of several processes the first shows and tracks it."""
    if not processes.is_first():
        track, progress = (), Quiet(warns=False)
    with tracked(run, trackers_of(track), progress) as reporter, progress:
        is_done = running.train_run(run, reporter, progress.stage, samples, hooks, probing)
    return PretrainingResult(run, is_done, {r["kind"]: r for r in log.read(run)})
