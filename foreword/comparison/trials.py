"""The trials of all sweeps: short runs, of which only the results are kept."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

from foreword import stored
from foreword.comparison import results_cache
from foreword.comparison.corpora import Corpora
from foreword.comparison.grid import Cell, Grid
from foreword.comparison.sweep import Trial, Values, best_of, describe
from foreword.data.prepared_text import PreparedText
from foreword.errors import UserError
from foreword.runs.recipe import Recipe


class Trials:
    """The trials of a grid, in a folder with a JSON file each.

    A file is written when its trial begins, and again, with the result, when it is done; in
    between it has a run folder beside it.

    Args:
        grid: the grid.
        folder: the folder.
        corpora: the text of all cells.
    """

    def __init__(self, grid: Grid, folder: Path, corpora: Corpora) -> None:
        self._grid, self._folder, self._corpora = grid, folder, corpora
        self._known: dict[tuple[str, str], Trial] = {}
        self._keys: dict[tuple[str, str], results_cache.RunKey] = {}

    def of(self, cell: Cell) -> list[Trial]:
        """Return the finished trials of a cell, in order."""
        results = (self.result(cell, values) for values in self._grid.trials(cell))
        return [trial for trial in results if trial is not None]

    def best(self, cell: Cell) -> Trial | None:
        """Return the best trial of a cell; None if some are not done, or all diverged."""
        trials = []
        for values in self._grid.trials(cell):
            trial = self.result(cell, values)
            if trial is None:
                return None
            trials.append(trial)
        return best_of(trials)

    def result(self, cell: Cell, values: Values) -> Trial | None:
        """Return the result of a trial; None if it is not done."""
        name = cell.name, repr(values)
        if name not in self._known:
            file = results_cache.find(self._folder.glob("*.json"), self._key(cell, values))
            content = stored.read(file) if file else {}
            if "seconds" not in content:
                return None
            fields = {key: content[key] for key in ("loss", "steps", "tokens", "seconds")}
            self._known[name] = Trial(cell.name, values, **fields)
        return self._known[name]

    def begin(self, cell: Cell, values: Values) -> tuple[Recipe, PreparedText, Path]:
        """Return the recipe of a trial, its shards and the folder of its run.

        Raises:
            UserError: the validation part is shorter than a row.
        """
        recipe, key = self._grid.trial_recipe(cell, values), self._key(cell, values)
        validation = self._corpora.validation_for(recipe)
        if validation.heldout.tokens_total < recipe.packing.length:
            raise UserError(
                f"its validation part has {validation.heldout.tokens_total:,} tokens, but a row "
                f"needs {recipe.packing.length:,}; give more text, or sweep = false"
            )
        file = results_cache.find(self._folder.glob("*.json"), key)
        if file is None:
            file = results_cache.store(self._folder, f"{cell.name}-{describe(values)}", key)
        return recipe, validation, file.with_suffix("")

    def finish(self, cell: Cell, values: Values, content: dict[str, Any]) -> Trial:
        """Save what a trial measured, and remove its run.

        Args:
            cell: the cell.
            values: the values that it tried.
            content: last loss on the validation part, None if training diverged; and steps, tokens
                and seconds.
        """
        file = results_cache.find(self._folder.glob("*.json"), self._key(cell, values))
        assert file is not None
        stored.write(file, stored.read(file) | content)
        shutil.rmtree(file.with_suffix(""), ignore_errors=True)
        trial = self.result(cell, values)
        assert trial is not None
        return trial

    def _key(self, cell: Cell, values: Values) -> results_cache.RunKey:
        name = cell.name, repr(values)
        if name not in self._keys:
            recipe = self._grid.trial_recipe(cell, values)
            self._keys[name] = results_cache.RunKey(
                results_cache.without_labels(recipe),
                self._corpora.validation_for(recipe).fingerprint,
            )
        return self._keys[name]
