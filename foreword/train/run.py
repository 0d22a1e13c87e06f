"""From a recipe and text to a trained run, in reading order.

start      writes the run folder: recipe.toml and run.json
carry_on   tokenizer -> shards -> model -> loop; each stage is skipped where it is done already,
           so a run that was killed at any moment carries on from where it stood
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from foreword import atomic
from foreword.data.holdout import find_apart
from foreword.data.prepare import Prepared, prepare
from foreword.data.reading import ReadSettings, find_files, read_documents
from foreword.errors import UserError
from foreword.nn.init import initialise
from foreword.nn.model import Model
from foreword.text.tokenizer import Tokenizer
from foreword.train import checkpoint, fitting, learning, log
from foreword.train.continued import Foundation, load_start
from foreword.train.device import choose_device, choose_precision, describe
from foreword.train.feed import Feed
from foreword.train.loop import Loop, Watcher
from foreword.train.opened import is_finished, read_recipe
from foreword.train.origin import origin
from foreword.train.recipe import Recipe
from foreword.types import Rows, Vocab

Stage = Callable[[str], Callable[[float, float], None]]  # a stage's name -> its progress callback
Samples = Callable[[Model, Recipe, Tokenizer, Rows, torch.device], list[dict[str, str]]]


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


@dataclass(frozen=True)
class Ready:
    """Everything that training needs, built from a recipe and shards.

    Attributes:
        recipe: with every `auto` resolved.
        tokenizer: the run's.
        vocab: of the tokenizer.
        model: initialised, on its device.
        feed: of the training text.
        heldout: of the held-out text, or None where it is shorter than a row.
        device: where it runs.
        dtype: what it computes in.
    """

    recipe: Recipe
    tokenizer: Tokenizer
    vocab: Vocab
    model: Model
    feed: Feed
    heldout: Feed | None
    device: torch.device
    dtype: torch.dtype


def start(recipe: Recipe, inputs: Inputs, run: Path, foundation: Foundation | None = None) -> None:
    """Writes the run folder.

    Args:
        recipe: with the model of the foundation, where there is one.
        inputs: what the run reads.
        run: the folder.
        foundation: a trained model to go on from.

    Raises:
        UserError: the folder already holds something, or there is no such text.
    """
    require_free(run)
    texts, heldout = (
        tuple(str(Path(text).resolve()) for text in given)
        for given in (inputs.texts, inputs.heldout)
    )
    require_texts(texts, heldout, recipe.read)
    tokenizer = str(Path(inputs.tokenizer).resolve()) if inputs.tokenizer else None
    if tokenizer is not None:
        Tokenizer.load(tokenizer)
    provenance = {**origin(), "texts": list(texts), "tokenizer": tokenizer}
    provenance |= {"heldout": list(heldout)} if heldout else {}
    if foundation is not None:
        foundation.save(run)
        provenance |= foundation.provenance
    atomic.write_text(run / "run.json", json.dumps(provenance, indent=1) + "\n")
    atomic.write_text(run / "recipe.toml", recipe.dumps())


def require_texts(
    texts: Sequence[str], heldout: Sequence[str] = (), read: ReadSettings | None = None
) -> None:
    """Makes sure that there are such texts, and none that is both trained on and held out.

    Raises:
        UserError: there are not.
    """
    if not is_prepared(texts):
        find_apart(heldout, find_files(texts, None, read), None, read)
    elif heldout:
        raise UserError(
            f"--heldout: {texts[0]} holds out text already; 'foreword prepare --heldout' makes "
            "token shards with text of your own held out"
        )


def require_free(run: Path) -> None:
    """Makes sure that a run can begin in the folder `run`; one killed as it began does not count.

    Raises:
        UserError: it cannot.
    """
    if run.is_file():
        raise UserError(f"{run}: is a file; choose another --out")
    if (run / "recipe.toml").exists():
        raise UserError(
            f"{run}: already holds a run; 'foreword resume {run}' carries on with it, or choose "
            "another --out"
        )
    # `start` writes the recipe last.
    begun = {"run.json", ".run.json.part", ".recipe.toml.part", *Foundation.WRITES}
    if run.exists() and {path.name for path in run.iterdir()} - begun:
        raise UserError(f"{run}: is not empty; choose another --out")


def carry_on(run: Path, watcher: Watcher, stage: Stage, samples: Samples | None = None) -> bool:
    """Runs what is left of a run, from nothing or from its newest checkpoint.

    Returns:
        True when the budget is spent, False when a signal asked to stop.

    Raises:
        UserError: bad text, an impossible recipe, a full disk; TrainingStoppedError.
    """
    recipe = read_recipe(run)
    has_begun = bool(checkpoint.all_in(run))
    tokenizer, prepared = corpus(recipe, run, stage)
    if has_begun:
        _require_same_text(run, prepared)
    if recipe.model.is_counted:
        return _fit(run, recipe, tokenizer, prepared, watcher, stage, samples)
    if recipe.model.has_own_course:
        recipe = learning.settle(recipe)
    ready = make_ready(recipe, tokenizer, prepared)
    if ready.recipe != recipe:
        atomic.write_text(run / "recipe.toml", ready.recipe.dumps())
    _note_data(run, prepared, ready.model, ready.device, ready.recipe.train.precision)
    watcher.note(describe_text(prepared))
    if recipe.model.has_own_course:
        return is_finished(run) or learning.learn(
            run,
            ready.recipe,
            ready.model,
            prepared.train,
            (ready.feed, ready.heldout),
            _bytes_per_token(ready, prepared),
            watcher,
            stage("learning word vectors"),
        )
    watcher.note(describe_run(ready))
    for note in getattr(ready.feed.packed, "notes", ()):
        watcher.note(note)
    loop = Loop(
        run,
        ready.recipe,
        ready.model,
        ready.recipe.optimizer.build(ready.model),
        ready.feed,
        ready.heldout,
        ready.dtype,
        _bytes_per_token(ready, prepared),
        _Looking(watcher, ready, samples),
    )
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
    return loop.train()


def _fit(
    run: Path,
    recipe: Recipe,
    tokenizer: Tokenizer,
    prepared: Prepared,
    watcher: Watcher,
    stage: Stage,
    samples: Samples | None,
) -> bool:
    """The same for a model that is fitted to the text at once: it is done, or begins again."""
    if fitting.is_done(run):
        return True
    watcher.note(describe_text(prepared))
    device, progress = torch.device("cpu"), stage("counting")
    with fitting.fitting(run, recipe, prepared, tokenizer.vocab, progress) as fitted:
        _note_data(run, prepared, fitted.model, device, "fp32")
        for note in fitting.notes(fitted):
            watcher.note(note)
        records = fitting.records(fitted, prepared.heldout_bytes_per_token)
        if samples is not None and prepared.heldout.tokens_total >= recipe.packing.length:
            heldout = Feed.of(recipe, prepared.heldout, tokenizer.vocab, for_training=False)
            rows = heldout.packed.rows(torch.arange(3).numpy())
            shown = samples(fitted.model, recipe, tokenizer, rows, device)
            records.append({"kind": "samples", "step": fitted.spent.steps, "samples": shown})
        log.rewind(run, 0)  # of an attempt that was killed before its checkpoint was whole
        for record in records:
            log.append(run, record)
            watcher.record(record, 1.0)
        fitting.save(run, fitted)
    return True


def corpus(recipe: Recipe, run: Path, stage: Stage) -> tuple[Tokenizer, Prepared]:
    """The run's tokenizer and shards, made where they are not there yet."""
    provenance = json.loads((run / "run.json").read_text(encoding="utf-8"))
    texts, given = provenance["texts"], provenance["tokenizer"]
    if not texts:
        raise UserError(
            f"{run}: was imported and has no text to go on with; "
            f"'foreword pretrain RECIPE --from {run} --data TEXT' starts a run from its weights"
        )
    if is_prepared(texts):
        prepared = Prepared.load(Path(texts[0]))
        given = given or str(prepared.tokenizer)
    tokenizer = _tokenizer(recipe, run, texts, given, stage)
    made = run / "shards"
    if checkpoint.all_in(run) and is_prepared([str(made)]):
        return tokenizer, Prepared.load(made)  # the run's own; the text may be gone by now
    if not is_prepared(texts):
        progress = stage("cutting text into tokens")
        prepared = prepare(
            texts,
            tokenizer,
            made,
            recipe.prepare,
            recipe.read,
            progress,
            provenance.get("heldout", ()),
        )
        stage("reusing the token shards made before" if prepared.reused else "token shards made")
    elif prepared.manifest["tokenizer"]["fingerprint"] != tokenizer.fingerprint:
        raise UserError(f"{texts[0]}: these shards were made with another tokenizer")
    return tokenizer, prepared


