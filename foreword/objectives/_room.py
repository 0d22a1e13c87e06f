"""Whether rows of a length have room for what the parts of an objective want to do in them."""

from __future__ import annotations

from collections.abc import Sequence

from foreword.objectives._contract import Objective


def require_room(name: str, parts: Sequence[Objective], length: int) -> None:
    """Asks each part.

    Raises:
        ValueError: a part has no room in rows of `length` tokens; it is named `name[n]`.
    """
    for n, part in enumerate(parts):
        try:
            part.require_room(length)
        except ValueError as error:
            raise ValueError(f"{name}[{n}].{error}") from error
