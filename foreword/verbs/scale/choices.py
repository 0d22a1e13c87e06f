"""`foreword scale choices`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from foreword.display.results import Facts, Part, Remark, Result, ResultTable
from foreword.settings.ranges import Trainings
from foreword.verbs._contract import ARGUMENT, Flag, PathName, Paths
from foreword.verbs._grids import failed, shown_forecast, status_of
from foreword.verbs.scale._ladder import LadderVerb

if TYPE_CHECKING:
    from foreword.comparison.compare import Compared
    from foreword.scaling.choices import BudgetChoice


@dataclass(frozen=True, repr=False)
class Chosen(Result):
    """What wins at each budget of a grid.

    Attributes:
        out: its folder: runs.csv, the comparison of its cells, choices.html, choices.csv.
        rows: a row for each finished run, those known before included.
        choices: the choice of each budget, the smallest first; none while nothing is trained.
        lines: whether each winner stays the winner at the largest budget, and what else to know.
        compared: the comparison, as far as it is done; None if nothing was left to be run.
    """

    out: Path
    rows: tuple[dict[str, Any], ...]
    choices: tuple[BudgetChoice, ...]
    lines: tuple[str, ...]
    compared: Compared | None

    @property
    def status(self) -> int:
        """The exit status; see `status_of`."""
        return status_of(self.compared)

    def tables(self) -> Sequence[Part]:
        """Return the forecast; or the budgets, the cells, and what failed."""
        from foreword.reports.choices import choice_rows, loss_rows

        if self.compared is not None and self.compared.forecast is not None:
            return shown_forecast(self.compared)
        parts: list[Part] = []
        if self.choices:
            parts.append(ResultTable(choice_rows(self.choices), "what wins at each budget"))
            parts.append(ResultTable(loss_rows(self.choices), "loss, and rank"))
        parts += map(Remark, [*self.lines, *failed(self.compared)])
        page = self.out / "choices.html" if self.choices else None
        return [*parts, Facts({"page": page, "runs": self.out / "runs.csv"})]

    def data(self) -> dict[str, Any]:
        """Return the runs and the choices as plain values."""
        budgets = [one.as_json() for one in self.choices]
        return {"runs": list(self.rows), "budgets": budgets, "lines": list(self.lines)}


@dataclass(frozen=True)
class Choices(LadderVerb[Chosen]):
    """Train a grid at several budgets: does what wins at a small one win at the largest?

        foreword.scale.choices("choices_decoder", "books/", "runs/choices", flops=[2e12, 2e13])

    Each cell is one training with a constant rate, off which each budget branches its own decay.
    Kill it at any moment; the same command continues.

    Attributes:
        grid: choices_decoder, or a .toml file with a cell for each choice, schedule wsd.
        data: text files, folders, globs; or a prepared folder.
        out: folder to create, or to continue.
        resamples: draws, for the intervals.
    """

    grid: Annotated[PathName, ARGUMENT]
    data: Paths | None = None
    out: Annotated[PathName, Flag(is_required=True)] = "choices"
    _: KW_ONLY
    resamples: Trainings = 1_000

    def __call__(self) -> Chosen:
        from foreword.comparison import ladder
        from foreword.errors import UserError
        from foreword.reports.choices import write_choices
        from foreword.scaling.choices import compare_budgets, verdict

        out, name = Path(self.out), Path(str(self.grid)).stem
        cells, known = self.grid_of(str(self.grid), self.data), self.known_rows(out, name)
        grid, used = ladder.ladder(cells, self.budgets(), known)
        done = None if grid is None else self.compared(grid, out, is_dry=self.dry_run)
        if self.dry_run or (done is not None and not done.is_done):
            return Chosen(out, (), (), ("nothing was compared",), done)
        rows = used if done is None else ladder.rows_of(done.results, name, used)
        order = [cell.name for cell in cells.cells]
        rows = sorted(rows, key=lambda row: order.index(str(row["size"])))
        out.mkdir(parents=True, exist_ok=True)
        ladder.write_rows(out / ladder.ROWS, rows)
        try:
            found, notes = compare_budgets(rows, self.resamples)
        except UserError as error:
            return Chosen(out, tuple(map(dict, rows)), (), (str(error),), done)
        lines = [*(verdict(one, found[-1]) for one in found[:-1]), *notes]
        write_choices(out, name, found, str(rows[0]["unit"]), lines)
        return Chosen(out, tuple(map(dict, rows)), tuple(found), tuple(lines), done)
