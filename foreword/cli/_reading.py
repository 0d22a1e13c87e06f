"""The options of every verb that reads text: where the text is, and what a document is."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Annotated, Any

import typer

from foreword.cli._options import Options
from foreword.errors import UserError

if TYPE_CHECKING:
    from foreword.data.text_files import ReadSettings
    from foreword.evaluation.prompting import PromptedModel

Errors = Annotated[
    str | None,
    typer.Option(help="Bytes that are not UTF-8: strict stops, replace replaces and counts."),
]


@dataclass(frozen=True)
class Reading(Options):
    """How to read text; what is given overrides the recipe."""

    field: Annotated[
        str | None, typer.Option(help="Field of JSON or column of Parquet that holds the text.")
    ] = None
    target: Annotated[
        str | None, typer.Option(help="For parallel text: the field of the target side.")
    ] = None
    documents: Annotated[
        str | None,
        typer.Option(help="What is one document in plain text: file, paragraph or line."),
    ] = None
    errors: Errors = None

    @property
    def overrides(self) -> dict[str, Any]:
        """The settings that are not None, as a recipe has them."""
        from foreword.api._arguments import given_reading

        return given_reading(**asdict(self))

    def refuse(self, why: str) -> None:
        """Check that no option was given where no text is read.

        Raises:
            UserError: one was given.
        """
        if self.overrides:
            raise UserError(f"--{next(iter(self.overrides))}: {why}")

    def refuse_target(self, why: str) -> None:
        """Make sure that the text is not parallel.

        Raises:
            UserError: it is.
        """
        if self.target is not None:
            raise UserError(f"--target: {why}")

    def on(self, settings: ReadSettings) -> ReadSettings:
        """Return `settings` with the options given.

        Raises:
            UserError: a value is not a choice.
        """
        from foreword.api._arguments import read_as

        return read_as(settings, self.overrides)

    def of(self, prompted: PromptedModel) -> PromptedModel:
        """Return the model with a recipe that reads text as the options say.

        Raises:
            UserError: a value is not a choice.
        """
        recipe = prompted.recipe
        return replace(prompted, recipe=replace(recipe, read=self.on(recipe.read)))
