"""`foreword scale run`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from foreword.disk import atomic
from foreword.display.results import Facts, Part, Remark, Result, ResultTable
from foreword.errors import UserError
from foreword.settings.ranges import Trainings
from foreword.verbs._contract import ARGUMENT, Flag, PathName, Paths
from foreword.verbs._grids import failed, shown_forecast, status_of
from foreword.verbs.scale._ladder import LadderVerb, numbers_of
from foreword.verbs.scale.fit import Fit, ScalingLaws

if TYPE_CHECKING:
    from foreword.comparison.compare import Compared
    from foreword.comparison.grid import Grid

SHOWN = ("size", "parameters", "tokens", "flops", "loss", "unit", "seed")


@dataclass(frozen=True, repr=False)
class ScaledRuns(Result):
    """The runs of a ladder, and the laws fitted to them.

    Attributes:
        out: its folder: `runs.csv`, the comparison of its cells, the laws.
        rows: a row for each finished run, those known before included.
        laws: the laws; None while the runs are too few for any.
        why: why there are no laws.
        compared: the comparison, as far as it is done; None if nothing was left to be run.
        rule: the best learning rate by width, in words; "" if none was looked for.
    """

    out: Path
    rows: tuple[dict[str, Any], ...]
    laws: ScalingLaws | None
    why: str
    compared: Compared | None
    rule: str = ""

    @property
    def status(self) -> int:
        """The exit status; see `status_of`."""
        return status_of(self.compared)

    def tables(self) -> Sequence[Part]:
        """Return the forecast; or the runs, the laws, and what failed."""
        if self.compared is not None and self.compared.forecast is not None:
            return shown_forecast(self.compared)
        rows = [{name: row.get(name, "") for name in SHOWN} for row in self.rows]
        parts: list[Part] = [ResultTable(rows, "the runs")]
        parts += [Remark(self.rule)] if self.rule else []
        parts += [Remark(self.why)] if self.laws is None else self.laws.tables()
        parts += map(Remark, failed(self.compared))
        pages = self.out / "rates.html" if self.rule else None
        return [*parts, Facts({"runs": self.out / "runs.csv", "rates": pages})]

    def data(self) -> dict[str, Any]:
        """Return the runs and the laws as plain values."""
        laws = None if self.laws is None else self.laws.data()
        return {"runs": list(self.rows), "laws": laws, "why": self.why, "rates": self.rule}


@dataclass(frozen=True)
class Run(LadderVerb[ScaledRuns]):
    """Train a ladder of sizes at several budgets, and fit scaling laws to it.

        foreword.scale.run("decoder", "books/", "runs/scale", flops=[1e12, 3e12, 1e13, 3e13])

    Each size is one training with a constant rate, off which each budget branches its own decay.
    Kill it at any moment; the same command continues.

    Attributes:
        family: decoder, encoder, encoder_decoder or lstm; or a grid, a .toml file with a cell for
            each size.
        data: text files, folders, globs; or a prepared folder.
        out: folder to create, or to continue.
        rates: factors of each size's learning rate to try at the two smallest budgets, as in
            0.25,0.5,1,2,4; a rule of the width is fitted to the best and used for all budgets.
        resamples: resampled tables, for the intervals of the laws.
    """

    family: Annotated[PathName, ARGUMENT]
    data: Paths | None = None
    out: Annotated[PathName, Flag(is_required=True)] = "scale"
    _: KW_ONLY
    rates: Annotated[str | Sequence[float] | None, Flag(takes=str, metavar="F1,F2,...")] = None
    resamples: Trainings = 1_000

    def __call__(self) -> ScaledRuns:
        from foreword.comparison import ladder
        from foreword.settings import config

        out, name = Path(self.out), Path(str(self.family)).stem
        family = name.removeprefix("scale_")
        is_shipped = f"scale_{self.family}" in config.GRIDS.names()
        sizes = self.grid_of(f"scale_{self.family}" if is_shipped else str(self.family), self.data)
        known, budgets = self.known_rows(out, family), self.budgets()
        rule, done, rows = "", None, known
        tried: list[Any] = []
        if self.rates is not None:
            sizes, rule, done, tried = self._tuned(sizes, budgets, family, known)
        laws, why = None, "nothing was trained"
        if done is not None and (self.dry_run or not done.is_done):
            return ScaledRuns(out, tuple(rows), laws, why, done)
        grid, used = ladder.ladder(sizes, budgets, known)
        # What is known of other rates than the rule's is no run of the ladder.
        known = [row for row in known if row not in tried or row in used]
        done = None if grid is None else self.compared(grid, out, is_dry=self.dry_run)
        if not self.dry_run:
            rows = known if done is None else ladder.rows_of(done.results, family, known)
            ladder.write_rows(out / ladder.ROWS, rows)
            text = ", ".join(map(str, sizes.data))
            try:
                laws = Fit(
                    out / ladder.ROWS,
                    out / "laws",
                    resamples=self.resamples,
                    text=text,
                    progress=self.progress,
                )()
            except UserError as error:
                why = f"no laws: {error}"
        return ScaledRuns(out, tuple(rows), laws, "" if laws else why, done, rule)

    def _tuned(
        self, sizes: Grid, budgets: Sequence[float], family: str, known: Sequence[dict[str, Any]]
    ) -> tuple[Grid, str, Compared | None, list[Any]]:
        """Return the sizes with a rule's rates, the rule, its comparison and the rows it knew."""
        from foreword.comparison import ladder
        from foreword.reports.rates import rates_page, rule_line
        from foreword.scaling.rates import best_rates, rate_rule

        out = Path(self.out)
        assert self.rates is not None
        factors = numbers_of(self.rates, "--rates")
        if len(factors) < 3:
            raise UserError("--rates: give three factors or more, as in 0.5,1,2")
        grid, tried = ladder.ladder(ladder.with_rates(sizes, factors), budgets, known, most=2)
        done = None if grid is None else self.compared(grid, out, is_dry=self.dry_run)
        rows = tried if done is None else ladder.rows_of(done.results, family, tried)
        if (done is not None and (self.dry_run or not done.is_done)) or not rows:
            return sizes, "", done, tried
        found = best_rates(rows)
        rule = rate_rule(found)
        ladder.write_rows(out / "rates.csv", rows)
        atomic.write_text(out / "rates.html", rates_page(family, found, rule))
        if rule is not None:
            sizes = ladder.with_rule(sizes, rule, max(one.flops for one in found))
        return sizes, rule_line(rule), done, tried
