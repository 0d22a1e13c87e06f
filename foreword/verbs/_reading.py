"""The arguments of verbs that read text."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from foreword.errors import UserError

if TYPE_CHECKING:
    from foreword.data.text_files import ReadSettings


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
        from foreword.api._arguments import given_reading

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
        from foreword.api._arguments import read_as

        return read_as(settings, self.reading)


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
