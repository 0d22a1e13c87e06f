"""A trained model, read from a run folder or a checkpoint or built in memory."""

from __future__ import annotations

from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Self

import torch
from torch import nn

from foreword.errors import DamagedError, UserError, quoted_command
from foreword.nn.init import unfilled
from foreword.nn.model import Model
from foreword.runs.provenance import FILE, read_state, require_as_written
from foreword.runs.recipe import Recipe
from foreword.settings import config
from foreword.text.tokenizer import Tokenizer
from foreword.train import checkpoint
from foreword.train.budget import Budget, Progress
from foreword.train.device import choose_device, choose_precision, precision_warning
from foreword.types import Vocab

CPU = torch.device("cpu")


@dataclass(frozen=True)
class TrainedModel:
    """A trained model with what is needed to use it.

    Attributes:
        model: the model in evaluation mode, on `device`.
        recipe: the resolved recipe, whose `build` builds the model.
        tokenizer: the tokenizer that it was trained with.
        device: device of the model's parameters.
        dtype: precision of the computation.
        source: the folder its weights were read from: a run's `checkpoints/step-*`, or a Hugging
            Face folder. None if it was built in memory.
        notes: messages for the user, such as skipped damaged checkpoints; one line each.
        tuned_head: the head of a task that it was fine-tuned on, in place of the heads of
            pretraining, which are then random; None if it was pretrained alone.
    """

    model: Model
    recipe: Recipe
    tokenizer: Tokenizer
    device: torch.device = CPU
    dtype: torch.dtype = torch.float32
    source: Path | None = None
    notes: tuple[str, ...] = ()
    tuned_head: nn.Module | None = None

    @property
    def vocab(self) -> Vocab:
        """The tokenizer's vocabulary."""
        return self.tokenizer.vocab

    @property
    def folder(self) -> Path:
        """The folder its weights were read from.

        Raises:
            ValueError: the model was built in memory.
        """
        if self.source is None:
            raise ValueError("a model built in memory has no folder")
        return self.source

    @property
    def run(self) -> Path:
        """The run folder whose checkpoint was read; otherwise the same as `folder`.

        Raises:
            ValueError: the model was built in memory.
        """
        folder = self.folder
        return folder.parent.parent if is_checkpoint(folder) else folder

    @property
    def name(self) -> str:
        """What messages call the model: its run, or its folder."""
        return "this model" if self.source is None else str(self.run)

    @classmethod
    def of(cls, trained: TrainedModel, **more: Any) -> Self:
        """Return a trained model as one of this class.

        Args:
            trained: the model.
            more: the fields that this class adds.
        """
        shared = {field.name: getattr(trained, field.name) for field in fields(TrainedModel)}
        return cls(**shared, **more)

    def require_gradients(self) -> None:
        """Check that the model can be trained further.

        Raises:
            UserError: it is count-based.
        """
        if self.recipe.model.is_count_based:
            raise UserError(
                f"{self.name}: a count-based model has no weights to train further; "
                "choose another run"
            )


def is_run(folder: Path) -> bool:
    """Return whether a folder is that of a run."""
    return (folder / "run.json").is_file() and (folder / "recipe.toml").is_file()


def is_checkpoint(folder: Path) -> bool:
    """Return whether a path names one of a run's checkpoints: `checkpoints/step-*`."""
    return folder.parent.name == "checkpoints"


def read_recipe(run: Path) -> Recipe:
    """Return the resolved recipe of a run.

    Raises:
        UserError: the folder is not a run, or a plug-in that it uses is missing.
        DamagedError: its recipe was changed.
    """
    return read_run(run)[0]


def read_run(run: Path) -> tuple[Recipe, dict[str, Any]]:
    """Return the resolved recipe of a run and its `run.json`; that of a tuned model is empty.

    Raises:
        UserError: as `read_recipe`.
        DamagedError: its recipe was changed, or `run.json` cannot be read.
    """
    require_recipe(run)
    state = read_state(run) if (run / FILE).exists() else {}
    require_as_written(run, state)
    return config.load(Recipe, run / "recipe.toml", is_stored=True), state


def require_recipe(folder: Path) -> None:
    """Check that a folder has a recipe, as those of runs and of tuned models have.

    Raises:
        UserError: it has none, and what it is instead.
    """
    if not (folder / "recipe.toml").is_file():
        what = "not a run folder (no recipe.toml)" if folder.exists() else "no such folder"
        raise UserError(f"{folder}: {what}{_what_it_is(folder)}")


def require_run(run: Path) -> None:
    """Check that a folder is not that of a fine-tuned model, which has a recipe too.

    Raises:
        UserError: it is one.
    """
    if (run / "labels.json").is_file() and not (run / "run.json").is_file():
        raise UserError(
            f"{run}: a fine-tuned model, which predicts with 'foreword predict' and may start "
            "'foreword tune'; name the run that it was tuned from"
        )


def _what_it_is(folder: Path) -> str:
    """Return what a folder that is not a run holds, and what to do with it; "" if unknown."""
    if is_checkpoint(folder):
        return f"; it is a checkpoint of {folder.parent.parent}"
    hints = {
        "config.json": "; a Hugging Face model becomes a run by "
        f"{quoted_command('import', folder)}",
        "grid.toml": f"; it is a comparison, with its runs in {folder / 'runs'}",
        "prepared.json": "; it holds token shards, for "
        f"{quoted_command('pretrain', 'RECIPE', '--data', folder)}",
        "tokenizer.json": "; it holds a tokenizer alone",
    }
    return next((hint for name, hint in hints.items() if (folder / name).is_file()), "")


def is_finished(run: Path) -> bool:
    """Return whether a complete checkpoint shows the budget spent, or offline training done."""
    if not checkpoint.all_in(run):
        return False
    recipe = read_recipe(run)
    try:
        newest = checkpoint.newest(run)
    except DamagedError:
        if recipe.model.trains_offline:
            return False  # it is trained again
        raise
    spent = Progress(**checkpoint.read_state(newest)["spent"])
    return recipe.model.trains_offline or Budget.of(recipe.train).progress(spent) >= 1


def open_run(path: str | Path, device: str = "auto", precision: str = "fp32") -> TrainedModel:
    """Open the newest complete checkpoint of a run folder, or a checkpoint folder.

    Args:
        path: a run folder, or one of its `checkpoints/step-*`.
        device: auto, cpu, cuda or mps.
        precision: auto, bf16 or fp32 (default).

    Raises:
        UserError: the folder or checkpoint is missing or damaged, or device or precision unknown.
    """
    path, where = Path(path), choose_device(device)
    dtype = choose_precision(precision, where)
    notes: list[str] = []
    if is_checkpoint(path) and path.is_dir():
        run, folder = path.parent.parent, path
        checkpoint.verify(folder, with_training_state=False)
        recipe = read_recipe(run)
    else:
        run = path
        recipe = read_recipe(run)
        require_run(run)
        folder = checkpoint.newest(run, notes, with_training_state=False)
    notes += filter(None, [precision_warning(where, dtype)])
    tokenizer = Tokenizer.load(run / "tokenizer")
    with unfilled():
        model = recipe.build(tokenizer.vocab)
    checkpoint.load_weights(folder, model)
    return TrainedModel(
        model=model.to(where).eval(),
        recipe=recipe,
        tokenizer=tokenizer,
        device=where,
        dtype=dtype,
        source=folder,
        notes=tuple(notes),
    )
