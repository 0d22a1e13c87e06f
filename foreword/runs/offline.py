"""Offline training: runs of models that learn from the whole text at once, not step by step.

Such a run is complete or not begun: its only checkpoint is written last. A step of its log is one
pass over the text.
"""

from __future__ import annotations

import math
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch

from foreword.data.prepared_text import PreparedText
from foreword.data.rng import RowRng
from foreword.data.shards import Shards
from foreword.disk import atomic
from foreword.errors import NotFiniteError, UserError
from foreword.nn.model import Model
from foreword.nn.offline_training import OfflineArchitecture, OfflineBackbone, OfflineInputs
from foreword.runs import provenance
from foreword.runs.continued import START
from foreword.runs.corpus import describe_text
from foreword.runs.hooks import Probing, Samples, probe_record
from foreword.runs.measure import Watch, heldout_record, measure
from foreword.runs.not_finite import non_finite_error
from foreword.runs.recipe import Recipe
from foreword.runs.run_folder import Run, is_finished
from foreword.runs.setup import heldout_feed, on_cpu_in_fp32
from foreword.runs.stages import EVALUATING, ProgressReporter
from foreword.runs.trained_model import TrainedModel
from foreword.text.tokenizer import Tokenizer
from foreword.train import checkpoint, log
from foreword.train.budget import Budget, Progress
from foreword.train.finite import require_finite
from foreword.train.loop import TrainingState
from foreword.train.settings import TrainSettings
from foreword.types import MaskedInputs, Rows, Vocab

FOLDER = ".offline"  # in a run folder: temporary files of what does not fit into memory


def train_offline(
    run: Run,
    tokenizer: Tokenizer,
    prepared: PreparedText,
    reporter: ProgressReporter,
    samples: Samples | None = None,
    probing: Probing | None = None,
) -> None:
    """Train, measure and save; a killed or damaged run starts over.

    Raises:
        TrainingStoppedError: what was learned is not finite.
        UserError: the text, the budget or the recipe does not fit the model, or the disk is full.
    """
    # Check that there is something to train.
    if is_finished(run.folder):
        return
    if (run.folder / START).exists():
        raise UserError("--from: this model learns from text alone; leave it out")
    recipe, vocab = on_cpu_in_fp32(run.recipe), tokenizer.vocab
    _require_plain(recipe, vocab)
    if damaged := checkpoint.all_in(run.folder):
        reporter.warn(f"{damaged[-1]}: damaged; the model is trained again")
    for line in describe_text(prepared, tokenizer):
        reporter.note(line)
    with _scratch(run.folder / FOLDER) as folder:
        # Train on the whole text.
        watch = reporter.stage("offline training")
        inputs = offline_inputs(recipe, prepared.train, vocab, folder, watch)
        _note_budget(recipe, inputs.epochs, reporter)
        run.set_recipe(recipe)
        model, began = recipe.build(vocab), time.monotonic()
        fitted = offline_backbone(model).fit(inputs)
        try:
            require_finite(checkpoint.weights_of(model))
        except NotFiniteError as error:
            raise non_finite_error(run.folder, recipe, f"training: {error}") from error
        # Measure, and write the log.
        epochs, seconds = inputs.epochs, time.monotonic() - began
        spent = Progress(epochs, fitted.tokens, seconds=seconds, epochs=epochs)
        for note in (*fitted.notes, f"{_rate(spent):,.0f} tokens/s in {seconds:.1f} s"):
            reporter.note(note)
        run.note(**provenance.set_up(prepared, model, torch.device("cpu"), recipe.train.precision))
        watch = reporter.stage(EVALUATING)
        trained = TrainedModel(model.eval(), recipe, tokenizer, source=run.folder)
        records = list(_records(trained, prepared, spent, samples, watch))
        if probing is not None:
            records.append(probe_record(spent, probing(trained)))
        log.rewind(run.folder, 0)  # left by a run killed before its checkpoint was complete
        for record in records:
            log.append(run.folder, record)
            reporter.record(record, 1.0)
        # The checkpoint comes last: with it the run is complete.
        name = checkpoint.name_of(epochs)
        losses = [record["loss"] for record in records if record["kind"] == "heldout"]
        best = next(filter(math.isfinite, losses), None)  # an impossible text has infinite loss
        state = TrainingState(spent, best_loss=best, best=None if best is None else name)
        checkpoint.save(run.folder / "checkpoints" / name, model, None, state.dump())


