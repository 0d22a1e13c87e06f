"""`foreword claims run`."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import KW_ONLY, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from foreword.display.results import Part, Remark, Result, ResultTable
from foreword.errors import UserError
from foreword.settings.ranges import Hours, Positive, Trainings
from foreword.verbs._arguments import paths
from foreword.verbs._contract import Flag, PathName, Paths
from foreword.verbs._groups import ReadsText, ShowsProgress
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
        """The exit status: 0 if all is done, 130 if it was stopped, 2 if a cell failed."""
        if self.compared.forecast is not None:
            return 2 if any(cell.error for cell in self.compared.forecast.cells) else 0
        if not self.compared.is_done:
            return 130
        return 2 if self.compared.results.comparison.failures else 0

    def tables(self) -> Sequence[Part]:
        """Return the forecast; or the verdicts, and what failed."""
        from foreword.comparison.tables import forecast_table

        if self.compared.forecast is not None:
            table = forecast_table(self.compared.forecast)
            shown: list[Any] = [dict(zip(table.columns, r, strict=True)) for r in table.rows]
            notes = [*self.compared.notes, f"budgets at {self.scale:g} times the shipped ones"]
            return [ResultTable(shown, table.title), *map(Remark, notes)]
        parts = [] if self.table is None else list(self.table.tables())
        failures = self.compared.results.comparison.failures
        parts += [Remark(f"failed: {one.job}: {one.error}") for one in failures]
        if not self.compared.is_done:
            parts.append(Remark(f"stopped; the same command continues in {self.out}"))
        return parts

    def data(self) -> dict[str, Any]:
        """Return the forecast, or the verdicts, as plain values."""
        if self.compared.forecast is not None:
            return {**self.compared.forecast.as_json(), "scale": self.scale}
        return {} if self.table is None else self.table.data()


@dataclass(frozen=True)
class Run(ReadsText, ShowsProgress, ClaimsVerb[ClaimsRun]):
    """Train the cells of claims, each once for all that share it, and give the verdicts.

        foreword.claims.run(data="books/", out="runs/claims")

    What would refute a claim is recorded before its cells are trained. Kill it at any moment; the
    same command continues, and what another claim or a larger --scale has in common with earlier
    work is not done again. Claims whose task files are not there are left out.

    Attributes:
        names: claims (show claims lists them) or .toml files; default: all that are shipped.
        data: text files, folders, globs; or a prepared folder.
        out: folder to create, or to continue.
        heldout: held-out text; default: a share of the data.
        tasks: folder of the files of tasks and probes.
        scale: by how much to multiply the budgets; default: 1, at most ten minutes a training on
            two cores.
        hours: choose the scale by which all takes about this long here, one job at a time.
        seeds: trainings of each cell; default: as the claims say, mostly 3.
        dry_run: prepare the data and estimate the time; train nothing.
        ray: work on a Ray cluster: HOST:PORT, auto, or local to start one on this machine.
    """

    names: Annotated[Paths, Flag(is_argument=True, metavar="CLAIM...")] = ()
    data: Paths | None = None
    out: Annotated[PathName, Flag(is_required=True)] = "claims"
    _: KW_ONLY
    heldout: Paths | None = None
    tasks: PathName | None = None
    scale: Positive | None = None
    hours: Hours | None = None
    seeds: Trainings | None = None
    dry_run: bool = False
    ray: Annotated[str | None, Flag(metavar="ADDRESS")] = None

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
        from foreword.data.remote_tokens import local

        grids, left_out = load_claims(
            [str(name) for name in paths(self.names)],
            [local(text) for text in paths(self.data)],
            None if self.tasks is None else Path(self.tasks),
            list(paths(self.heldout)),
            self.reading,
        )
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
        forecast = self._compared(atlas(grids), is_dry=True).forecast
        assert forecast is not None
        return float(f"{self.hours * 3600 / forecast.seconds:.3g}")

    def _trained(self, made: Atlas, scale: float, left_out: dict[str, str]) -> Compared:
        """Record the claims, and train their cells."""
        from foreword.atlas import record

        known = record.Record(scale, self.hours, made.grid.data, {}, left_out)

        def begin(earlier: Results) -> None:
            record.commit(Path(self.out), made, known, {run.cell for run in earlier.runs})

        return self._compared(made, is_dry=self.dry_run, begin=begin)

    def _compared(self, made: Atlas, **how: Any) -> Compared:
        from foreword.comparison.compare import compare
        from foreword.process.cluster import connected

        try:
            with (
                nullcontext() if self.ray is None else connected(self.ray) as cluster,
                self.display(announces=True) as display,
            ):
                return compare(made.grid, Path(self.out), display, cluster, **how)
        except KeyboardInterrupt:
            again = f"stopped; the same command continues in {self.out}"
            raise KeyboardInterrupt(again) from None
