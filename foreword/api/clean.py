"""`foreword.clean`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from foreword.api import _arguments
from foreword.api._arguments import PathName, Paths, Settings, checked
from foreword.api._result import FactsAndRows
from foreword.api.progress import ProgressDisplay, progress_of
from foreword.cleaning.recipe import DEFAULT, CleaningRecipe, load_cleaning
from foreword.cleaning.run import TEXTS
from foreword.cleaning.run import clean as clean_texts
from foreword.errors import UserError
from foreword.reports.cleaning import notes, rows_of, write_page
from foreword.settings import config
from foreword.settings.ranges import Workers


@dataclass(frozen=True, repr=False)
class CleaningResult(FactsAndRows):
    """Cleaned text, and the account of what each step did.

    Attributes:
        out: the folder of the result.
        report: the content of its `clean.json`.
        reused: whether it was there already.
    """

    out: Path
    report: Mapping[str, Any]
    reused: bool

    @property
    def texts(self) -> Path:
        """The folder of the cleaned text, to pass as `data`."""
        return self.out / TEXTS

    @property
    def page(self) -> Path:
        """The page that shows what each step did."""
        return self.out / "clean.html"

    def __fspath__(self) -> str:
        return str(self.texts)

    def _facts(self) -> Mapping[str, Any]:
        return {"texts": self.texts, "page": self.page, "reused": self.reused}

    def _rows(self) -> Sequence[Mapping[str, Any]]:
        return rows_of(self.report)

    @property
    def notes(self) -> list[str]:
        """What a reader should know: texts not judged, languages that lost most of theirs."""
        return notes(self.report)


@checked
def clean(
    data: Paths | None = None,
    out: PathName = "cleaned",
    *,
    texts: Iterable[str] | None = None,
    recipe: PathName | CleaningRecipe = DEFAULT,
    settings: Settings = (),
    workers: Workers | None = None,
    field: str | None = None,
    documents: str | None = None,
    errors: str | None = None,
    progress: bool | ProgressDisplay = True,
) -> CleaningResult:
    """Clean text: drop duplicates and what is not prose, and say what was dropped.

        cleaned = foreword.clean("crawl/", "cleaned", recipe="fineweb")
        foreword.pretrain("gpt2_mini", cleaned.texts, "runs/gpt", hours=1)

    Stopped at any moment, the same call goes on. A page, `clean.html`, shows the counts of each
    step with samples of what it dropped and of what it nearly dropped.

    Args:
        data: text files, folders, globs.
        out: folder for the result.
        texts: documents in place of `data`, any iterable of texts, read once; they are kept in
            `OUT.jsonl`.
        recipe: a recipe of cleaning, by name (gopher, c4, fineweb, copies), as a file or an object.
        settings: settings of the recipe, such as `{"clean.steps[1].min_words": 30}`.
        workers: number of processes; 0 for one per core.
        field: field of JSON or column of Parquet that holds the text.
        documents: what is one document in plain text: file, paragraph or line.
        errors: bytes that are not UTF-8: strict stops, replace replaces and counts.
        progress: whether to show the progress, or what shows it.

    Raises:
        UserError: a source cannot be read, a package is missing, `out` holds something else, or an
            impossible setting.
    """
    # Check every argument before any text is read.
    if (data is None) == (texts is None):
        raise UserError(_arguments.DATA_OR_TEXTS)
    folder = _arguments.path(out, "--out")
    assigned = _arguments.assignments(settings)
    if workers is not None:
        assigned.append(f"clean.executor.workers={workers}")
    if isinstance(recipe, CleaningRecipe):
        table = config.assign(config.to_table(recipe), assigned)
        cleaning = config.build(CleaningRecipe, table)
    else:
        cleaning = load_cleaning(str(_arguments.path(recipe, "--recipe")), assigned)
    reading = _arguments.given_reading_of(texts, field=field, documents=documents, errors=errors)
    cleaning = replace(cleaning, read=_arguments.read_as(cleaning.read, reading))
    sources = list(_arguments.paths(data)) if texts is None else [_arguments.texts_file(folder)]
    display = progress_of(progress)
    with _arguments.kept(texts, folder), display:
        report, reused = clean_texts(sources, folder, cleaning, display.stage)
    result = CleaningResult(folder, report, reused)
    write_page(report, result.page)
    return result
