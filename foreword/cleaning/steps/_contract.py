"""The contract of cleaning steps, the kinds in `cleaning/steps/`.

A step of documents looks at one document at a time; a step of the corpus compares documents, so it
first signs all of them, then searches the signatures, then removes. Both are made of datatrove's
blocks, which are imported when a step is used.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, ClassVar, Protocol, Self

from annotated_types import Interval

from foreword.settings.ranges import Ranged, hints_of, range_of

Verdict = bool | tuple[bool, str]


class DocumentFilter(Protocol):
    """One of datatrove's filters, or an object with its method."""

    def filter(self, document: Any) -> Verdict:
        """Return whether to keep a document, or False and why not; its text may be changed."""


class Step(Ranged, ABC):
    """A step of cleaning; its fields are its settings.

    A threshold's name begins with `min_` or `max_`.
    """

    def prepare(self, folder: Path) -> None:
        """Do what is done once, before any document is read.

        Args:
            folder: the folder for files that `opened` reads.

        Raises:
            UserError: a file or a package that the step needs is missing.
        """

    def facts(self, folder: Path) -> Mapping[str, Any]:
        """Return what the report says of the step besides its statistics, once it is done.

        Args:
            folder: the folder of `prepare`.
        """
        return {}


class DocumentStep(Step):
    """A step that judges each document by itself.

    Attributes:
        shows_before: whether samples of changed texts show the text before.
    """

    shows_before: ClassVar[bool] = True

    @property
    def judged(self) -> Sequence[str]:
        """The languages of the documents that it judges; none for all of them."""
        return getattr(self, "languages", ())

    @abstractmethod
    def opened(self, folder: Path) -> DocumentFilter:
        """Return the filter, in the process that uses it.

        Args:
            folder: the folder of `prepare`.
        """

    def shifted(self, share: float) -> Self | None:
        """Return the step with all thresholds stricter by a share of themselves.

        Args:
            share: above 0 for stricter, below 0 for laxer.

        Returns:
            The step; None if it has no thresholds.
        """
        hints = hints_of(type(self))
        changed: dict[str, Any] = {}
        for f in fields(self):  # type: ignore[arg-type]
            end = f.name.partition("_")[0]
            if end in ("min", "max"):
                factor = 1 + share if end == "min" else 1 - share
                changed[f.name] = _scaled(getattr(self, f.name), factor, hints[f.name])
        return replace(self, **changed) if changed else None  # type: ignore[type-var]


class CorpusStep(Step):
    """A step that compares each document with all others."""

    @abstractmethod
    def signer(self, folder: Path) -> Any:
        """Return datatrove's block that reads all documents of a task and stores signatures."""

    @abstractmethod
    def searches(self, folder: Path, read: Any, tasks: int) -> list[tuple[Any, int]]:
        """Return the blocks that search the signatures, in order, each with its number of tasks.

        Args:
            folder: the folder of the signatures.
            read: the block that reads the documents of a task again.
            tasks: number of tasks that read documents.
        """

    @abstractmethod
    def remover(self, folder: Path, dropped: Any) -> Any:
        """Return the block that removes what was found; it hands it to the writer `dropped`."""

    @abstractmethod
    def group(self, folder: Path, rank: int, number: int, document: Any) -> str:
        """Return a key that a document has in common with its duplicates, "" if it has none.

        The groups with the smallest keys are the samples.

        Args:
            folder: the folder of the signatures.
            rank: the task.
            number: the document's, in the task, from 0.
            document: datatrove's.
        """


def _scaled(value: Any, factor: float, hint: Any) -> Any:
    """Return a threshold times a factor, within its range; whole numbers stay whole."""
    if isinstance(value, tuple):
        return tuple(_scaled(item, factor, hint.__args__[0]) for item in value)
    number, interval = range_of(hint) or (float, Interval())
    scaled = value * factor
    if interval.le is not None:
        scaled = min(scaled, interval.le)
    return round(scaled) if number is int else scaled