def _tokenizer(
    recipe: Recipe, run: Path, texts: Sequence[str], given: str | None, stage: Stage
) -> Tokenizer:
    folder = run / "tokenizer"
    if (folder / "tokenizer.json").is_file():
        return Tokenizer.load(folder)
    if given is not None:
        tokenizer = Tokenizer.load(given)
    else:
        stage("training the tokenizer")
        documents = read_documents(texts, recipe.read)
        tokenizer = recipe.tokenizer.train(document.text for document in documents)
    tokenizer.save(folder)
    return tokenizer


def is_prepared(texts: Sequence[str]) -> bool:
    """Whether the text given is one folder of shards that `prepare` wrote."""
    return len(texts) == 1 and (Path(texts[0]) / "prepared.json").is_file()


def make_ready(recipe: Recipe, tokenizer: Tokenizer, prepared: Prepared) -> Ready:
    """Builds model and feeds, tries the objective on one row, resolves every `auto`.

    Raises:
        UserError: the text is shorter than a row, or the tokenizer lacks what the objective needs.
    """
    vocab = tokenizer.vocab
    device = choose_device(recipe.train.device)
    dtype = choose_precision(recipe.train.precision, device)
    recipe = resolve(recipe, device, dtype)
    feed = Feed.of(recipe, prepared.train, vocab)
    feed.batch(torch.arange(1).numpy(), recipe.train.seed)
    heldout = None
    if prepared.heldout.tokens_total >= recipe.packing.length:
        heldout = Feed.of(recipe, prepared.heldout, vocab, for_training=False)
    model = recipe.build(vocab)
    initialise(model, recipe.train.seed)
    return Ready(recipe, tokenizer, vocab, model.to(device), feed, heldout, device, dtype)


