"""Where verbs may write: not into a run, whose parts belong together."""

from __future__ import annotations

from pathlib import Path

from foreword.errors import UserError


def spare_runs(folder: Path) -> None:
    """Makes sure that a folder is no run, no tuned model and no part of one.

    Raises:
        UserError: it is.
    """
    for place in (folder.absolute(), folder.absolute().parent):
        is_trained = any((place / name).is_file() for name in ("run.json", "labels.json"))
        if is_trained and (place / "recipe.toml").is_file():
            raise UserError(f"{folder}: belongs to a model, in {place}; choose another --out")
