"""What the shipped law files say, laws or losses of single budgets, makes sense."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest

from foreword.planning.dial import Conditions, dial
from foreword.planning.laws import sized_families

KNOWN = [name for name, law in sized_families().items() if law.has_losses]


@pytest.fixture
def without_laws() -> None:
    """Nothing: these are tests of the files as they are."""


@pytest.mark.parametrize("family", KNOWN)
def test_more_hours_or_text_never_raise_the_expected_loss(family: str) -> None:
    day = Conditions(family, 24.0, 7e11, 1e11)
    by_hours = [dial(replace(day, hours=0.05 * 2.0**n)) for n in range(13)]
    by_text = [dial(replace(day, text_bytes=1e5 * 4.0**n)) for n in range(8)]
    for made in (by_hours, by_text):
        known = [one.expected for one in made if one.expected.value is not None]
        for worse, better in itertools.pairwise(known):
            assert better.value <= worse.value + 1e-3  # type: ignore[operator]
        for expected in known:
            low, high = expected.interval or (0.0, 0.0)
            assert low < expected.value < high  # type: ignore[operator]
    assert sum(one.expected.value is not None for one in by_hours) > 1
    for less, more in itertools.pairwise(by_hours):
        assert more.size.parameters >= less.size.parameters
