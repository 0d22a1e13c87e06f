"""An open run folder: its recipe and `run.json` are read once, and written through it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

from foreword.disk import atomic
from foreword.runs.provenance import require_own_files, write_files, write_state
from foreword.runs.recipe import Recipe
from foreword.runs.trained_model import read_run, require_recipe, require_run
from foreword.train import processes


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
