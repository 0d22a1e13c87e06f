"""Ranges of numeric settings: stated once, with the field, and checked at every construction.

    @dataclass(frozen=True)
    class Masked(Ranged):
        rate: PositiveShare = 0.15

    Masked(rate=7)        # rate: must be a number above 0 and at most 1, got 7
    range_of(Share)       # (float, Interval(ge=0, le=1)), to show settings

A number may also change while a model trains, `rate = { from = 0.3, to = 0.05 }` in a recipe
(`Curve`); both of its ends are in the range.

Every range has two ends, so that no setting is infinite or nan, and no whole number that exceeds 64
bits reaches torch or numpy. The ends exclude what makes no sense, not what is unwise or does not
fit into memory.
"""

from __future__ import annotations

import builtins
import dataclasses
import functools
import inspect
import numbers
import reprlib
import sys
import types
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints

from annotated_types import Interval

from foreword.errors import RangeError, item_name

LARGEST = 2**31  # the most of anything that is counted one by one
MOST_TRAININGS = 10_000  # of one network, from seeds or with values of settings, in one command

# Whole numbers.
Count = Annotated[int, Interval(ge=1, le=LARGEST)]
CountOrZero = Annotated[int, Interval(ge=0, le=LARGEST)]
Folds = Annotated[int, Interval(ge=2, le=1000)]
Trainings = Annotated[int, Interval(ge=1, le=MOST_TRAININGS)]
Total = Annotated[int, Interval(ge=1, le=2**53)]  # of a whole text: its tokens, its bytes
Seed = Annotated[int, Interval(ge=0, le=2**32 - 1)]
PrefixLength = Annotated[int, Interval(ge=1, le=4096)]  # keys that an attention learns
PrefixLengthOrZero = Annotated[int, Interval(ge=0, le=4096)]
Workers = Annotated[int, Interval(ge=0, le=1024)]  # processes or threads; 0 chooses

# Shares of a whole.
Share = Annotated[float, Interval(ge=0, le=1)]
PositiveShare = Annotated[float, Interval(gt=0, le=1)]
ShareBelowOne = Annotated[float, Interval(ge=0, lt=1)]
OpenShare = Annotated[float, Interval(gt=0, lt=1)]

# Other numbers.
Positive = Annotated[float, Interval(gt=0, le=1e6)]
Signed = Annotated[float, Interval(ge=-1e6, le=1e6)]
NonNegative = Annotated[float, Interval(ge=0, le=1e6)]
Epsilon = Annotated[float, Interval(ge=1e-20, le=1)]  # its square root is not denormal in float32
LearningRate = Annotated[float, Interval(gt=0, le=10)]
LearningRateOrZero = Annotated[float, Interval(ge=0, le=10)]  # 0 for a rule
Decay = Annotated[float, Interval(ge=0, le=10)]  # of weights, for a learning rate of 1
Wavelength = Annotated[float, Interval(gt=1, le=1e12)]  # the base of a geometric series of them

Temperature = Annotated[float, Interval(ge=0, le=1000)]
LengthPenalty = Annotated[float, Interval(ge=0, le=10)]

# Budgets; those of the command line are floats, since people write 1e9.
Hours = Annotated[float, Interval(gt=0, le=1e6)]
EpochsOfText = Annotated[float, Interval(gt=0, le=1e6)]
TokensOfText = Annotated[float, Interval(gt=0, le=2**53)]
Flops = Annotated[float, Interval(gt=0, le=1e30)]


