"""What the commands share that train a grid at several budgets."""

from __future__ import annotations

from abc import ABC
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from foreword.errors import UserError
from foreword.settings.ranges import Trainings
from foreword.verbs._contract import Flag, PathName, Paths, R
from foreword.verbs._grids import TrainsGrid
from foreword.verbs.scale._contract import ScaleVerb

if TYPE_CHECKING:
    from foreword.comparison.grid import Grid


@dataclass(frozen=True, kw_only=True)
class LadderVerb(TrainsGrid, ScaleVerb[R], ABC):
    """A command that trains each cell of a grid once, off which each budget branches its decay.

    Attributes:
        flops: the budgets, as in 1e12,3e12,1e13.
        seeds: trainings of each cell.
        known: a runs.csv of finished runs on the same text, which are not run again.
    """

    flops: Annotated[str | Sequence[float], Flag(takes=str, metavar="C1,C2,...", is_required=True)]
    seeds: Trainings = 1
    known: PathName | None = None

    def budgets(self) -> list[float]:
        """Return the budgets, ascending."""
        return numbers_of(self.flops, "--flops")

    def known_rows(self, out: Path, family: str) -> list[dict[str, Any]]:
        """Return the known runs of a family, whose ladder the folder holds or may hold.

        Raises:
            UserError: the folder holds that of another.
        """
        from foreword.comparison.ladder import ROWS, read_rows

        file = out / ROWS
        names = {str(row.get("family")) for row in read_rows(file)} if file.is_file() else set()
        if other := sorted(names - {family}):
            raise UserError(f"{file}: holds the ladder of {other[0]}; choose another --out")
        known = [] if self.known is None else read_rows(Path(self.known))
        return [row for row in known if row.get("family", family) == family]

    def grid_of(self, name: str, data: Paths | None) -> Grid:
        """Return a grid, shipped or a file, on the text."""
        from foreword.comparison.grid import load_grid
        from foreword.train.budget import Budget

        grid = load_grid(name, budget=Budget("flops", 1.0), **self.text(data))
        return replace(grid, seeds=self.seeds)


def numbers_of(given: str | Sequence[float], option: str) -> list[float]:
    """Return numbers that were given as such or as words, ascending and once each.

    Raises:
        UserError: one is no number, or not above 0.
    """
    words = given.split(",") if isinstance(given, str) else given
    try:
        numbers = sorted({float(word) for word in words})
    except ValueError:
        raise UserError(f"{option}: expected numbers as in 1,2.5,1e3, got '{given}'") from None
    if not numbers or not 0 < numbers[0] <= numbers[-1] < 1e30:
        raise UserError(f"{option}: must be above 0, got {given}")
    return numbers
