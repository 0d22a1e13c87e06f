"""From a recipe and text to a trained run, in reading order.

start      writes the run folder: recipe.toml and run.json
carry_on   tokenizer -> shards -> model -> loop, or a fit at once; each stage is skipped where it is
           done already, so a run that was killed at any moment carries on from where it stood
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from foreword import atomic
from foreword.data.prepared import Prepared
from foreword.errors import DamagedError, UserError
from foreword.text.tokenizer import Tokenizer
from foreword.train import checkpoint, log
from foreword.train.continued import Foundation, load_start
from foreword.train.corpus import (
    TRAINING,
    Stage,
    corpus,
    describe_text,
    is_prepared,
    of_text,
    require_texts,
)
from foreword.train.fitting import epochs_of, fit_run
from foreword.train.loop import Loop, Samples, Watcher
from foreword.train.opened import read_recipe
from foreword.train.origin import note_data, origin, read_state, write_recipe, write_state
from foreword.train.ready import Ready, compile_blocks, describe_run, make_ready
from foreword.train.recipe import Recipe
from foreword.train.sizes import require_memory
from foreword.train.trial import try_out


@dataclass(frozen=True)
class Inputs:
    """What a run reads.

    Attributes:
        texts: files, folders, globs; or one folder that `prepare` wrote.
        tokenizer: a folder or file, or None to train one.
        heldout: files, folders, globs that are held out; without them a share of `texts` is.
    """

    texts: tuple[str, ...]
    tokenizer: str | None = None
    heldout: tuple[str, ...] = ()


def start(
    recipe: Recipe,
    inputs: Inputs,
    run: Path,
    foundation: Foundation | None = None,
    machines: int = 1,
) -> None:
    """Writes the run folder: `run.json` first, and the recipe last.

    Args:
        recipe: with the model of the foundation, where there is one.
        inputs: what the run reads.
        run: the folder.
        foundation: a trained model to go on from.
        machines: how many like this one may share the training.

    Raises:
        UserError: the folder already holds something, or another process is at work there; or as
            `require_possible`.
    """
    require_free(run)
    texts, heldout = (
        tuple(str(Path(text).resolve()) for text in given)
        for given in (inputs.texts, inputs.heldout)
    )
    tokenizer = str(Path(inputs.tokenizer).resolve()) if inputs.tokenizer else None
    require_possible(recipe, Inputs(texts, tokenizer, heldout), foundation, machines)
    provenance = {**origin(), "texts": list(texts), "tokenizer": tokenizer}
    provenance |= {"heldout": list(heldout)} if heldout else {}
    provenance |= foundation.provenance if foundation is not None else {}
    with atomic.alone(run):
        require_free(run)  # still
        for name in Foundation.WRITES:  # of one that was killed as it began
            shutil.rmtree(run / name, ignore_errors=True)
        write_state(run, provenance)
        if foundation is not None:
            foundation.save(run)
        write_recipe(run, recipe)


def require_possible(
    recipe: Recipe, inputs: Inputs, foundation: Foundation | None = None, machines: int = 1
) -> None:
    """Makes sure that there is such text, and such a model to train on it; none of it is read.

    Args:
        recipe: of the run.
        inputs: what it reads.
        foundation: a trained model to go on from.
        machines: how many like this one may share the training.

    Raises:
        UserError: there is no such text or tokenizer, parts of the recipe do not fit, there is too
            little memory, or a budget that a fitted model cannot keep.
    """
    require_texts(inputs.texts, inputs.heldout, recipe.read)
    if recipe.model.is_fitted:
        epochs_of(recipe)
    tokenizer = None if foundation is None else foundation.tokenizer
    if inputs.tokenizer is not None:
        tokenizer = Tokenizer.load(inputs.tokenizer)
    elif is_prepared(inputs.texts):
        tokenizer = tokenizer or Tokenizer.load(Path(inputs.texts[0]) / "tokenizer")
    vocab = None if tokenizer is None else tokenizer.vocab
    require_memory(recipe, vocab, machines)
    try_out(recipe, vocab)


def require_free(run: Path) -> None:
    """Makes sure that a run can begin in the folder `run`; one killed as it began does not count.

    What such a one may have left counts as its own only beside the `run.json` that it began with.

    Raises:
        UserError: it cannot.
    """
    atomic.require_no_device(run)
    if run.is_file():
        raise UserError(f"{run}: is a file; choose another --out")
    if (run / "recipe.toml").exists():
        raise UserError(
            f"{run}: already holds a run; 'foreword resume {run}' carries on with it, or choose "
            "another --out"
        )
    begun = {atomic.LOCK, ".run.json.part"}
    if _has_begun(run):
        begun |= {"run.json", ".recipe.toml.part", *Foundation.WRITES}
    if (names_in(run) or frozenset()) - begun:
        raise UserError(f"{run}: is not empty; choose another --out")


def _has_begun(run: Path) -> bool:
    """Whether there is a `run.json` that `start` wrote."""
    try:
        provenance = read_state(run)
    except DamagedError:
        return False
    return "foreword" in provenance


def names_in(run: Path) -> frozenset[str] | None:
    """What stands in a folder, or None where there is no folder."""
    return frozenset(path.name for path in run.iterdir()) if run.is_dir() else None


def take_back(run: Path, before: frozenset[str] | None) -> None:
    """Removes what was begun of a run, if nothing was trained and no other process works on it.

    Args:
        run: the folder.
        before: what stood in it before, as `names_in` says, and stays.
    """
    if not run.is_dir() or (run / log.FILE).exists():
        return
    try:
        with atomic.alone(run):
            for name in (names_in(run) or frozenset()) - {*(before or ()), atomic.LOCK}:
                path = run / name
                shutil.rmtree(path) if path.is_dir() else path.unlink()
    except (OSError, UserError):
        return
    if atomic.LOCK not in (before or ()):
        (run / atomic.LOCK).unlink()
    if before is None:
        run.rmdir()


def carry_on(run: Path, watcher: Watcher, stage: Stage, samples: Samples | None = None) -> bool:
    """Runs what is left of a run, from nothing or from its newest checkpoint.

    Returns:
        True when the budget is spent, False when a signal asked to stop.

    Raises:
        UserError: bad text, an impossible recipe, a full disk, another process at work on the run;
            TrainingStoppedError.
    """
    read_recipe(run)  # or it is no run
    with atomic.alone(run), of_text(run, read_state(run).get("texts", [])):
        return _carry_on(run, watcher, stage, samples)


def _carry_on(run: Path, watcher: Watcher, stage: Stage, samples: Samples | None) -> bool:
    recipe = read_recipe(run)
    has_begun = bool(checkpoint.all_in(run))
    if has_begun and not recipe.train.workers:  # begun before there were any: as with one
        recipe = replace(recipe, train=replace(recipe.train, workers=1))
    tokenizer, prepared = corpus(recipe, run, stage)
    if has_begun:
        _require_same_text(run, prepared)
    if recipe.model.is_fitted:
        return fit_run(run, recipe, tokenizer, prepared, watcher, stage, samples)
    ready = make_ready(recipe, tokenizer, prepared)
    if ready.recipe != recipe:
        write_recipe(run, ready.recipe)
    note_data(run, prepared, ready.model, ready.device, ready.recipe.train.precision)
    for line in describe_text(prepared, tokenizer):
        watcher.note(line)
    watcher.note(describe_run(ready))
    for note in ready.feed.packed.notes:
        watcher.note(note)
    bytes_per_token = prepared.bytes_per_token(ends=ready.recipe.ends_texts)
    loop = Loop(run, ready, bytes_per_token, _Looking(watcher, ready, samples))
    if has_begun:
        notes: list[str] = []
        newest = checkpoint.newest(run, notes)
        for note in notes:
            watcher.note(note)
        loop.resume(newest)
        watcher.note(f"carrying on from step {loop.progress.spent.steps:,}")
    else:
        load_start(run, ready.model)
    log.rewind(run, loop.progress.spent.steps)
    if ready.recipe.train.compile == "on":
        compile_blocks(ready.model)
    stage(TRAINING)
    return loop.train()


def _require_same_text(run: Path, prepared: Prepared) -> None:
    """A run goes on with the text that it began with, or not at all."""
    before = read_state(run).get("data")
    if before is not None and before["fingerprint"] != prepared.fingerprint:
        raise UserError(
            f"{prepared.folder}: the text has changed since the run began; put it back as it was, "
            "or begin a new run"
        )


class _Looking:
    """The watcher, with what the model says added."""

    def __init__(self, watcher: Watcher, ready: Ready, samples: Samples | None) -> None:
        self._watcher, self._ready, self._samples = watcher, ready, samples

    def note(self, text: str) -> None:
        self._watcher.note(text)

    def record(self, record: dict[str, Any], progress: float) -> None:
        self._watcher.record(record, progress)

    def samples(self) -> list[dict[str, str]]:
        ready = self._ready
        if self._samples is None or ready.heldout is None:
            return []
        rows = ready.heldout.packed.rows(torch.arange(3).numpy())
        ready.model.eval()
        try:
            return self._samples(ready.model, ready.recipe, ready.tokenizer, rows, ready.device)
        finally:
            ready.model.train()
