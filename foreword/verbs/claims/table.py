"""`foreword claims table`."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import KW_ONLY, asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from foreword.display.results import Part, Remark, Result, ResultTable
from foreword.formatting import probability
from foreword.verbs._contract import ARGUMENT, PathName
from foreword.verbs.claims._contract import ClaimsVerb

if TYPE_CHECKING:
    from foreword.atlas.rows import ClaimRow


@dataclass(frozen=True, repr=False)
class ClaimsTable(Result):
    """The verdicts on the claims of a folder.

    Attributes:
        rows: a row for each claim.
        files: claims.md, claims.csv, claims_cells.csv and claims.png.
        left_out: why other claims are not decided, by name.
    """

    rows: tuple[ClaimRow, ...]
    files: tuple[Path, ...]
    left_out: dict[str, str]

    def tables(self) -> Sequence[Part]:
        """Return the verdicts, and where they are written."""
        rows = [
            {
                "claim": row.claim,
                "verdict": row.verdict,
                "number": row.number,
                "low": row.low,
                "high": row.high,
                "least": row.least,
                "p (Holm)": None if math.isnan(row.p_holm) else probability(row.p_holm),
                "seeds": row.seeds,
                "needs": row.needs,
            }
            for row in self.rows
        ]
        left_out = [Remark(f"left out: {name}: {why}") for name, why in self.left_out.items()]
        return [ResultTable(rows), *left_out, Remark("  ".join(map(str, self.files)))]

    def data(self) -> dict[str, Any]:
        """Return the verdicts as plain values."""
        return {"claims": list(map(asdict, self.rows)), "left_out": self.left_out}


@dataclass(frozen=True)
class Table(ClaimsVerb[ClaimsTable]):
    """Write the verdicts on claims, from the results of `claims run` alone.

        foreword.claims.table("runs/claims", to="docs/")

    Verdicts that claims.csv of the folder has on other claims stay, with when and where they were
    measured.

    Attributes:
        out: folder of `claims run`.
        to: folder for claims.md, claims.csv, claims_cells.csv and claims.png; default: that of the
            claims.
    """

    out: Annotated[PathName, ARGUMENT]
    _: KW_ONLY
    to: PathName | None = None

    def __call__(self) -> ClaimsTable:
        from foreword.atlas import page
        from foreword.atlas.record import findings
        from foreword.atlas.rows import merged

        out, folder = Path(self.out), Path(self.out if self.to is None else self.to)
        found = findings(out)
        rows = merged(found, out, folder)
        known = {row.claim for row in rows.claims}
        left_out = {name: why for name, why in found.record.left_out.items() if name not in known}
        page.write(rows, left_out, folder)
        return ClaimsTable(rows.claims, tuple(folder / name for name in page.FILES), left_out)
