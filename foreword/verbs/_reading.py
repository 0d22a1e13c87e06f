"""The arguments of verbs that read text."""

from __future__ import annotations

import numbers
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, Any

from foreword.errors import UserError
from foreword.settings.ranges import ShareBelowOne
from foreword.verbs._contract import Flag, Paths

if TYPE_CHECKING:
    from foreword.data.text_files import ReadSettings
    from foreword.data.write_shards import PrepareSettings


@dataclass(frozen=True, kw_only=True)
class ReadsText:
    """How to read text; what is given overrides the recipe.

    Attributes:
        field: field of JSON or column of Parquet that holds the text.
        target: for parallel text: the field of the target side.
        documents: what is one document in plain text: file, paragraph or line.
        errors: bytes that are not UTF-8: strict stops, replace replaces and counts.
    """

    field: str | None = None
    target: str | None = None
    documents: str | None = None
    errors: str | None = None

    @property
    def reading(self) -> dict[str, Any]:
        """The settings that are not None, as a recipe has them."""
        from foreword.verbs._arguments import given_reading

        return given_reading(
            field=self.field, target=self.target, documents=self.documents, errors=self.errors
        )

    def refuse_reading(self, why: str) -> None:
        """Check that none is given where no text is read.

        Raises:
            UserError: one is given.
        """
        if self.reading:
            raise UserError(f"--{next(iter(self.reading))}: {why}")

    def read_as(self, settings: ReadSettings) -> ReadSettings:
        """Return `settings` with what is given.

        Raises:
            UserError: a value is not a choice.
        """
        from foreword.verbs._arguments import read_as

        return read_as(settings, self.reading)


@dataclass(frozen=True, kw_only=True)
class HoldsOut:
    """The text to hold out.

    Attributes:
        heldout: text never trained on: a share of the documents, or files, folders, globs.
    """

    heldout: Annotated[Paths | ShareBelowOne | None, Flag(metavar="SHARE|TEXT")] = None

    def held_out(self, settings: PrepareSettings) -> tuple[PrepareSettings, tuple[str, ...]]:
        """Return the settings with the share to hold out, and the held-out texts.

        Raises:
            UserError: both are given, or several shares, or an impossible one.
        """
        values = self._values()
        if not any(map(_is_share, values)):
            return settings, values
        if len(values) > 1:
            raise UserError(f"--heldout: expected one share, or texts; got {' and '.join(values)}")
        try:
            return replace(settings, heldout=float(values[0])), ()
        except ValueError as error:
            raise UserError(f"--{error}") from None

    @property
    def holds_out_text(self) -> bool:
        """Whether text is held out, and not a share."""
        return not all(map(_is_share, self._values()))

    def _values(self) -> tuple[str, ...]:
        from foreword.verbs._arguments import paths

        value: Any = self.heldout
        return (str(value),) if isinstance(value, numbers.Real) else paths(value, "--heldout")


def _is_share(value: str) -> bool:
    """Return whether a value of `heldout` is a number, not a path."""
    try:
        float(value)
    except ValueError:
        return False
    return True


@contextmanager
def naming(**options: str) -> Iterator[None]:
    """Name a setting as the command line does in the messages of user errors.

    Args:
        options: the option of each setting of a tokenizer: `vocab="--vocab"`.
    """
    try:
        yield
    except UserError as error:
        text = str(error)
        for name, option in options.items():
            text = text.replace(f"tokenizer.{name}=", f"{option} ")
            text = text.replace(f"tokenizer.{name}", option)
        raise UserError(text) from error
