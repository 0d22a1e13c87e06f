"""`foreword scale plateaus`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from foreword.disk import atomic
from foreword.display.results import Facts, Part, Remark, Result, ResultTable
from foreword.errors import UserError
from foreword.scaling.columns import RunColumns
from foreword.settings.ranges import OpenShare, Trainings
from foreword.verbs._arguments import paths
from foreword.verbs._contract import Flag, PathName, Paths
from foreword.verbs.scale._contract import ScaleVerb

if TYPE_CHECKING:
    from foreword.scaling.plateaus import Plateau, Trend


@dataclass(frozen=True, repr=False)
class Plateaued(Result):
    """Where the curves of sizes flatten.

    Attributes:
        out: the folder with plateaus.html and plateaus.csv.
        plateaus: that of each size.
        trends: how it changes with size, by family.
        notes: what was left out.
    """

    out: Path
    plateaus: tuple[Plateau, ...]
    trends: dict[str, Trend]
    notes: tuple[str, ...]

    @property
    def title(self) -> str:
        """What a plateau is, in words."""
        share = f"{100 * self.plateaus[0].threshold:.2g} %"
        return f"tokens from which a doubling takes less than {share} off the loss"

    @property
    def remarks(self) -> list[str]:
        """The trends, and what was left out."""
        trends = (f"{of}: {trend.verdict}" for of, trend in self.trends.items())
        return [*(line.removeprefix(": ") for line in trends), *self.notes]

    def tables(self) -> Sequence[Part]:
        """Return a row for each size, whether smaller ones flatten sooner, and where all is."""
        from foreword.reports.plateaus import plateau_rows

        table = ResultTable(plateau_rows(self.plateaus), self.title)
        return [table, *map(Remark, self.remarks), Facts({"page": self.out / "plateaus.html"})]

    def data(self) -> dict[str, Any]:
        """Return all numbers."""
        trends = {
            of or "all": {**vars(trend), "verdict": trend.verdict}
            for of, trend in self.trends.items()
        }
        return {
            "threshold": self.plateaus[0].threshold,
            "sizes": [one.as_json() for one in self.plateaus],
            "trends": trends,
            "notes": list(self.notes),
            "page": str(self.out / "plateaus.html"),
        }


@dataclass(frozen=True)
class Plateaus(RunColumns, ScaleVerb[Plateaued]):
    """Find the tokens at which the loss of each size flattens, and whether smaller ones do sooner.

        foreword.scale.plateaus("runs/scale").plateaus

    The curve of a size is E + B / D^b, fitted to its held-out losses by tokens D at a constant
    learning rate, before any decay. OUT has a page, plateaus.html, and the figures, plateaus.csv.

    Attributes:
        runs: run folders, or that of `foreword scale run` or `compare`; or one table with a row for
            each measurement.
        out: folder of the results; default: plateaus in the folder, TABLE-plateaus beside a table.
        threshold: share of the loss that a doubling of the tokens takes off where a curve counts as
            flat, as in 0.01; default: the lowest that all sizes reach.
        losses: heldout, or train: the means of the steps' own, of which there are more; of runs.
        resamples: draws, for the intervals.
    """

    runs: Annotated[Paths, Flag(is_argument=True, metavar="RUN...")]
    out: PathName | None = None
    _: KW_ONLY
    threshold: OpenShare | None = None
    losses: Annotated[Literal["heldout", "train"], Flag(takes=str)] = "heldout"
    resamples: Trainings = 1_000

    def __call__(self) -> Plateaued:
        from foreword.comparison.ladder import measurements_of
        from foreword.reports.plateaus import write_plateaus
        from foreword.scaling.plateaus import find_plateaus, trend_of
        from foreword.scaling.runs import read_runs

        if self.losses not in ("heldout", "train"):
            raise UserError(f"--losses: must be heldout or train, got '{self.losses}'")
        # A table, or what the logs of runs make one.
        names = list(dict.fromkeys(map(Path, paths(self.runs))))
        source: Any
        first, notes = names[0], list[str]()
        if first.is_file():
            if len(names) > 1:
                raise UserError(f"{names[1]}: give one table, or folders of runs")
            source, out = first, first.parent / f"{first.name.partition('.')[0]}-plateaus"
        else:
            (source, notes), out = measurements_of(names, self.losses), first / "plateaus"
        out = out if self.out is None else Path(self.out)
        atomic.require_writable(out, is_folder=True)
        columns = RunColumns(**{f.name: getattr(self, f.name) for f in fields(RunColumns)})
        families = read_runs(source, columns if first.is_file() else None)
        if len(families) == 1:
            families = [replace(families[0], family="", where_read=f"{first}: ")]

        found = find_plateaus(families, self.threshold, self.resamples)
        trends = {
            runs.family: trend_of([one for one in found if one.family == runs.family])
            for runs in families
        }
        said = dict.fromkeys(note for runs in families for note in runs.notes)
        notes += [note for note in said if "FLOPs" not in note]
        result = Plateaued(out, tuple(found), trends, tuple(notes))
        write_plateaus(out, first.name, found, result.title, result.remarks)
        return result