class Curve(float):
    """A number that changes along a straight line while a model trains; as a float, its last value.

    Where nothing looks at the training, a setting is so what it ends as.

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


class Ranged:
    """A frozen dataclass whose numbers are in the ranges that their fields state.

    A subclass with a `__post_init__` of its own calls this one first.
    """

    def __post_init__(self) -> None:
        cls: type = type(self)
        for name, hint in hints_of(cls).items():
            check(hint, getattr(self, name), name)


class _Names(dict[str, Any]):
    """The names of a module; those imported for type checkers alone are `Any`."""

    def __missing__(self, name: str) -> Any:
        return getattr(builtins, name, Any)


@functools.cache
def hints_of(cls: Any) -> dict[str, Any]:
    """Return the type of each field of a dataclass, with its range.

    A class that is imported for type checkers alone is `Any`.
    """
    hints: dict[str, Any] = {f.name: Any for f in dataclasses.fields(cls)}
    for base in reversed(cls.__mro__):
        own = inspect.get_annotations(base)
        names = vars(sys.modules.get(base.__module__, builtins))
        holder: Any = types.SimpleNamespace(__annotations__={n: own[n] for n in hints if n in own})
        known = _KnownNames(vars(builtins) | names)
        hints |= get_type_hints(holder, names, known, include_extras=True)
    return hints


class _KnownNames(dict[str, Any]):
    def __missing__(self, name: str) -> Any:
        return Any


def check(hint: Any, value: Any, where: str) -> None:
    """Check that a value is in the range of its type, if the type has one.

    Args:
        hint: the type: `Share`, `Count | None`, `tuple[Count, ...]`.
        value: a value of that type, except that its numbers may be out of range.
        where: the name of the setting.

    Raises:
        RangeError: it is not in the range; the message names the setting, the range and the value.
    """
    origin, args = get_origin(hint), get_args(hint)
    if (number_range := range_of(hint)) is not None:
        _check_number(*number_range, value, where)
    elif origin is Annotated:
        check(args[0], value, where)
    elif origin in (Union, types.UnionType):
        has_others = any(range_of(arg) is None and arg is not types.NoneType for arg in args)
        for arg in args:
            is_meant = not has_others or isinstance(value, numbers.Real)
            if value is not None and (is_meant or range_of(arg) is None):
                check(arg, value, where)
    elif origin in (tuple, list, Sequence) and isinstance(value, tuple | list):
        if args[-1] is Ellipsis or origin is not tuple:
            args = args[:1] * len(value)
        if len(args) != len(value):
            raise RangeError(f"{where}: must be {len(args)} values, got {reprlib.repr(value)}")
        for n, (arg, item) in enumerate(zip(args, value, strict=True)):
            check(arg, item, item_name(where, n))


def range_of(hint: Any) -> tuple[type, Interval] | None:
    """Return `int` or `float`, and the range, of a type such as `Share`; None if it has none."""
    if get_origin(hint) is Annotated:
        for note in hint.__metadata__:
            if isinstance(note, Interval):
                return hint.__origin__, note
    return None


def describe(number: type, interval: Interval) -> str:
    """Return a range in words: `a whole number from 1 to 8`."""
    noun = "a whole number" if number is int else "a number"
    if interval.ge is not None and interval.le is not None:
        return f"{noun} from {_shown(interval.ge)} to {_shown(interval.le)}"
    above = (
        f"above {_shown(interval.gt)}"
        if interval.ge is None
        else f"of at least {_shown(interval.ge)}"
    )
    most, end = ("below", interval.lt) if interval.le is None else ("at most", interval.le)
    return f"{noun} {above} and {most} {_shown(end)}"


def _shown(end: Any) -> str:
    return f"{end:,}" if isinstance(end, int) else f"{end:,.0f}" if 1 <= end < 1e9 else f"{end:g}"


def _check_number(number: type, interval: Interval, value: Any, where: str) -> None:
    kind = numbers.Integral if number is int else numbers.Real
    is_number = isinstance(value, kind) and not isinstance(value, bool)
    if not is_number or not _contains(interval, value):
        raise RangeError(
            f"{where}: must be {describe(number, interval)}, got {reprlib.repr(value)}"
        )


def _contains(interval: Interval, value: Any) -> bool:
    """Return whether a number is in a range, a curve with both ends; nan is in none."""
    if isinstance(value, Curve):
        return all(_contains(interval, end) for end in value.ends)
    above = value > interval.gt if interval.ge is None else value >= interval.ge
    below = value < interval.lt if interval.le is None else value <= interval.le
    return bool(above and below)


def is_curve(value: object) -> bool:
    """Return whether a value is a curve as recipes write it."""
    return isinstance(value, Mapping) and value.keys() == {"from", "to"}


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


def at_share(settings: Any, share: float, **others: Any) -> Any:
    """Return settings with each curve at its value after a share of its way.

    Args:
        settings: a dataclass, or the value of one of its fields.
        share: 0 to 1.
        others: fields of the dataclass to replace at once, so that it is checked as a whole.
    """
    if isinstance(settings, Curve):
        return settings.at(share)
    if isinstance(settings, tuple):
        return tuple(at_share(item, share) for item in settings)
    if not others and not has_curves(settings):
        return settings
    for f in dataclasses.fields(settings):
        value = getattr(settings, f.name)
        if f.name not in others and has_curves(value):
            try:
                others[f.name] = at_share(value, share)
            except ValueError as error:
                raise type(error)(f"{f.name}.{error}") from error
    return dataclasses.replace(settings, **others)