def resolve(recipe: Recipe, device: torch.device, dtype: torch.dtype) -> Recipe:
    """The recipe with device, precision, compilation and micro-batch chosen for this machine.

    A resumed run finds them chosen, so it computes as it did before.
    """
    train = recipe.train
    compiles = train.compile
    if compiles == "auto":
        compiles = "on" if device.type == "cuda" else "off"
    micro = train.micro_batch or _rows_that_fit(recipe, device)
    train = replace(
        train,
        device="cuda" if device.type == "cuda" else "mps" if device.type == "mps" else "cpu",
        precision="bf16" if dtype == torch.bfloat16 else "fp32",
        compile=compiles,
        micro_batch=min(micro, recipe.rows_per_step),
    )
    return replace(recipe, train=train)


def _rows_that_fit(recipe: Recipe, device: torch.device) -> int:
    """Sequences whose activations take a quarter of the memory, in a power of two.

    About 34 d_model values of 2 bytes a layer and token are kept for backward (Korthikanti et al.
    2022, section 4.1), and as much again of gradients and slack.
    """
    if device.type == "cuda":
        memory = torch.cuda.get_device_properties(device).total_memory
    else:
        memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    layers = recipe.model.layers + (getattr(recipe.model, "decoder_layers", None) or 0)
    row = 2 * 34 * 2 * recipe.model.d_model * layers * recipe.packing.length
    rows = max(1, memory // 4 // row)
    return 1 << (int(rows).bit_length() - 1)


def compile_blocks(model: Model) -> None:
    """Compiles each Transformer block in place; blocks of one shape share the code."""
    from foreword.nn.stack import Block

    for module in model.modules():
        if isinstance(module, Block):
            module.compile()


def describe_text(prepared: Prepared) -> str:
    """One line on what was read, and on whatever of it was not as it should be."""
    train, heldout = prepared.counts["train"], prepared.counts["heldout"]
    read = prepared.manifest["read"]["counts"]
    odd = {
        "unknown tokens": train.unknown + heldout.unknown,
        "empty documents": read["empty_documents"],
        "pairs with an empty side": read.get("empty_sides", 0),
        "empty files": read["empty_files"],
        "bytes replaced": read["replaced_bytes"],
        "files not read": sum(read["skipped"].values()),
    }
    return (
        f"{train.documents + heldout.documents:,} documents: {train.tokens:,} tokens to train on, "
        f"{heldout.tokens:,} held out"
        + "".join(f"; {count:,} {what}" for what, count in odd.items() if count)
    )


def describe_run(ready: Ready) -> str:
    """One line on what is about to run."""
    recipe, precision = ready.recipe, ready.recipe.train.precision
    pieces = -(-recipe.rows_per_step // recipe.train.micro_batch)
    tokens = recipe.rows_per_step * recipe.packing.length
    return (
        f"{ready.model.count_parameters():,} parameters, vocabulary {ready.vocab.size:,}; "
        f"{tokens:,} tokens a step ({recipe.rows_per_step} rows of {recipe.packing.length}"
        f"{f', in {pieces} micro-batches' if pieces > 1 else ''}); "
        f"{precision} on {describe(ready.device)}"
    )


def _bytes_per_token(ready: Ready, prepared: Prepared) -> float | None:
    """For bits per byte, where every token of the text is predicted; else None."""
    if ready.heldout is None or not ready.heldout.predicts_all:
        return None
    return prepared.heldout_bytes_per_token


def _require_same_text(run: Path, prepared: Prepared) -> None:
    """A run goes on with the text that it began with, or not at all."""
    before = json.loads((run / "run.json").read_text(encoding="utf-8")).get("data")
    if before is not None and before["fingerprint"] != prepared.fingerprint:
        raise UserError(
            f"{prepared.folder}: the text has changed since the run began; put it back as it was, "
            "or begin a new run"
        )


def _note_data(
    run: Path, prepared: Prepared, model: Model, device: torch.device, precision: str
) -> None:
    file = run / "run.json"
    provenance: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    provenance["data"] = {
        "shards": str(prepared.folder),
        "fingerprint": prepared.fingerprint,
        "read": prepared.manifest["read"],
        "counts": prepared.manifest["counts"],
    }
    provenance["parameters"] = model.count_parameters()
    provenance["computed_on"] = describe(device)
    provenance["precision"] = precision
    atomic.write_text(file, json.dumps(provenance, indent=1) + "\n")


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
