"""The option `--heldout`: a share of the documents, or text given apart."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

import typer

from foreword.cli._options import PathText
from foreword.errors import UserError

if TYPE_CHECKING:
    from foreword.data.write_shards import PrepareSettings

HeldOut = Annotated[
    list[PathText] | None,
    typer.Option(
        "--heldout",
        metavar="SHARE|TEXT",
        help="Text never trained on: a share of the documents, or files, folders, globs.",
    ),
]


def hold_out(
    settings: PrepareSettings, given: Sequence[str] | None
) -> tuple[PrepareSettings, tuple[str, ...]]:
    """Return the settings with the share given, and the texts given.

    Raises:
        UserError: both were given, or several shares, or an impossible one.
    """
    values = tuple(given or ())
    shares = [share for value in values if (share := _number(value)) is not None]
    if not shares:
        return settings, values
    if len(values) > 1:
        raise UserError(f"--heldout: expected one share, or texts; got {' and '.join(values)}")
    try:
        return replace(settings, heldout=shares[0]), ()
    except ValueError as error:
        raise UserError(f"--{error}") from None


def _number(value: str) -> float | None:
    try:
        return float(value)
    except ValueError:
        return None
