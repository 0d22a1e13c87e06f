"""The trials of all sweeps: short runs, of which only the results are kept."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

from foreword.comparison.corpora import Corpora
from foreword.comparison.grid import Cell, Grid
from foreword.comparison.keys import RunKey, without_labels
from foreword.comparison.sweep import PlannedTrial, Trial, Values, best_of, describe, ranked
from foreword.data.prepared_text import PreparedText
from foreword.disk import store, stored
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
        self._left: dict[tuple[str, int], list[Values]] = {}  # to try in a round, the best first
        self._known: dict[tuple[str, int, str], Trial] = {}
        self._keys: dict[tuple[str, int, str], RunKey] = {}

    def planned(self, cell: Cell) -> list[PlannedTrial]:
        """Return the places of all trials of a cell, in order, whether or not any is done."""
        combinations = self._grid.trials(cell)
        return [
            PlannedTrial(number, n, combinations[n] if number == 1 else None)
            for number, size in enumerate(self._grid.rounds(cell), 1)
            for n in range(size)
        ]

    def of(self, cell: Cell) -> list[Trial]:
        """Return the finished trials of a cell, in order."""
        results = (self.result(cell, planned) for planned in self.planned(cell))
        return [trial for trial in results if trial is not None]

    def is_done(self, cell: Cell) -> bool:
        """Return whether all trials of a cell are done, or have nothing to try."""
        return self._is_done(cell, len(self._grid.rounds(cell)))

    def best(self, cell: Cell) -> Trial | None:
        """Return the best trial of a cell; None if some are not done, or all diverged."""
        return best_of(self.of(cell)) if self.is_done(cell) else None

    def can_begin(self, cell: Cell, planned: PlannedTrial) -> bool:
        """Return whether the round before a trial's is done."""
        return self._is_done(cell, planned.round - 1)

    def is_empty(self, cell: Cell, planned: PlannedTrial) -> bool:
        """Return whether a trial has nothing to try, since too few of the round before are left."""
        return self.can_begin(cell, planned) and self.values(cell, planned) is None

    def result(self, cell: Cell, planned: PlannedTrial) -> Trial | None:
        """Return the result of a trial; None if it is not done."""
        values = self.values(cell, planned)
        if values is None:
            return None
        name = cell.name, planned.round, repr(values)
        if name not in self._known:
            file = store.find(self._folder, self._key(cell, values, planned.round))
            content = stored.read(file) if file else {}
            if "seconds" not in content:
                return None
            fields = {key: content[key] for key in ("loss", "steps", "tokens", "seconds")}
            self._known[name] = Trial(cell.name, values, **fields, round=planned.round)
        return self._known[name]

    def begin(self, cell: Cell, planned: PlannedTrial) -> tuple[Recipe, PreparedText, Path]:
        """Return the recipe of a trial, its shards and the folder of its run.

        Raises:
            UserError: the validation part is shorter than a row.
        """
        values = self.values(cell, planned)
        assert values is not None
        recipe = self._grid.trial_recipe(cell, values, planned.round)
        key = self._key(cell, values, planned.round)
        validation = self._corpora.validation_for(recipe)
        if validation.heldout.tokens_total < recipe.packing.length:
            raise UserError(
                f"its validation part has {validation.heldout.tokens_total:,} tokens, but a row "
                f"needs {recipe.packing.length:,}; give more text, or sweep = false"
            )
        again = f"-{planned.round}" if planned.round > 1 else ""
        name = f"{cell.name}-{describe(values)}{again}"
        return recipe, validation, store.begin(self._folder, name, key).with_suffix("")

    def finish(self, cell: Cell, planned: PlannedTrial, content: dict[str, Any]) -> Trial:
        """Save what a trial measured, and remove its run.

        Args:
            cell: the cell.
            planned: its place.
            content: last loss on the validation part, None if training diverged; and steps, tokens
                and seconds.
        """
        values = self.values(cell, planned)
        assert values is not None
        key = self._key(cell, values, planned.round)
        file = store.find(self._folder, key)
        assert file is not None
        stored.write(file, stored.read(file) | content)
        shutil.rmtree(file.with_suffix(""), ignore_errors=True)
        trial = self.result(cell, planned)
        assert trial is not None
        return trial

    def _is_done(self, cell: Cell, last: int) -> bool:
        """Return whether the rounds up to `last` are done."""
        return all(
            self.result(cell, planned) is not None or self.is_empty(cell, planned)
            for planned in self.planned(cell)
            if planned.round <= last
        )

    def values(self, cell: Cell, planned: PlannedTrial) -> Values | None:
        """Return the values of a trial; None if they are not known yet, or there are none."""
        if planned.round == 1:
            return planned.values
        name = cell.name, planned.round
        if name not in self._left:
            if not self.can_begin(cell, planned):
                return None
            before = (one for one in self.planned(cell) if one.round == planned.round - 1)
            results = (self.result(cell, one) for one in before)
            left = ranked([trial for trial in results if trial is not None])
            self._left[name] = [trial.values for trial in left]
        left_values = self._left[name]
        return left_values[planned.number] if planned.number < len(left_values) else None

    def _key(self, cell: Cell, values: Values, sweep_round: int) -> RunKey:
        name = cell.name, sweep_round, repr(values)
        if name not in self._keys:
            recipe = self._grid.trial_recipe(cell, values, sweep_round)
            self._keys[name] = RunKey(
                without_labels(recipe),
                self._corpora.validation_for(recipe).fingerprint,
            )
        return self._keys[name]
