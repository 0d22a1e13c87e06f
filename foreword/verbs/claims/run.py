"""`foreword claims run`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from foreword.display.results import Part, Remark, Result
from foreword.errors import UserError
from foreword.settings.ranges import Hours, Positive, Trainings
from foreword.verbs._arguments import paths
from foreword.verbs._contract import Flag, PathName, Paths
from foreword.verbs._grids import TrainsGrid, failed, shown_forecast, status_of
from foreword.verbs.claims._contract import ClaimsVerb
from foreword.verbs.claims.table import ClaimsTable, Table

if TYPE_CHECKING:
    from foreword.atlas.merged import Atlas
    from foreword.comparison.compare import Compared
    from foreword.comparison.grid import Grid
    from foreword.comparison.results import Results


@dataclass(frozen=True, repr=False)
class ClaimsRun(Result):
    """The claims, as far as their cells are trained.

    Attributes:
        out: the folder.
        compared: the comparison of all cells.
        table: the verdicts; None if nothing was to be trained.
        scale: by how much the budgets of the claims were multiplied.
    """

    out: Path
    compared: Compared
    table: ClaimsTable | None
    scale: float

    @property
    def status(self) -> int:
        """The exit status; see `status_of`."""
        return status_of(self.compared)

    def tables(self) -> Sequence[Part]:
        """Return the forecast; or the verdicts, and what failed."""
        if self.compared.forecast is not None:
            budgets = f"budgets at {self.scale:g} times the shipped ones"
            return shown_forecast(self.compared, budgets)
        parts = [] if self.table is None else list(self.table.tables())
        parts += [Remark(f"failed: {line}") for line in failed(self.compared)]
        if not self.compared.is_done:
            parts.append(Remark(f"stopped; the same command continues in {self.out}"))
        return parts

    def data(self) -> dict[str, Any]:
        """Return the forecast, or the verdicts, as plain values."""
        if self.compared.forecast is not None:
            return {**self.compared.forecast.as_json(), "scale": self.scale}
        return {} if self.table is None else self.table.data()


@dataclass(frozen=True)
class Run(TrainsGrid, ClaimsVerb[ClaimsRun]):
    """Train the cells of claims, each once for all that share it, and give the verdicts.

        foreword.claims.run(data="books/", out="runs/claims")

    A cell is a recipe with its settings and budget, trained with several seeds. What would refute a
    claim is recorded before its cells are trained. Kill it at any moment; the same command
    continues, and what another claim or a larger --scale shares with earlier work is not done
    again. Claims whose task files are not there are left out.

    Attributes:
        names: claims ('foreword show claims' lists them) or .toml files; default: all shipped ones.
        data: text files, folders, globs; or a prepared folder.
        out: folder to create, or to continue.
        tasks: folder of the files of tasks and probes.
        scale: factor of the budgets; default: 1, at most ten minutes a training on two cores.
        hours: hours that all should take here, one job at a time: chooses the scale.
        seeds: number of trainings of each cell; default: as the claims say, mostly 3.
    """

    names: Annotated[Paths, Flag(is_argument=True, metavar="CLAIM...")] = ()
    data: Paths | None = None
    out: Annotated[PathName, Flag(is_required=True)] = "claims"
    _: KW_ONLY
    tasks: PathName | None = None
    scale: Positive | None = None
    hours: Hours | None = None
    seeds: Trainings | None = None

    def __call__(self) -> ClaimsRun:
        from foreword.atlas.merged import atlas

        if self.scale is not None and self.hours is not None:
            raise UserError("--hours: chooses the scale; leave out --scale")
        out, (grids, left_out) = Path(self.out), self._grids()
        scale = self._scale(grids)
        compared = self._trained(atlas(grids, scale), scale, left_out)
        table = Table(out)() if compared.forecast is None else None
        return ClaimsRun(out, compared, table, scale)

    def _grids(self) -> tuple[dict[str, Grid], dict[str, str]]:
        from foreword.atlas.merged import load_claims

        names = [str(name) for name in paths(self.names)]
        grids, left_out = load_claims(names, **self.text(self.data, self.tasks))
        if not grids:
            raise UserError(f"no claim can be decided: {'; '.join(left_out.values())}; see --tasks")
        if self.seeds is not None:
            grids = {name: replace(one, seeds=self.seeds) for name, one in grids.items()}
        return grids, left_out

    def _scale(self, grids: dict[str, Grid]) -> float:
        """Return the scale of the budgets; one that was chosen by hours stays as it is."""
        from foreword.atlas import record
        from foreword.atlas.merged import atlas

        if self.hours is None:
            return 1.0 if self.scale is None else self.scale
        if (Path(self.out) / record.FILE).is_file():
            known = record.read(Path(self.out))
            if known.hours == self.hours:
                return known.scale
        forecast = self.compared(atlas(grids).grid, Path(self.out), is_dry=True).forecast
        assert forecast is not None
        return float(f"{self.hours * 3600 / forecast.seconds:.3g}")

    def _trained(self, made: Atlas, scale: float, left_out: dict[str, str]) -> Compared:
        """Record the claims, and train their cells."""
        from foreword.atlas import record

        out = Path(self.out)
        known = record.Record(scale, self.hours, made.grid.data, left_out=left_out)

        def begin(earlier: Results) -> None:
            if (out / record.FILE).is_file() and record.read(out).claims.keys() - made.claims:
                Table(out)()  # before these results take the place of those
            record.commit(out, made, known, {run.cell for run in earlier.runs})

        return self.compared(made.grid, out, is_dry=self.dry_run, begin=begin)
