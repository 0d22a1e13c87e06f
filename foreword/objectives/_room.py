"""Whether rows of a length have room for what the parts of an objective want to do in them."""

from __future__ import annotations

from collections.abc import Sequence


def require_room(name: str, parts: Sequence[object], length: int) -> None:
    """Asks each part that has a `require_room`.

    Raises:
        ValueError: a part has no room in rows of `length` tokens; it is named `name[n]`.
    """
    for n, part in enumerate(parts):
        require = getattr(part, "require_room", None)
        if require is None:
            continue
        try:
            require(length)
        except ValueError as error:
            raise ValueError(f"{name}[{n}].{error}") from error
