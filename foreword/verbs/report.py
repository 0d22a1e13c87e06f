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

    Without --out, a run's model card, its README.md, is written anew too, with what was measured
    since.

    Attributes:
        run: a run folder, or a folder of 'compare'.
        out: the page; default: RUN/report.html.
    """

    run: Annotated[PathName, ARGUMENT]
    out: PathName | None = None

    def __call__(self) -> Output:
        from foreword.reports import model_card
        from foreword.reports.comparison import is_comparison, write_comparison
        from foreword.reports.page import write_page

        run, out = Path(self.run), None if self.out is None else Path(self.out)
        if is_comparison(run):
            page = write_comparison(run, out)
        else:
            page = write_page(run, out)
            if out is None:
                model_card.write(run, run, model_card.OWN, {})
        return Output([f"{page}"], {"page": str(page), "bytes": page.stat().st_size})
