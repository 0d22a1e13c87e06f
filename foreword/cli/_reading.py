"""What every verb that reads text is told of it: where it stands, and what a document is."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Annotated, Any

import typer

from foreword.cli._options import Options
from foreword.errors import UserError

if TYPE_CHECKING:
    from foreword.data.text_files import ReadSettings
    from foreword.evaluate.prompting import PromptedModel

Errors = Annotated[
    str | None,
    typer.Option(help="Bytes that are not UTF-8: strict stops, replace counts."),
]


@dataclass(frozen=True)
class Reading(Options):
    """How text is read, in the place of what a recipe says of it."""

    field: Annotated[
        str | None, typer.Option(help="Where JSON and Parquet keep the text: 'text', 'body', ...")
    ] = None
    target: Annotated[
        str | None, typer.Option(help="Of parallel text: where the other side of each pair stands.")
    ] = None
    documents: Annotated[
        str | None, typer.Option(help="A document in plain text: file, paragraph or line.")
    ] = None
    errors: Errors = None

    @property
    def said(self) -> dict[str, Any]:
        """What was said, as a recipe has it."""
        said = {name: value for name, value in asdict(self).items() if value is not None}
        if self.documents not in (None, "line"):
            said["blank_lines"] = False  # there are none to count
        return said

    def refuse(self, why: str) -> None:
        """Makes sure that nothing was said where no text is read.

        Raises:
            UserError: something was.
        """
        if self.said:
            raise UserError(f"--{next(iter(self.said))}: {why}")

    def on(self, settings: ReadSettings) -> ReadSettings:
        """The settings with what was said in the place of theirs.

        Raises:
            UserError: it is no choice.
        """
        try:
            return replace(settings, **self.said)
        except ValueError as error:
            raise UserError(f"--{error}") from None

    def of(self, prompted: PromptedModel) -> PromptedModel:
        """A model that reads text so.

        Raises:
            UserError: it is no choice.
        """
        recipe = prompted.recipe
        return replace(prompted, recipe=replace(recipe, read=self.on(recipe.read)))
