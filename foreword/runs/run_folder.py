"""Run folders: those open to be trained, and the trained models in them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

from foreword.disk import atomic
from foreword.errors import DamagedError, UserError, quoted_command
from foreword.nn.init import unfilled
from foreword.runs.provenance import (
    FILE,
    read_state,
    require_as_written,
    require_own_files,
    write_files,
    write_state,
)
from foreword.runs.recipe import Recipe
from foreword.runs.trained_model import TrainedModel, is_checkpoint
from foreword.settings import config
from foreword.text.tokenizer import Tokenizer
from foreword.train import checkpoint, processes
from foreword.train.budget import Budget, Progress
from foreword.train.device import choose_device, choose_precision, precision_warning


class Run:
    """An open run.

    Attributes:
        folder: the run folder.
        recipe: the recipe, resolved once training has begun.
        noted: the contents of `run.json`.

    Args:
        folder: the run folder.

    Raises:
        UserError: it is not a run, or a plug-in that it uses is missing.
        DamagedError: its recipe was changed, or `run.json` cannot be read.
    """

    recipe: Recipe
    noted: dict[str, Any]

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.read()

    def read(self) -> None:
        """Read again what another process has written."""
        self.recipe, self.noted = read_run(self.folder)

    def note(self, **fields: Any) -> None:
        """Set fields of `run.json`."""
        self.noted |= fields
        write_state(self.folder, self.noted)

    def set_recipe(self, recipe: Recipe) -> None:
        """Replace the recipe."""
        if recipe != self.recipe:
            self.noted = write_files(self.folder, self.noted, recipe)
        self.recipe = recipe


@contextmanager
def opened(folder: Path) -> Iterator[Run]:
    """Open a run to train it within the block; the first of several processes locks it.

    Raises:
        UserError: as `Run`, another process works on it, or its files were removed.
    """
    require_recipe(folder)
    require_run(folder)
    with atomic.locked(folder) if processes.is_first() else nullcontext():
        yield Run(folder)
        require_own_files(folder)


def is_run(folder: Path) -> bool:
    """Return whether a folder is that of a run."""
    return (folder / "run.json").is_file() and (folder / "recipe.toml").is_file()


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
    if (folder / FILE).is_file() and not checkpoint.all_in(folder):
        return "; a run was stopped here before it was saved; begin it again by 'foreword pretrain'"
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
        spent = Progress(**checkpoint.newest_state(run)["spent"])
    except DamagedError:
        if recipe.model.trains_offline:
            return False  # it is trained again
        raise
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
    tokenizer = Tokenizer.load(run / "tokenizer", is_part=True)
    with unfilled():
        model = recipe.build(tokenizer.vocab)
    checkpoint.load_weights(folder, model)
    if recipe.changes:  # the segment of the last step that was taken
        state = checkpoint.read_state(folder)
        begun = sum(begin < state["step"] for begin in state.get("begins", ()))
        segment = recipe.segments()[max(begun, 1) - 1]
        recipe, model = segment.recipe, model.of_stage(segment.stage)
    return TrainedModel(
        model=model.to(where).eval(),
        recipe=recipe,
        tokenizer=tokenizer,
        device=where,
        dtype=dtype,
        source=folder,
        notes=tuple(notes),
    )
