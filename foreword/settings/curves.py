"""Numbers that change while a model trains: `rate = { from = 0.3, to = 0.05 }` in a recipe.

A curve is a float: where nothing looks at the training, it is where it ends.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any

ENDS = {"from", "to"}


class Curve(float):
    """A number that changes along a straight line; as a float, its last value.

    Args:
        start: its first value.
        end: its last value.
    """

    start: float

    def __new__(cls, start: float, end: float) -> Curve:  # noqa: D102 - the class says it
        curve = super().__new__(cls, end)
        curve.start = float(start)
        return curve

    def __getnewargs__(self) -> tuple[float, float]:  # type: ignore[override]
        return self.start, float(self)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Curve) and self.ends == other.ends

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __hash__(self) -> int:
        return hash(self.ends)

    def __repr__(self) -> str:
        return f"{{from = {self.start:g}, to = {float(self):g}}}"

    @property
    def ends(self) -> tuple[float, float]:
        """Its first and its last value."""
        return self.start, float(self)

    def at(self, share: float) -> float:
        """Return its value after a share of its way, 0 to 1."""
        return float(self) if share >= 1 else self.start + (float(self) - self.start) * share

    def table(self) -> dict[str, float]:
        """Return it as recipes write it."""
        return {"from": self.start, "to": float(self)}


def is_curve(value: object) -> bool:
    """Return whether a value is a curve as recipes write it."""
    return isinstance(value, Mapping) and value.keys() == ENDS


def curves_in(settings: Any, where: str = "") -> Iterator[str]:
    """Yield the names of the settings that are curves: `objective.rate`."""
    if isinstance(settings, Curve):
        yield where
    elif isinstance(settings, tuple):
        for number, item in enumerate(settings):
            yield from curves_in(item, f"{where}[{number}]")
    elif dataclasses.is_dataclass(settings):
        for f in dataclasses.fields(settings):
            path = f"{where}.{f.name}" if where else f.name
            yield from curves_in(getattr(settings, f.name), path)


def has_curves(settings: Any) -> bool:
    """Return whether a value, or anything in it, is a curve."""
    return next(curves_in(settings), None) is not None


def at(settings: Any, share: float, **others: Any) -> Any:
    """Return settings with each curve at its value after a share of its way.

    Args:
        settings: a dataclass, or the value of one of its fields.
        share: 0 to 1.
        others: fields of the dataclass to replace at once, so that it is checked as a whole.
    """
    if isinstance(settings, Curve):
        return settings.at(share)
    if isinstance(settings, tuple):
        return tuple(at(item, share) for item in settings)
    if not others and not has_curves(settings):
        return settings
    for f in dataclasses.fields(settings):
        value = getattr(settings, f.name)
        if f.name not in others and has_curves(value):
            try:
                others[f.name] = at(value, share)
            except ValueError as error:
                raise type(error)(f"{f.name}.{error}") from error
    return dataclasses.replace(settings, **others)
