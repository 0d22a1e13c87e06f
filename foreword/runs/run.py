"""From a recipe and text to a trained run, in reading order.

start      writes the run folder: recipe.toml and run.json
train_run  tokenizer -> shards -> model -> loop, or offline training; completed stages are skipped,
           so a run that was killed at any moment continues from there
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from foreword.data.prepared_text import MANIFEST, PreparedText
from foreword.data.remote import is_url
from foreword.disk import atomic
from foreword.errors import (
    DamagedError,
    NotFiniteError,
    UserError,
    is_out_of_memory,
    quoted_command,
)
from foreword.runs import first_embeddings, provenance
from foreword.runs.continued import StartingModel, load_start
from foreword.runs.corpus import (
    SHARDS,
    corpus,
    describe_text,
    naming_text_in_errors,
    require_text,
)
from foreword.runs.dry_run import dry_run
from foreword.runs.gathered_model import gathered_model
from foreword.runs.hooks import (
    LogMetrics,
    MeasureHeldOut,
    MeasureProbes,
    Probing,
    ProbingOf,
    RunLog,
    Samples,
    SaveCheckpoints,
    ShowSamples,
)
from foreword.runs.not_finite import non_finite_error
from foreword.runs.offline import offline_epochs, train_offline
from foreword.runs.provenance import (
    RECIPE,
    make_provenance,
    read_state,
    write_files,
    write_state,
)
from foreword.runs.recipe import Recipe
from foreword.runs.run_folder import Run, opened
from foreword.runs.setup import (
    TrainingSetup,
    compile_blocks,
    describe_run,
    resolved,
    set_up_training,
    training_loop,
)
from foreword.runs.sizes import require_memory, require_room_for_a_row
from foreword.runs.sources import given_tokenizer, mean_bytes_per_token
from foreword.runs.staged import Stages
from foreword.runs.stages import TRAINING, ProgressReporter, Stage
from foreword.settings import plugins
from foreword.text.tokenizer import Tokenizer
from foreword.train import checkpoint, log, processes
from foreword.train.device import choose_device, precision_warning
from foreword.train.hooks import Hook
from foreword.train.interrupt import stops_on_signals
from foreword.train.joining import first_alone, require_one_process
from foreword.train.loop import Loop, TrainingState
from foreword.train.saving import Saver
from foreword.types import Vocab


@dataclass(frozen=True)
class Inputs:
    """The files that a run reads.

    Attributes:
        texts: files, folders, globs; or one folder that `prepare` wrote; or, of a recipe with
            sources, the path of each.
        tokenizer: a folder or file; None to train one.
        heldout: files, folders, globs to hold out; default a share of `texts`.
        probes: tables of the probes to measure the model by while it trains.
        shared_embeddings: a folder of first embeddings that several runs share, which count them
            once, beside their budgets; None for embeddings of its own.
    """

    texts: tuple[str, ...]
    tokenizer: str | None = None
    heldout: tuple[str, ...] = ()
    probes: tuple[Mapping[str, Any], ...] = ()
    shared_embeddings: Path | None = None


def start(
    recipe: Recipe,
    inputs: Inputs,
    run: Path,
    starting_model: StartingModel | None = None,
    machines: int = 1,
    notes: Mapping[str, Any] | None = None,
) -> None:
    """Write the run folder: `run.json` first, the recipe last.

    Args:
        recipe: recipe of the run, with the model settings of `starting_model` if there is one.
        inputs: the files that the run reads.
        run: the run folder.
        starting_model: a trained model to continue from.
        machines: number of machines like this one that may share the training.
        notes: further fields of `run.json`: what the recipe was derived from, what is expected.

    Raises:
        UserError: the folder is not empty or in use, or as `require_possible`.
    """
    require_free(run)
    texts, heldout = (
        tuple(text if is_url(text) else str(Path(text).resolve()) for text in paths)
        for paths in (inputs.texts, inputs.heldout)
    )
    tokenizer = str(Path(inputs.tokenizer).resolve()) if inputs.tokenizer else None
    require_possible(recipe, Inputs(texts, tokenizer, heldout), starting_model, machines)
    state = {**make_provenance(recipe), "texts": list(texts), "tokenizer": tokenizer}
    state |= {"heldout": list(heldout)} if heldout else {}
    state |= {"probes": [dict(table) for table in inputs.probes]} if inputs.probes else {}
    if inputs.shared_embeddings is not None:
        state[first_embeddings.SHARED] = str(inputs.shared_embeddings.resolve())
    state |= starting_model.provenance if starting_model is not None else {}
    state |= notes or {}
    with starting(run):
        for name in StartingModel.WRITES:  # left by a run killed at its start
            shutil.rmtree(run / name, ignore_errors=True)
        write_state(run, state)
        if starting_model is not None:
            starting_model.save(run)
        write_files(run, state, recipe)


@contextmanager
def starting(run: Path) -> Iterator[None]:
    """Lock a free folder to write a new run; a failure leaves it as it was.

    Raises:
        UserError: the folder holds something already, or another process writes there.
    """
    before, is_ours = names_in(run), False
    try:
        with atomic.locked(run):
            require_free(run)
            is_ours = True
            yield
    except (UserError, KeyboardInterrupt):
        if is_ours:
            undo_start(run, before)
        raise


def require_possible(
    recipe: Recipe, inputs: Inputs, starting_model: StartingModel | None = None, machines: int = 1
) -> None:
    """Check that text, model and machine exist and fit each other, without reading text.

    Args:
        recipe: recipe of the run.
        inputs: the files that it reads.
        starting_model: a trained model to continue from.
        machines: number of machines like this one that may share the training.

    Raises:
        UserError: text, tokenizer, device or a package are missing, parts of the recipe do not
            fit, there is too little memory, or a model trained offline cannot keep the budget.
    """
    require_machine(recipe)
    require_text(recipe, inputs.texts, inputs.heldout)
    if recipe.model.trains_offline:
        offline_epochs(recipe)
    vocab = known_vocab(inputs, starting_model)
    require_memory(recipe, vocab, machines)
    dry_run(recipe, vocab, is_new=starting_model is None)
    require_room_for_a_row(recipe, vocab, machines)


def known_vocab(inputs: Inputs, starting_model: StartingModel | None = None) -> Vocab | None:
    """Return the vocabulary that a run will have; None if it is yet to be learned."""
    if inputs.tokenizer is None and starting_model is not None:
        return starting_model.vocab
    folder = inputs.tokenizer or given_tokenizer(inputs.texts)
    return None if folder is None else Tokenizer.load(folder).vocab


def require_machine(recipe: Recipe) -> None:
    """Check that this machine has the device and the packages that training requires.

    Raises:
        UserError: one is missing.
    """
    choose_device(recipe.train.device, "train.device")
    recipe.model.require_packages()


def require_free(run: Path) -> None:
    """Check that a run can begin in a folder, which may hold the rest of one killed at its start.

    Such files are recognised by the killed run's `run.json`.

    Raises:
        UserError: the folder holds something else.
    """
    atomic.require_writable(run, is_folder=True)
    if (run / "recipe.toml").exists():
        raise UserError(
            f"{run}: already holds a run; {quoted_command('resume', run)} continues it, or choose "
            "another --out"
        )
    begun = {atomic.LOCK, ".run.json.part"}
    if _has_begun(run):
        begun |= {"run.json", ".recipe.toml.part", *StartingModel.WRITES}
    if (names_in(run) or frozenset()) - begun:
        raise UserError(f"{run}: is not empty; choose another --out")


def is_begun(run: Path) -> bool:
    """Return whether a folder holds a run that can be continued."""
    return (run / RECIPE).is_file()


def require_not_a_run(folder: Path) -> None:
    """Check that a folder can be written, and is not a run, a tuned model or a part of one.

    Raises:
        UserError: it cannot, or it is.
    """
    atomic.require_writable(folder, is_folder=True)
    for path in (folder.absolute(), folder.absolute().parent):
        is_trained = any((path / name).is_file() for name in ("run.json", "labels.json"))
        if is_trained and (path / "recipe.toml").is_file():
            raise UserError(f"{folder}: belongs to the model in {path}; choose another --out")


def _has_begun(run: Path) -> bool:
    """Return whether there is a `run.json` that `start` wrote."""
    try:
        provenance = read_state(run)
    except DamagedError:
        return False
    return "foreword" in provenance


def names_in(run: Path) -> frozenset[str] | None:
    """Return the names in a folder, or None if there is no folder."""
    return frozenset(path.name for path in run.iterdir()) if run.is_dir() else None


def has_shards(run: Path) -> bool:
    """Return whether a run has finished shards of its own."""
    return (run / SHARDS / MANIFEST).is_file()


def undo_start(run: Path, before: frozenset[str] | None) -> None:
    """Remove a begun run, unless it has trained or another process works on it.

    Args:
        run: the run folder.
        before: names to keep, from `names_in` before the run began.
    """
    if not run.is_dir() or (run / log.FILE).exists() or checkpoint.all_in(run):
        return
    try:
        with atomic.locked(run):
            for name in (names_in(run) or frozenset()) - {*(before or ()), atomic.LOCK}:
                path = run / name
                shutil.rmtree(path) if path.is_dir() else path.unlink()
    except (OSError, UserError):
        return
    if atomic.LOCK not in (before or ()):
        (run / atomic.LOCK).unlink()
    if before is None:
        run.rmdir()


def train_run(
    folder: Path,
    reporter: ProgressReporter,
    samples: Samples | None = None,
    hooks: Sequence[Hook] = (),
    probing_of: ProbingOf = lambda tables: None,
) -> bool:
    """Complete a run, from the start or from its newest checkpoint.

    Args:
        folder: the run folder.
        reporter: receives messages, stages and records.
        samples: makes samples; None for no samples.
        hooks: called between steps, after the run's own.
        probing_of: returns what measures the model by the probes of these tables.

    Returns:
        True when the budget is spent, False when a signal ended the run.

    Raises:
        TrainingStoppedError: weights or losses are not finite.
        UserError: text or recipe cannot be used, the disk is full, another process works on the
            run, or its files were removed.
    """
    with opened(folder) as run, naming_text_in_errors(folder, run.noted.get("texts", [])):
        probing = probing_of(run.noted.get("probes", []))
        if has_begun := bool(checkpoint.all_in(folder)):
            _require_device(run)
        require_machine(run.recipe)

        # Text: a tokenizer and token shards, made if they do not exist.
        with first_alone():
            tokenizer, prepared = corpus(run, reporter.stage)
        if has_begun:
            _require_same_text(run, prepared)
        if run.recipe.model.trains_offline:
            require_one_process()
            train_offline(run, tokenizer, prepared, reporter, samples, probing)
            return True

        # Model and batches; then the loop, from the start or from the newest checkpoint.
        setup = _set_up(run, tokenizer, prepared, reporter.stage, learns=not has_begun)
        _describe(run, setup, prepared, reporter)
        saver, run_log = Saver(), RunLog(folder, reporter)
        stages = Stages(setup, run_log.write)
        run_hooks = _hooks(run_log, setup, prepared, samples, probing, saver, stages)
        all_hooks = [*run_hooks, *hooks]
        loop = training_loop(setup, all_hooks, reporter.note, reporter.warn, stages.batches)
        stages.keep(log.read(folder))
        _begin(run, loop, setup, reporter, has_begun=has_begun)
        reporter.stage(TRAINING)
        with _stopping_in_one_line(folder, loop, setup), saver, stops_on_signals(loop):
            is_done = loop.train()
        if is_done and processes.is_first():
            _note_result(run)
        return is_done


def _note_result(run: Run) -> None:
    """Note the last held-out loss beside the forecast that was written before the first step."""
    forecast = run.noted.get("forecast")
    heldout = [record for record in log.read(run.folder) if record["kind"] == "heldout"]
    if forecast and heldout:
        name = "bits_per_byte" if forecast.get("unit") == "bits per byte" else "loss"
        run.note(forecast={**forecast, "result": heldout[-1].get(name)})


def _set_up(
    run: Run, tokenizer: Tokenizer, prepared: PreparedText, stage: Stage, *, learns: bool
) -> TrainingSetup:
    """Build model and batches; of several processes the first resolves and notes the settings.

    Args:
        run: the run.
        tokenizer: the tokenizer of the run.
        prepared: its text.
        stage: called with the name of each stage.
        learns: whether to learn first embeddings.
    """
    stage("building the model")
    with first_alone():
        if processes.is_first():
            run.set_recipe(resolved(run.recipe))
        else:
            run.read()
    setup = set_up_training(run.recipe, tokenizer, prepared)
    with first_alone():
        if not processes.is_first():
            run.read()
            return setup
        sources = {s.name: {"share": s.share, "epochs": s.epochs} for s in setup.sources}
        precision = run.recipe.train.precision
        run.note(**provenance.set_up(prepared, setup.model, setup.device, precision, sources))
        if learns:
            first_embeddings.learn(run, setup, prepared, stage)
    return setup


def _describe(
    run: Run, setup: TrainingSetup, prepared: PreparedText, reporter: ProgressReporter
) -> None:
    """Describe the text and the training, and warn of what may surprise."""
    notes = [*describe_text(prepared, setup.tokenizer), describe_run(setup), *setup.notes(prepared)]
    for note in [*notes, *first_embeddings.notes(run)]:
        reporter.note(note)
    emulated = precision_warning(setup.device, setup.dtype)
    for line in [*filter(None, [emulated]), *plugins.changed(run.noted.get("plugins", []))]:
        reporter.warn(line)


def _require_device(run: Run) -> None:
    """Check that this machine has the device that the run was begun on."""
    device, folder = run.recipe.train.device, run.folder
    try:
        choose_device(device)
    except UserError:
        raise UserError(
            f"{folder}: was begun on '{device}', and this machine has none; resume it where there "
            "is one, or begin a new run with "
            f"{quoted_command('pretrain', 'RECIPE', '--from', folder)}"
        ) from None


def _hooks(
    run_log: RunLog,
    setup: TrainingSetup,
    prepared: PreparedText,
    samples: Samples | None,
    probing: Probing | None,
    saver: Saver,
    stages: Stages,
) -> list[Hook]:
    """Return the hooks of every run, in order.

    Probes come before the held-out loss, which may save a checkpoint: a run that is resumed from it
    must have both records. Where a segment begins, the one before it is measured first. Of several
    processes all measure and save together, and the first does the rest; of a sharded model the
    others send it their shards.

    Raises:
        UserError: there are probes, and no process has room for the whole model.
    """
    ends = setup.recipe.ends_texts
    bytes_per_token = prepared.bytes_per_token(ends=ends)
    if setup.sources:
        shares = {source.name: source.share for source in setup.sources}
        bytes_per_token = mean_bytes_per_token(prepared, shares, ends=ends)
    checkpoints = SaveCheckpoints(run_log, setup.recipe, saver)
    measure = MeasureHeldOut(run_log, setup, bytes_per_token, checkpoints, stages)
    if not processes.is_first() and setup.sharded is None:
        return [measure, stages, checkpoints]
    whole = gathered_model(setup)
    if whole is None:
        run_log.reporter.note("no samples: no process has memory for the whole model")
        if probing is not None:
            raise UserError("probes need the whole model, and no process has memory for it")
    shows = (
        [] if samples is None or whole is None else [ShowSamples(run_log, whole, samples, stages)]
    )
    probes = (
        [] if probing is None or whole is None else [MeasureProbes(run_log, whole, probing, stages)]
    )
    logs = [LogMetrics(run_log, setup)] if processes.is_first() else []
    return [*logs, *probes, measure, *shows, stages, checkpoints]


def _begin(
    run: Run, loop: Loop, setup: TrainingSetup, reporter: ProgressReporter, *, has_begun: bool
) -> None:
    """Give the loop its first weights and counters: of the newest checkpoint, or of the start."""
    if has_begun:
        _resume(run.folder, loop, setup, reporter)
    else:
        load_start(run.folder, setup.model)
        loop.state.before = first_embeddings.load(run, setup)
        loop.state.spent = replace(loop.state.before)
        loop.budget.require_step(loop.options.flops)
    if processes.is_first():
        log.rewind(run.folder, loop.state.spent.steps if has_begun else -1)
    if setup.recipe.train.compile == "on":
        compile_blocks(setup.model)


def _resume(run: Path, loop: Loop, setup: TrainingSetup, reporter: ProgressReporter) -> None:
    """Restore weights, optimizer, memory and state from the newest complete checkpoint."""
    damaged: list[str] = []
    folder = checkpoint.newest(run, damaged, together=True)
    for line in damaged:
        reporter.warn(line)
    checkpoint.load_weights(folder, setup.model)
    checkpoint.load_optimizer(folder, setup.model, loop.optimizer)
    loop.state = TrainingState.load(checkpoint.read_state(folder))
    pieces = setup.feed.pieces
    memory = checkpoint.load_memory(folder, setup.device)
    loop.memory = processes.redivide(memory, int(pieces[0][0]), tuple(map(len, pieces)))
    loop.average.restore(checkpoint.load_unaveraged(folder, setup.model))
    loop.last_finite_step = loop.state.spent.steps
    spent = ", after which nothing of the budget is left" if loop.progress >= 1 else ""
    reporter.note(f"resuming from step {loop.state.spent.steps:,}{spent}")


@contextmanager
def _stopping_in_one_line(folder: Path, loop: Loop, setup: TrainingSetup) -> Iterator[None]:
    """Turn an early end of the loop into a message of one line."""
    begun = loop.last_finite_step
    try:
        yield
    except (RuntimeError, MemoryError) as error:
        if not is_out_of_memory(error):
            raise
        raise UserError(
            f"out of memory on {setup.device.type}; use --set train.micro_batch="
            f"{max(1, setup.feed.micro_batch // 2)} or less"
        ) from error
    except NotFiniteError as error:
        why = f"step {loop.state.spent.steps}: {error}"
        raise non_finite_error(folder, setup.recipe, why, loop.last_finite_step, begun) from error


def _require_same_text(run: Run, prepared: PreparedText) -> None:
    """Check that the text is the one that the run began with."""
    before = run.noted.get("data")
    if before is not None and before["fingerprint"] != prepared.fingerprint:
        raise UserError(
            f"{prepared.folder}: the text has changed since the run began; restore it, or start a "
            "new run"
        )
