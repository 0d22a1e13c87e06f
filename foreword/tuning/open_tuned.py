"""Opening what `foreword tune` saved, whatever it is."""

from __future__ import annotations

from pathlib import Path

from foreword.errors import UserError, quoted_command
from foreword.runs.run_folder import open_run
from foreword.tuning.best import chosen_model
from foreword.tuning.tuned_folder import CHOSEN, FILE, Tuned, is_tuned
from foreword.tuning.tuned_model import Predictor, TunedWriter, load_tuned


def open_tuned(
    folder: str | Path, device: str = "auto", precision: str = "fp32"
) -> Predictor | TunedWriter:
    """Load a model that `foreword tune` saved, whatever its task.

    Args:
        precision: auto, bf16 or fp32; fine-tuning scored it in fp32.

    Raises:
        UserError: the folder holds no fine-tuned model, or a damaged one.
    """
    folder = Path(folder)
    if not folder.is_dir():
        raise UserError(f"{folder}: no such folder")
    if not is_tuned(folder) and (folder / "recipe.toml").is_file():
        raise UserError(
            f"{folder}: was pretrained and not fine-tuned; "
            f"{quoted_command('tune', folder, '--train', 'FILE', '--dev', 'FILE')} teaches it a "
            "task"
        )
    if not is_tuned(folder):
        raise UserError(f"{folder}: not a fine-tuned model (no {FILE})")
    if (folder / CHOSEN).is_file():
        return chosen_model.load(folder, device)
    if not (folder / "run.json").is_file():
        return load_tuned(folder, device, precision)
    return TunedWriter(open_run(folder, device, precision), Tuned.read(folder))
