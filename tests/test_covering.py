"""Of a product's cases, the first tier keeps few that have all values."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations, product

import pytest

from tests.covering import covering, factors, spread

CASES = [c for c in product("abc", "defg", "hi") if c[:2] != ("a", "d")]


@dataclass(frozen=True)
class Pair:
    left: str
    right: int


@pytest.mark.parametrize(("strength", "most"), [(1, 4), (2, 12)])
def test_every_combination_of_values_is_kept_in_few_cases(strength: int, most: int) -> None:
    kept = covering(CASES, strength)
    every, found = (
        {c for case in cases for c in combinations(enumerate(case), strength)}
        for cases in (CASES, [CASES[n] for n in kept])
    )
    assert found == every and len(kept) <= most
    assert kept == covering(CASES, strength)


def test_one_parameter_is_spread_evenly() -> None:
    assert spread(9, 3) == [0, 4, 8]
    assert spread(2, 3) == [0, 1]
    assert spread(5, 1) == [0]


def test_a_dataclass_counts_as_its_fields() -> None:
    assert factors([Pair("x", 1), "y", Pair]) == ("'x'", "1", "'y'", repr(Pair))
