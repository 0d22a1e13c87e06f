"""What `--heldout` says: a share of the documents, or text that is given for it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

import typer

from foreword.errors import UserError

if TYPE_CHECKING:
    from foreword.data.write_shards import PrepareSettings

HeldOut = Annotated[
    list[str] | None,
    typer.Option(
        "--heldout",
        metavar="SHARE|TEXT",
        help="What is never trained on: a share of the documents, or files, folders, globs.",
    ),
]


def hold_out(
    settings: PrepareSettings, given: Sequence[str] | None
) -> tuple[PrepareSettings, tuple[str, ...]]:
    """The settings with the share that is given, and the texts that are.

    Raises:
        UserError: both, several shares, or an impossible one.
    """
    words = tuple(given or ())
    shares = [share for word in words if (share := _number(word)) is not None]
    if not shares:
        return settings, words
    if len(words) > 1:
        raise UserError(f"--heldout: one share, or texts, got {' and '.join(words)}")
    try:
        return replace(settings, heldout=shares[0]), ()
    except ValueError as error:
        raise UserError(f"--{error}") from None


def _number(word: str) -> float | None:
    try:
        return float(word)
    except ValueError:
        return None
