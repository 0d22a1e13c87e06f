"""Which cases of a large product stand for all of them in the first tier of tests.

A parametrised test function marked `@pytest.mark.product` keeps in `make test` the fewest cases
that have each value of each parameter; with `pairs=True`, each pair of values of two parameters;
with `few=n`, or where there is one parameter, n of them, evenly spread; with `only=(...)`, the
cases of these ids. A value that is a dataclass, such as `foreword.testing.cases.Case`, counts as
its fields. The other cases get the mark `full`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import astuple, is_dataclass
from itertools import combinations

import pytest

FEW = 3


def covering(cases: Sequence[tuple[str, ...]], strength: int = 1) -> list[int]:
    """Return numbers of cases that have together every combination of `strength` values.

    Greedy: the case with most combinations that none had before, the first of several.
    """
    missing = [set(combinations(enumerate(case), strength)) for case in cases]
    chosen = []
    while any(missing):
        best = max(range(len(cases)), key=lambda n: len(missing[n]))
        chosen.append(best)
        found = set(missing[best])
        missing = [left - found for left in missing]
    return sorted(chosen)


def spread(count: int, few: int) -> list[int]:
    """Return `few` of `count` numbers, the first and the last among them."""
    few = min(few, count)
    return [round(n * (count - 1) / max(1, few - 1)) for n in range(few)]


def factors(values: Iterable[object]) -> tuple[str, ...]:
    """Return the names of a case's values; a dataclass instance counts as its fields."""
    return tuple(
        repr(part)
        for value in values
        for part in (
            astuple(value) if is_dataclass(value) and not isinstance(value, type) else (value,)
        )
    )


def mark_the_rest(items: Iterable[pytest.Item]) -> None:
    """Give the mark `full` to the cases of products that the first tier leaves out."""
    products: dict[str, list[pytest.Function]] = {}
    for item in items:
        if isinstance(item, pytest.Function) and item.get_closest_marker("product"):
            products.setdefault(item.nodeid.partition("[")[0], []).append(item)
    for cases in products.values():
        options = next(cases[0].iter_markers("product")).kwargs
        values = [factors(case.callspec.params.values()) for case in cases]
        if "only" in options:
            kept = [n for n, case in enumerate(cases) if case.callspec.id in options["only"]]
        elif "few" in options or max(map(len, values)) == 1:
            kept = spread(len(cases), options.get("few", FEW))
        else:
            kept = covering(values, 2 if options.get("pairs") else 1)
        for n in set(range(len(cases))) - set(kept):
            cases[n].add_marker("full")
