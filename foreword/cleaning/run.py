"""Cleaning: stages of tasks, resumed where they were stopped, and the statistics of all steps.

    OUT/texts/part-00000.jsonl.zst ...   the cleaned documents
    OUT/clean.json                       what each step read, dropped and changed, with samples
    OUT/recipe.toml                      the recipe
    OUT/manifest.json                    sizes and checksums of the documents' files
    OUT/.work/                           stages in progress; removed at the end

Steps up to the first that compares documents are one stage: each task reads its share of the
files, applies the steps, saves what is left and signs it. Then the signatures are searched, and the
next stage reads what was saved.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from threading import Event, Thread
from typing import Any

from foreword.cleaning.executors._contract import CODE, Executor, TasksFailedError
from foreword.cleaning.recipe import CleaningRecipe
from foreword.cleaning.steps._contract import CorpusStep, DocumentStep, Step
from foreword.data.fingerprint import digest, file_state
from foreword.data.read_documents import find_files, reader_of, verify_cleaned
from foreword.data.text_files import CLEANED, ReadCounts, ReadSettings, sum_counts
from foreword.disk import atomic, manifest, stored
from foreword.errors import UserError
from foreword.process.extras import require_packages
from foreword.settings import config, kinds

VERSION = 2
PACKAGES = ("datatrove", "py3langid", "regex")
WORK, TEXTS, REPORT, RECIPE = ".work", "texts", "clean.json", "recipe.toml"
PLAN, MARKS, SIGNS = "plan.json", "marks", "signs"
MOST_PARTS = 16  # tasks that share a file; each reads all of it and takes its documents
POLL = 0.3  # seconds between two looks at the progress

Begin = Callable[[str], Callable[..., None]]


@dataclass(frozen=True)
class CleaningStage:
    """Tasks that do the same at once.

    Attributes:
        name: in words, for the progress.
        folder: the folder for the marks of completed tasks.
        blocks: datatrove's.
        tasks: number of tasks.
    """

    name: str
    folder: Path
    blocks: list[Any]
    tasks: int


def clean(
    sources: Sequence[str | Path], out: Path, recipe: CleaningRecipe, begin: Begin
) -> tuple[dict[str, Any], bool]:
    """Clean texts, or go on where cleaning was stopped.

    Args:
        sources: files, folders and patterns.
        out: folder for the result.
        recipe: the steps.
        begin: begins a stage of the progress; returns what takes tasks done and in all.

    Returns:
        The content of `clean.json`, and whether it was there already.

    Raises:
        UserError: a source cannot be read, a package is missing, or `out` holds something else.
    """
    require_packages(PACKAGES, "cleaning requires", "data")
    counts = ReadCounts()
    files = find_files(sources, counts, recipe.read)
    for source in map(Path, sources):
        if source.is_dir() and out.resolve().is_relative_to(source.resolve()):
            raise UserError(f"--out {out}: the result would be read again as part of {source}")
    fingerprint = _fingerprint(files, recipe)
    if (done := _finished(out, fingerprint)) is not None:
        return done, True
    _require_same_work(out, fingerprint)
    atomic.require_writable(out, is_folder=True)
    with atomic.locked(out):
        work = out / WORK
        _prepare(recipe, work)
        stored.write(work / PLAN, {"fingerprint": fingerprint})
        stages = _stages(recipe, tasks_of(files, recipe.clean.part, recipe.read), work)
        for number, stage in enumerate(stages, 1):
            name = f"{stage.name} (stage {number} of {len(stages)})"
            with _watched(begin(name), stage):
                _run(recipe.clean.executor, stage, work / "read")
        report = _report(sources, recipe, counts, work)
        _publish(out, work, recipe, {**report, "fingerprint": fingerprint})
        (out / ".lock").unlink(missing_ok=True)
    return report, False


def _run(executor: Executor, stage: CleaningStage, notes: Path) -> None:
    """Run a stage; an error in reading is that of the first task that noted one."""
    from foreword.cleaning.blocks import ERROR

    for note in notes.glob(f"*{ERROR}"):
        note.unlink()
    try:
        executor.run(stage.blocks, stage.tasks, stage.folder)
    except TasksFailedError as error:
        for note in sorted(notes.glob(f"*{ERROR}")):
            raise UserError(note.read_text("utf-8")) from error
        raise


def tasks_of(
    files: Sequence[Path], most_bytes: int, read: ReadSettings | None = None
) -> list[list[Any]]:
    """Return the parts of files that each task reads.

    The tasks depend on the files alone, so the result does not depend on the number of processes.

    Args:
        files: sorted.
        most_bytes: bytes of the files of a task, as stored.
        read: how files become documents.
    """
    from foreword.cleaning.blocks import FilePart

    tasks: list[list[Any]] = []
    filled = most_bytes  # bytes of the last task, to which small files are added
    for file in files:
        size = file.stat().st_size
        parts = min(MOST_PARTS, -(-size // most_bytes))
        if parts > 1 and reader_of(file, read or ReadSettings()).is_divisible:
            tasks += [[FilePart(file, number, parts)] for number in range(parts)]
            filled = most_bytes
        elif tasks and filled + size <= most_bytes:
            tasks[-1].append(FilePart(file))
            filled += size
        else:
            tasks.append([FilePart(file)])
            filled = size
    return tasks


def _fingerprint(files: Sequence[Path], recipe: CleaningRecipe) -> str:
    """Return a hash that is equal for equal files and steps, wherever they run."""
    table = config.to_table(recipe)
    del table["clean"]["executor"], table["description"]
    return digest([VERSION, [[str(file), *file_state(file)] for file in files], table])


def _finished(out: Path, fingerprint: str) -> dict[str, Any] | None:
    """Return the report of a result that is there already; None if there is none."""
    if not (out / REPORT).is_file():
        return None
    report = stored.read(out / REPORT)
    if report.get("fingerprint") != fingerprint:
        raise UserError(
            f"{out}: holds text that was cleaned from other sources or by other steps; choose "
            "another --out, or delete it"
        )
    if (out / manifest.FILE).is_file():
        verify_cleaned(out)
    shutil.rmtree(out / WORK, ignore_errors=True)  # a kill may have left it
    return report


def _require_same_work(out: Path, fingerprint: str) -> None:
    """Check that what is in `out` is unfinished work of the same plan, if anything."""
    plan = out / WORK / PLAN
    if plan.is_file() and stored.read(plan).get("fingerprint") != fingerprint:
        raise UserError(
            f"{out}: holds unfinished cleaning of other sources or steps; choose another --out, or "
            "delete it"
        )
    if out.is_dir() and not (out / WORK).exists() and any(out.iterdir()):
        raise UserError(f"{out}: is not empty; {atomic.OTHER_OUT}")


def _prepare(recipe: CleaningRecipe, work: Path) -> None:
    """Do what the steps do once, unless it was done before."""
    for number, step in enumerate(recipe.clean.steps):
        try:
            step.prepare(_files_of(work, number))
        except UserError as error:
            raise UserError(f"clean.steps[{number}].{error}") from error


def _files_of(work: Path, number: int) -> Path:
    return work / f"step-{number:02}"


def _statistics_of(work: Path, number: int) -> Path:
    return _files_of(work, number) / "accounts"


def _stages(recipe: CleaningRecipe, tasks: list[list[Any]], work: Path) -> list[CleaningStage]:
    """Return the stages of a recipe, in order."""
    from foreword.cleaning.blocks import Apply, CountSigns, ReadSaved, ReadSources, Remove, Save

    stages: list[CleaningStage] = []
    most = recipe.clean.samples
    blocks: list[Any] = [ReadSources(tasks, recipe.read, work / "read")]
    names: list[str] = ["reading"]

    def end(texts: Path, *more: Any) -> None:
        folder = work / f"stage-{len(stages):02}"
        pipeline = [*blocks, Save(texts), *more]
        stages.append(CleaningStage(", ".join(names), folder / MARKS, pipeline, len(tasks)))

    for number, step in enumerate(recipe.clean.steps):
        folder, out = _files_of(work, number), _statistics_of(work, number)
        name = kinds.name_of(step).replace("_", " ")
        if isinstance(step, DocumentStep):
            blocks.append(Apply(step, folder, out, most))
            names.append(name)
        elif isinstance(step, CorpusStep):
            texts = folder / TEXTS
            end(texts, step.signer(folder))
            for search, count in step.searches(folder, ReadSaved(texts), len(tasks)):
                marks = work / f"stage-{len(stages):02}" / MARKS
                stages.append(CleaningStage(f"searching {name}", marks, [search], count))
            blocks = [ReadSaved(texts), Remove(step, folder, out, most)]
            names = [f"removing {name}"]
    blocks.append(CountSigns(work / SIGNS))
    end(work / TEXTS)
    return stages


def _report(
    sources: Sequence[str | Path], recipe: CleaningRecipe, counts: ReadCounts, work: Path
) -> dict[str, Any]:
    """Return the statistics of all steps."""
    from foreword.cleaning.statistics import total

    def parts(folder: Path) -> Iterator[dict[str, Any]]:
        for file in sorted(folder.glob("*.json")):
            content = stored.read(file)
            del content[stored.CHECKSUM]
            yield content

    read = sum_counts([asdict(counts), *parts(work / "read")])
    if not read["documents"]:
        raise UserError(f"{', '.join(map(str, sources))}: contains no text")
    steps = [
        {
            "kind": kinds.name_of(step),
            "settings": _settings_of(step),
            **total(parts(_statistics_of(work, number)), recipe.clean.samples),
            **step.facts(_files_of(work, number)),
        }
        for number, step in enumerate(recipe.clean.steps)
    ]
    return {
        "foreword_clean": VERSION,
        "sources": list(map(str, sources)),
        "description": recipe.description,
        "read": {**read, **steps[0]["read"]},
        "kept": steps[-1]["kept"],
        "signs": sum_counts(parts(work / SIGNS)),
        "steps": steps,
    }


def _settings_of(step: Step) -> Mapping[str, Any]:
    table = config.to_table(step)
    return {name: value for name, value in table.items() if value not in ("", [])}


def _publish(out: Path, work: Path, recipe: CleaningRecipe, report: Mapping[str, Any]) -> None:
    """Move the result to its place, the report last."""
    texts = work / TEXTS
    texts.mkdir(exist_ok=True)
    if recipe.clean.format == "parquet":
        from foreword.cleaning.parquet import to_parquet

        to_parquet(texts)
    if not (out / TEXTS).exists():
        texts.replace(out / TEXTS)
    table = config.to_table(recipe)
    table["clean"]["executor"].pop(CODE, None)
    atomic.write_text(out / RECIPE, config.dumps(table))
    if names := [file.relative_to(out).as_posix() for file in sorted((out / TEXTS).iterdir())]:
        manifest.write(out, *CLEANED, names)
    stored.write(out / REPORT, report)
    shutil.rmtree(work)


@contextmanager
def _watched(show: Callable[..., None], stage: CleaningStage) -> Iterator[None]:
    """Show the tasks that are completed while the block runs."""
    ended = Event()
    marks = stage.folder / "completions"

    def look() -> None:
        while True:
            is_last = ended.wait(POLL)
            done = sum(1 for _ in marks.iterdir()) if marks.is_dir() else 0
            show(done, stage.tasks)
            if is_last:
                return

    thread = Thread(target=look, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
