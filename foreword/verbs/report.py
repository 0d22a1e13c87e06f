"""`foreword report`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from foreword.display.results import Output
from foreword.verbs._contract import ARGUMENT, PathName, Verb


@dataclass(frozen=True)
class Report(Verb[Output]):
    """Write the report of a run or a comparison: one self-contained HTML page.

        foreword.report("runs/books")

    Attributes:
        run: a run folder, or a folder of 'compare'.
        out: the page; default: RUN/report.html.
    """

    run: Annotated[PathName, ARGUMENT]
    out: PathName | None = None

    def __call__(self) -> Output:
        from foreword.reports.comparison import is_comparison, write_comparison
        from foreword.reports.page import write_page

        run, out = Path(self.run), None if self.out is None else Path(self.out)
        page = write_comparison(run, out) if is_comparison(run) else write_page(run, out)
        return Output([f"{page}"], {"page": str(page), "bytes": page.stat().st_size})
