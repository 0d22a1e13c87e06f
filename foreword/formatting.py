"""Formatting of numbers for display."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Literal

HEADINGS = {"memory": "context"}  # of columns, where they are not their keys


def quantity(value: float) -> str:
    """Return a quantity: `950`, `12,300`, `3.2 M`, `1.5 B`, `1.0 × 10¹⁵`; a dash for nan."""
    if not math.isfinite(value):
        return "–"
    if value >= 1e15:
        return power(value)
    for size, letter in ((1e12, "T"), (1e9, "B"), (1e6, "M")):
        if abs(value) >= size:
            return f"{value / size:.3g} {letter}"
    return f"{value:,.0f}"


def power(value: float) -> str:
    """Return `1.5e17` as `1.5 × 10¹⁷`; a dash for nan and 0."""
    if not math.isfinite(value) or value <= 0:
        return "–"
    mantissa, exponent = f"{value:.1e}".split("e")
    raised = str(int(exponent)).translate(str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"))
    return f"{mantissa} × 10{raised}"


def duration(seconds: float) -> str:
    """Return a duration: `42 s`, `3 min 20 s`, `2 h 5 min`; a dash for nan."""
    if not math.isfinite(seconds):
        return "–"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"


def rough(seconds: float) -> str:
    """Return an estimated duration, rounded as it deserves: `21 s`, `3 min 20 s`, `12 min`."""
    seconds = max(seconds, 0.0)
    unit = 1 if seconds < 60 else 10 if seconds < 600 else 60
    return duration(round(seconds / unit) * unit).removesuffix(" 0 s").removesuffix(" 0 min")


def byte_size(count: int) -> str:
    """Return a size in decimal units: `950 B`, `1.5 MB`, `103.2 GB`, `1.2 TB`."""
    names = ("B", "kB", "MB", "GB", "TB", "PB", "EB")
    exponent = min(max(len(str(abs(count))) - 1, 0) // 3, len(names) - 1)
    if not exponent:
        return f"{count} B"
    amount = count / 1000**exponent
    return (
        f"{amount:,.1f} {names[exponent]}" if amount < 1000 else f"{amount:.3g} {names[exponent]}"
    )


def figure(value: float, digits: int = 4) -> str:
    """Return a measured number with `digits` significant digits; a dash for nan."""
    if not math.isfinite(value):
        return "–"
    if value == 0 or abs(value) >= 10**digits - 0.5:
        return quantity(value)
    return f"{value:#.{digits}g}".removesuffix(".")


def rounded(value: float) -> str:
    """Return a number with at most three significant digits, or whole: `0.5`, `28.4`, `2,840`."""
    return f"{value:.3g}" if abs(value) < 999.5 else f"{value:,.0f}"


def at_most(text: str, is_bound: bool) -> str:
    """Return a formatted figure, marked if it is an upper bound."""
    return f"at most {text}" if is_bound and text != "–" else text


def probability(value: float) -> str:
    """Return a probability with four decimals, or two significant digits where they would be 0."""
    return f"{value:.1e}" if 0 < value < 5e-5 else f"{value:.4f}"


def unknown_share_note(share: float) -> str:
    """Return the note beside losses of a text of which a share of the tokens is unknown."""
    return f"{100 * share:.3g} % of the tokens are [UNK]: the figures flatter the model"


def cell(value: Any) -> str:
    """Return the text of a value in a table or a list of facts."""
    if value is None:
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return figure(value)
    if isinstance(value, list | tuple):
        return ", ".join(map(cell, value))
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {cell(item)}" for name, item in value.items())
    return str(value)


def key_columns(rows: Sequence[Sequence[str]]) -> int:
    """Return the number of first columns that tell the rows apart; 1 if none do."""
    columns = len(rows[0]) if rows else 0
    prefixes = (n for n in range(1, columns) if len({tuple(row[:n]) for row in rows}) == len(rows))
    return next(prefixes, 1)


def column_groups(widths: Sequence[float], room: float, keys: int) -> list[list[int]]:
    """Return the columns of each part of a table: the keys, and as many others as fit.

    Args:
        widths: the widths of the columns.
        room: the width of a line, in the same unit.
        keys: number of first columns, which each part has.
    """
    first = list(range(min(keys, len(widths))))
    groups = [list(first)]
    for n in range(len(first), len(widths)):
        has_others = len(groups[-1]) > len(first)
        if has_others and sum(widths[m] for m in [*groups[-1], n]) > room:
            groups.append(list(first))
        groups[-1].append(n)
    return groups


def with_intervals(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return a row of a table with its intervals and headings as people read them.

    `low` and `high` are one column, `interval`; `icat_low` and `icat_high` stand in that of `icat`.
    """
    shown: dict[str, Any] = {}
    for name, value in row.items():
        of, _, end = name.rpartition("_")
        low, high = (f"{of}_{side}".removeprefix("_") for side in ("low", "high"))
        if end not in ("low", "high") or not {low, high} <= row.keys() or (of and of not in row):
            shown[HEADINGS.get(name, name)] = value
        elif end == "low":
            ends = interval(value, row[high])
            if not of:
                shown["interval"] = ends
            elif ends is not None:
                shown[of] = f"{cell(row[of])} ({ends})"
    return shown


def with_bounds(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return a row of a table of losses, whose figures say so if they are upper bounds."""
    if not row.get("is_bound"):
        return dict(row)
    figures = ("loss", "perplexity", "bits_per_byte")
    shown = {key: at_most(cell(row[key]), is_bound=True) for key in figures if key in row}
    return {key: shown.get(key, value) for key, value in row.items() if key != "is_bound"}


def interval(low: Any, high: Any, sign: Literal["", "+"] = "") -> str | None:
    """Return the ends of an interval, `0.412 to 0.508`; None if there is none."""
    ends = low, high
    if not all(isinstance(end, int | float) and math.isfinite(end) for end in ends):
        return None
    return " to ".join(f"{end:{sign}.3f}" if abs(end) < 10 else cell(end) for end in ends)
