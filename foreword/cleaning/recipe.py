"""A recipe of cleaning: how to read, the steps in order, where the tasks run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from foreword.cleaning.executors._contract import CODE, Executor
from foreword.cleaning.steps._contract import Step
from foreword.data.text_files import ReadSettings
from foreword.errors import UserError
from foreword.settings import config
from foreword.settings.kinds import part
from foreword.settings.ranges import CountOrZero, Ranged, Total

DEFAULT = "gopher"


@dataclass(frozen=True)
class CleanSettings(Ranged):
    """The settings of cleaning.

    Attributes:
        steps: the steps, in order.
        executor: where the tasks run.
        format: the format of the cleaned text: JSON lines compressed by zstd, or Parquet.
        samples: texts that the page shows of each step, side and reason.
        part: bytes, as stored, of the files that one task reads; larger files are shared by tasks.
    """

    steps: tuple[Step, ...] = part("cleaning/steps")
    executor: Executor = part("cleaning/executors", "local")
    format: Literal["jsonl", "parquet"] = "jsonl"
    samples: CountOrZero = 4
    part: Total = 8_000_000


@dataclass(frozen=True)
class CleaningRecipe:
    """A recipe of `foreword clean`.

    Attributes:
        clean: the steps and the form of the result.
        read: how files become documents.
        description: one line.
    """

    clean: CleanSettings
    read: ReadSettings = field(default_factory=ReadSettings)
    description: str = ""

    def __post_init__(self) -> None:
        if not self.clean.steps:
            raise ValueError("clean.steps: none given; name at least one step")
        if self.read.target:
            raise ValueError("read.target: parallel text cannot be cleaned; clean each side apart")


def load_cleaning(name: str, assignments: Sequence[str] = ()) -> CleaningRecipe:
    """Return a recipe given by name or by file, with settings applied.

    Raises:
        UserError: there is no such recipe, or it has a mistake.
    """
    file = config.CLEANING.find(name)
    table = config.read(file, config.CLEANING.find)
    clean = table.get("clean")
    executor = clean.get("executor") if isinstance(clean, Mapping) else None
    if isinstance(executor, Mapping) and CODE in executor:
        setting = f"clean.executor.{CODE}"
        raise UserError(
            f"{file}: {setting} is shell code, which no recipe may bring; if you trust it, "
            f"remove it there and give it by --set {setting}='COMMAND'"
        )
    for assignment in assignments:
        if assignment.partition("=")[0].strip() == "clean.steps":
            raise UserError(
                f"--set {assignment}: steps are numbered from 0, as in "
                "clean.steps[0].min_words=30; write a recipe for other steps"
            )
    return config.build(CleaningRecipe, config.assign(table, assignments))
