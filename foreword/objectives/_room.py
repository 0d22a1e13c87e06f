"""Row lengths of objectives made of others: whether each fits, and the greatest lengths."""

from __future__ import annotations

from collections.abc import Sequence

from foreword.objectives._contract import Objective
from foreword.types import MaxLengths


def require_room(name: str, components: Sequence[Objective], length: int) -> None:
    """Check that each component fits rows of `length` tokens.

    Raises:
        ValueError: one does not; the message calls it `name[n]`.
    """
    for n, component in enumerate(components):
        try:
            component.require_room(length)
        except ValueError as error:
            raise ValueError(f"{name}[{n}].{error}") from error


def longest(components: Sequence[Objective], length: int, text: int) -> MaxLengths:
    """Return the greatest of each length over `components`; see `Objective.max_lengths`."""
    lengths = [component.max_lengths(length, text) for component in components]
    return MaxLengths(
        source=max(each.source for each in lengths),
        target=max(each.target for each in lengths),
        joined=max(each.joined for each in lengths),
    )
