"""`foreword scale fit`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass, fields
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_args

from foreword.disk import atomic
from foreword.display.results import Facts, Part, Remark, Result, ResultTable
from foreword.errors import UserError
from foreword.scaling.columns import RunColumns
from foreword.settings.ranges import Trainings
from foreword.verbs._contract import Flag, PathName
from foreword.verbs._groups import Examples, ShowsProgress
from foreword.verbs.scale._contract import ScaleVerb

if TYPE_CHECKING:
    from foreword.scaling.fit import FamilyFit
    from foreword.scaling.law import Law

Criterion = Literal["huber", "squares"]


@dataclass(frozen=True, repr=False)
class ScalingLaws(Result):
    """Scaling laws of each family of a table.

    Attributes:
        out: the folder with the page, the tables and the laws.
        fits: the fits of each family; of one whose table counts parameters without embeddings too,
            a second one after it.
        laws: the direct fits that were not refused, by the names of their files in `out`.
        left_out: why a family has no fit, a line each.
    """

    out: Path
    fits: tuple[FamilyFit, ...]
    laws: dict[str, Law]
    left_out: tuple[str, ...] = ()

    @property
    def status(self) -> int:
        """The exit status: 2 if no method found a law that is to be used."""
        found = (method for fit in self.fits for method in fit.methods.values())
        return 2 if all(method.refused for method in found) else 0

    @property
    def page(self) -> Path:
        """The page that shows the fits."""
        return self.out / "laws.html"

    def tables(self) -> Sequence[Part]:
        """Return the methods of each family, what to know of them, and where all is."""
        from foreword.reports.scaling import (
            method_rows,
            remarks_of,
            repeated_rows,
            score_line,
            score_rows,
            value_rows,
        )

        parts: list[Part] = []
        for fit in self.fits:
            parts.append(ResultTable(method_rows(fit), f"{fit.name}: optimal tokens"))
            refused = ", refused" if fit.methods["direct"].refused else ""
            title = f"direct fit{refused}: L = E + A / N^alpha + B / D^beta"
            parts.append(ResultTable(value_rows(fit), title))
            if fit.repeated:
                parts.append(ResultTable(repeated_rows(fit), "text read several times"))
            if fit.score is not None:
                rows = score_rows(fit)
                parts += [ResultTable(rows, "the largest budget's score")] if rows else []
                parts.append(Remark(score_line(fit)))
            parts += map(Remark, remarks_of(fit))
        parts += map(Remark, self.left_out)
        if self.status:
            parts.append(Remark("no law: all methods are refused"))
        names = ", ".join(str(self.out / name) for name in self.laws) or None
        return [*parts, Facts({"page": self.page, "laws": names})]

    def data(self) -> dict[str, Any]:
        """Return all numbers: those of the one family by method, or `families` by name."""
        families: dict[str, dict[str, Any]] = {}
        for fit in self.fits:
            found = fit.as_json()
            if fit.counted == "all":
                families[fit.runs.family or "all"] = found
            else:
                families[fit.runs.family or "all"]["without_embeddings"] = found
        files = {"page": str(self.page), "laws": [str(self.out / name) for name in self.laws]}
        alone = next(iter(families.values())) if len(families) == 1 else {}
        return {**alone, "families": families, "left_out": self.left_out, **files}


@dataclass(frozen=True)
class Fit(RunColumns, ShowsProgress, ScaleVerb[ScalingLaws]):
    """Fit scaling laws to a table of finished runs, by three methods side by side.

        foreword.scale.fit("runs.csv").laws

    The table has a row for each run: its parameters, its tokens or FLOPs, its loss, perhaps its
    seed and its family; each family gets a law. The methods are a direct fit of the loss, the best
    size of each budget, and the lower envelope of all runs. The largest budget is not fitted but
    forecast. OUT has a page, laws.html, the figures in methods.csv and runs.csv, and each law as
    FAMILY.toml, for 'plan --laws'.

    Attributes:
        table: CSV, TSV, JSON, JSON lines or Parquet; in Python also a DataFrame or a list of
            dictionaries.
        out: folder of the results; default: TABLE-laws beside the table.
        criterion: what the direct fit minimises: huber (of log loss) or squares (of the loss).
        resamples: number of resampled tables, for the intervals.
        unit: unit of the loss, for the law's file; default: that of the table, or nats per token.
        text: name of the text that the losses are of, for the law's file.
        machine: machine that trained the runs, for the law's file.
    """

    table: Annotated[Examples, Flag(is_argument=True, takes=PathName)]
    out: PathName | None = None
    _: KW_ONLY
    criterion: Annotated[Criterion, Flag(takes=str)] = "huber"
    resamples: Trainings = 1_000
    unit: str = ""
    text: str = ""
    machine: str = ""

    def __call__(self) -> ScalingLaws:
        from foreword.reports.scaling import write_laws
        from foreword.runs.stages import Prefixed
        from foreword.scaling.fit import fit_runs
        from foreword.scaling.runs import read_runs

        if self.criterion not in get_args(Criterion):
            choices = ", ".join(get_args(Criterion))
            raise UserError(f"--criterion: must be one of {choices}, got '{self.criterion}'")
        is_file = isinstance(self.table, str | PathLike)
        table = Path(self.table) if is_file else Path("table")  # type: ignore[arg-type]
        plain = table.name.partition(".")[0] or "table"
        out = table.parent / f"{plain}-laws" if self.out is None else Path(self.out)
        atomic.require_writable(out, is_folder=True)
        columns = RunColumns(**{f.name: getattr(self, f.name) for f in fields(RunColumns)})
        families = read_runs(self.table, columns)
        fits: list[FamilyFit] = []
        left_out: list[str] = []
        with self.display() as display:
            for runs in families:
                name = f"{runs.family}: " if runs.family else ""
                stage = Prefixed(display, name).stage
                try:
                    fits += fit_runs(runs, self.criterion, self.resamples, stage)
                except UserError as error:  # a family of one size keeps no other from its law
                    left_out.append(f"left out: {error}")
                    if len(left_out) == len(families):
                        raise
        laws = write_laws(out, table.name, fits, (self.unit, self.text, self.machine))
        return ScalingLaws(out, tuple(fits), laws, tuple(left_out))
