"""Opening what was trained: a run folder or one of its checkpoints, ready to read."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from foreword import config
from foreword.errors import DamagedError, UserError
from foreword.nn.model import Model
from foreword.runs.provenance import require_as_written, require_plugins
from foreword.runs.recipe import Recipe
from foreword.text.tokenizer import Tokenizer
from foreword.train import checkpoint
from foreword.train.budget import Budget, Progress
from foreword.train.device import choose_device, choose_precision
from foreword.types import Vocab


@dataclass(frozen=True)
class Opened:
    """A trained model with what belongs to it.

    Attributes:
        run: the run folder.
        checkpoint: the checkpoint that was read.
        recipe: resolved.
        tokenizer: the run's.
        vocab: of the tokenizer.
        model: in evaluation mode, on `device`.
        device: where it lies.
        dtype: what it computes in.
        state: of the checkpoint: step, tokens, ...
        notes: damaged checkpoints that were passed over, a line each.
    """

    run: Path
    checkpoint: Path
    recipe: Recipe
    tokenizer: Tokenizer
    vocab: Vocab
    model: Model
    device: torch.device
    dtype: torch.dtype
    state: dict[str, Any]
    notes: tuple[str, ...] = ()

    def require_gradients(self) -> None:
        """Makes sure that the model can be trained further.

        Raises:
            UserError: it is one of counts.
        """
        if self.recipe.model.is_count_based:
            raise UserError(
                f"{self.run}: a model of counts has no weights to train further; take another run"
            )


def read_recipe(run: Path) -> Recipe:
    """The resolved recipe of a run.

    Raises:
        UserError: the folder is no run, or a plug-in's kind that it uses is missing.
        DamagedError: its recipe is not as it was written.
    """
    if not (run / "recipe.toml").is_file():
        what = "no such folder" if not run.exists() else "not a run folder (no recipe.toml)"
        raise UserError(f"{run}: {what}")
    require_as_written(run)
    require_plugins(run)
    return config.load(Recipe, run / "recipe.toml")


def is_finished(run: Path) -> bool:
    """Whether the run has spent its budget, or has been fitted; a whole checkpoint says so."""
    if not checkpoint.all_in(run):
        return False
    recipe = read_recipe(run)
    try:
        newest = checkpoint.newest(run)
    except DamagedError:
        if recipe.model.trains_offline:
            return False  # it is fitted anew
        raise
    spent = Progress(**checkpoint.read_state(newest)["spent"])
    return recipe.model.trains_offline or Budget.of(recipe.train).progress(spent) >= 1


def open_run(path: str | Path, device: str = "auto", precision: str = "fp32") -> Opened:
    """Opens the newest whole checkpoint of a run folder, or the checkpoint folder given.

    Args:
        path: a run folder, or one of its `checkpoints/step-*`.
        device: auto, cpu, cuda or mps.
        precision: auto, bf16 or fp32; reading is done in fp32 unless asked.

    Raises:
        UserError: no such folder, no checkpoint, or a damaged one; no such device or precision.
    """
    path, where = Path(path), choose_device(device)
    dtype = choose_precision(precision, where)
    notes: list[str] = []
    if path.parent.name == "checkpoints" and path.is_dir():
        run, folder = path.parent.parent, path
        checkpoint.verify(folder, is_to_train=False)
    else:
        run = path
        read_recipe(run)
        folder = checkpoint.newest(run, notes, is_to_train=False)
    recipe = read_recipe(run)
    tokenizer = Tokenizer.load(run / "tokenizer")
    vocab = tokenizer.vocab
    model = recipe.build(vocab)
    checkpoint.load_weights(folder, model)
    return Opened(
        run=run,
        checkpoint=folder,
        recipe=recipe,
        tokenizer=tokenizer,
        vocab=vocab,
        model=model.to(where).eval(),
        device=where,
        dtype=dtype,
        state=checkpoint.read_state(folder),
        notes=tuple(notes),
    )
