"""`foreword clean`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from pathlib import Path
from typing import Annotated, Any

from foreword.cleaning.recipe import DEFAULT, CleaningRecipe, load_cleaning
from foreword.display.results import Facts, Part, Remark, Result, ResultTable
from foreword.errors import UserError
from foreword.settings import config
from foreword.settings.ranges import Workers
from foreword.verbs._arguments import assignments, paths, require_path, saved_texts
from foreword.verbs._contract import SET, Flag, PathName, Paths, Settings, Verb
from foreword.verbs._groups import ShowsProgress, TakesTexts


@dataclass(frozen=True, repr=False)
class CleaningResult(Result):
    """Cleaned text, and the statistics of each step.

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
        from foreword.cleaning.run import TEXTS

        return self.out / TEXTS

    @property
    def page(self) -> Path:
        """The page that shows what each step did."""
        return self.out / "clean.html"

    @property
    def notes(self) -> list[str]:
        """What a reader should know: texts not judged, languages that lost most of theirs."""
        from foreword.reports.cleaning import notes

        return notes(self.report)

    def __fspath__(self) -> str:
        return str(self.texts)

    def tables(self) -> Sequence[Part]:
        """Return the counts of each step, the notes, and where the text is."""
        from foreword.reports.cleaning import rows_of

        state = "unchanged, reused" if self.reused else "written"
        facts = Facts({"texts": f"{self.texts} ({state})", "page": self.page})
        return [ResultTable(rows_of(self.report)), *map(Remark, self.notes), facts]

    def data(self) -> dict[str, Any]:
        """Return the statistics, and where the text is."""
        return {"texts": str(self.texts), "reused": self.reused, **self.report}


@dataclass(frozen=True)
class Clean(TakesTexts, ShowsProgress, Verb[CleaningResult]):
    """Clean text: drop what is not prose, what repeats itself, duplicates, and more.

        cleaned = foreword.clean("crawl/", "cleaned", recipe="fineweb")
        foreword.pretrain("gpt2_mini", cleaned.texts, "runs/gpt", hours=1)

    OUT/texts is text for 'prepare' and 'pretrain'; the page OUT/clean.html shows what each step
    dropped and changed, with samples. Stopped at any moment, the same command continues.
    'foreword show gopher' prints a recipe, 'foreword show cleaning/steps' lists the steps.
    Requires the extra data: pip install 'foreword[data]'.

    Attributes:
        data: text files, folders, globs.
        out: folder to create, or to continue.
        recipe: recipe of cleaning: gopher, c4, fineweb, copies, or a .toml file.
        settings: a setting of the recipe: clean.steps[1].min_words=30; repeatable.
        workers: number of processes; 0, the default, for one per core.
    """

    data: Annotated[Paths | None, Flag(is_argument=True, metavar="SOURCE...", is_required=True)] = (
        None
    )
    out: Annotated[PathName, Flag(metavar="DIR", is_required=True)] = "cleaned"
    _: KW_ONLY
    recipe: PathName | CleaningRecipe = DEFAULT
    settings: Annotated[Settings, SET] = ()
    workers: Workers | None = None

    def __call__(self) -> CleaningResult:
        from foreword.cleaning.run import clean
        from foreword.reports.cleaning import write_page

        # Check every argument before any text is read.
        if self.target is not None:
            raise UserError("--target: parallel text cannot be cleaned; clean each side apart")
        folder = Path(self.out)
        sources = self.files(paths(self.data), folder)
        recipe = self._recipe()

        # Clean, and write the page.
        try:
            with saved_texts(self.texts, folder), self.display() as display:
                report, reused = clean(sources, folder, recipe, display.stage)
        except KeyboardInterrupt:
            raise KeyboardInterrupt(f"stopped; the same command continues in {folder}") from None
        result = CleaningResult(folder, report, reused)
        write_page(report, result.page)
        return result

    def _recipe(self) -> CleaningRecipe:
        assigned = assignments(self.settings)
        if self.workers is not None:
            assigned.append(f"clean.executor.workers={self.workers}")
        if isinstance(self.recipe, CleaningRecipe):
            table = config.assign(config.to_table(self.recipe), assigned)
            recipe = config.build(CleaningRecipe, table)
        else:
            recipe = load_cleaning(require_path(self.recipe, "--recipe"), assigned)
        return replace(recipe, read=self.read_as(recipe.read))
