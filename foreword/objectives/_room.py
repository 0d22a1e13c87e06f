"""Objectives made of others: whether rows have room for each, and how long their texts become."""

from __future__ import annotations

from collections.abc import Sequence

from foreword.objectives._contract import Objective
from foreword.types import MaxLengths


def require_room(name: str, components: Sequence[Objective], length: int) -> None:
    """Asks each part.

    Raises:
        ValueError: a part has no room in rows of `length` tokens; it is named `name[n]`.
    """
    for n, part in enumerate(components):
        try:
            part.require_room(length)
        except ValueError as error:
            raise ValueError(f"{name}[{n}].{error}") from error


def longest(components: Sequence[Objective], length: int, text: int) -> MaxLengths:
    """Return the greatest of each length over `components`; see `Objective.max_lengths`."""
    found = [part.max_lengths(length, text) for part in components]
    return MaxLengths(
        source=max(each.source for each in found),
        target=max(each.target for each in found),
        joined=max(each.joined for each in found),
    )