def offline_epochs(recipe: Recipe) -> int:
    """Return the number of passes over the text of a model trained offline.

    Raises:
        UserError: it cannot keep such a budget.
    """
    if not isinstance(recipe.model, OfflineArchitecture):
        raise TypeError(f"{type(recipe.model).__name__} is not trained offline")
    budget = Budget.of(recipe.train)
    return recipe.model.offline_epochs(budget.unit, budget.amount)


def offline_backbone(model: Model) -> OfflineBackbone:
    """Return the backbone of a model that is trained offline."""
    if not isinstance(model.backbone, OfflineBackbone):
        raise TypeError(f"{type(model.backbone).__name__} is not trained offline")
    return model.backbone


def offline_inputs(
    recipe: Recipe,
    shards: Shards,
    vocab: Vocab,
    folder: Path,
    progress: Callable[[float, float], None] = lambda done, total: None,
) -> OfflineInputs:
    """Return the inputs that the recipe's model is trained on.

    Raises:
        UserError: it cannot keep such a budget.
    """
    epochs = offline_epochs(recipe)
    bos, eos = recipe.bos_and_eos

    def lr(share: float) -> float:
        return recipe.optimizer.lr * recipe.schedule.factor(share, 0, epochs)

    return OfflineInputs(
        shards=shards,
        vocab=vocab,
        bos=bos,
        eos=eos,
        epochs=epochs,
        lr=lr,
        seed=recipe.train.seed,
        threads=torch.get_num_threads(),
        folder=folder,
        progress=progress,
    )


def _records(
    trained: TrainedModel,
    prepared: PreparedText,
    spent: Progress,
    samples: Samples | None,
    watch: Watch,
) -> Iterator[dict[str, Any]]:
    """Yield the records of a trained model for `metrics.jsonl`."""
    recipe, length = trained.recipe, trained.recipe.packing.length
    limit = recipe.train.heldout_rows
    train = measure(trained, prepared.train, rows=limit, watch=watch)
    if train is None:
        raise UserError(
            f"{prepared.train.prefix}: only {prepared.train.tokens_total:,} tokens, but a row "
            f"needs {length:,}; give more text, or set a smaller packing.length"
        )
    yield {
        "kind": "train",
        "offline": True,
        "step": spent.steps,
        "loss": train.loss,
        "tokens": spent.tokens,
        "flops": spent.flops,
        "seconds": round(spent.seconds, 3),
        "tokens_per_second": _rate(spent),
    }
    heldout = measure(trained, prepared.heldout, watch=watch)
    if heldout is not None:
        yield heldout_record(spent, heldout, prepared.bytes_per_token(ends=recipe.ends_texts))
    if samples is not None and prepared.heldout.tokens_total >= length:
        feed = heldout_feed(recipe, prepared.heldout, trained.vocab)
        rows = feed.packed.rows(np.arange(3))
        records = samples(trained.model, recipe, trained.tokenizer, rows, torch.device("cpu"))
        yield {"kind": "samples", "step": spent.steps, "samples": records}


def _rate(spent: Progress) -> float:
    """Return tokens per second."""
    return spent.tokens / max(spent.seconds, 1e-9)


def _note_budget(recipe: Recipe, epochs: int, reporter: ProgressReporter) -> None:
    """Show a message if the model does not follow the requested budget."""
    budget, default = Budget.of(recipe.train), Budget.of(TrainSettings())
    if budget not in (default, Budget("epochs", epochs)):
        times = "once" if epochs == 1 else f"{epochs} times"
        reporter.note(f"the text is read {times}, whatever the budget: {budget.describe()}")


def _require_plain(recipe: Recipe, vocab: Vocab) -> None:
    """Check that the objective is to predict the next token of the unchanged text.

    Raises:
        UserError: it is not.
    """
    ids = np.flatnonzero(~vocab.is_special)[None, : recipe.packing.length]
    rows = Rows(ids, np.zeros_like(ids), np.arange(ids.size)[None], np.zeros(1, np.int64))
    example = recipe.objective.corrupt(rows, RowRng(0, rows.numbers), vocab)
    changes = example.source is not None or example.part(MaskedInputs) is not None
    if changes or example.is_aligned:
        raise UserError(
            "objective.kind: this model predicts each token from those before; use 'causal', "
            "without masked_inputs"
        )


@contextmanager
def _scratch(folder: Path) -> Iterator[Path]:
    """Provide a folder that is removed afterwards.

    Raises:
        UserError: the disk is full.
    """
    shutil.rmtree(folder, ignore_errors=True)  # left by a killed run
    with atomic.user_errors(folder):
        folder.mkdir()
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)
