"""Random numbers and permutations are as chance gives: at fixed seeds, within four deviations."""

from __future__ import annotations

import numpy as np
import pytest

from foreword.data.rng import RowRng, permute
from foreword.types import Array


def assert_even(counts: Array) -> None:
    """By chi-square, whose deviation is the root of twice its freedom."""
    expected, freedom = counts.sum() / counts.size, counts.size - 1
    chi_square = ((counts - expected) ** 2 / expected).sum()
    assert abs(chi_square - freedom) < 4 * np.sqrt(2 * freedom)


@pytest.mark.parametrize("n", [0, 1, 2, 4, 15, 255, 256, 257, 1023, 1025])
@pytest.mark.parametrize("key", [0, -1, 2**63, 2**64 + 5])
def test_permute_is_a_permutation_around_powers_of_two(n: int, key: int) -> None:
    moved = permute(np.arange(n), n, key)
    assert moved.dtype == np.int64
    assert np.array_equal(np.sort(moved), np.arange(n))


def test_permute_takes_no_memory_per_row() -> None:
    moved = permute(np.array([[0, 10**15], [10**17, 10**18 - 1]]), 10**18, 3)
    assert moved.shape == (2, 2)
    assert len(np.unique(moved)) == 4
    assert 0 <= moved.min() <= moved.max() < 10**18


@pytest.mark.full
def test_permute_sends_each_index_everywhere() -> None:
    n = 12
    moved = np.stack([permute(np.arange(n), n, key) for key in range(3000)])
    for position in range(n):
        assert_even(np.bincount(moved[:, position], minlength=n))
    # Neighbours do not stay neighbours.
    assert_even(np.bincount((moved[:, 1] - moved[:, 0]) % n, minlength=n)[1:])


def test_all_kinds_of_random_numbers_depend_on_the_row_alone() -> None:
    numbers = np.array([5, 0, 10**12, 7])

    def draw(rng: RowRng) -> list[Array]:
        return [rng.uniform(6), rng.integers(9, 4), rng.bits(2)]

    together = draw(RowRng(3, numbers))
    for row, number in enumerate(numbers):
        alone = draw(RowRng(3, np.array([number])))
        for expected, actual in zip(together, alone, strict=True):
            assert np.array_equal(expected[row], actual[0])


def test_wider_random_numbers_begin_with_narrower_ones() -> None:
    wide, narrow = (RowRng(1, np.arange(4)).uniform(width) for width in (9, 5))
    assert np.array_equal(wide[:, :5], narrow)


def test_seeds_rows_and_calls_give_different_numbers() -> None:
    rng, other = RowRng(1, np.arange(50)), RowRng(2, np.arange(50))
    words = np.concatenate([rng.bits(20), rng.bits(20), other.bits(20)])
    assert len(np.unique(words)) == words.size


def test_uniform_is_even_and_neighbours_independent() -> None:
    draws = RowRng(11, np.arange(500)).uniform(200)
    assert draws.min() >= 0
    assert draws.max() < 1
    assert_even(np.histogram(draws, bins=64, range=(0, 1))[0])
    for one, other in ((draws[:, :-1], draws[:, 1:]), (draws[:-1], draws[1:])):
        assert_even(np.histogram2d(one.ravel(), other.ravel(), bins=8, range=[[0, 1]] * 2)[0])


def test_integers_are_even() -> None:
    draws = RowRng(11, np.arange(500)).integers(37, 200)
    assert draws.dtype == np.int64
    assert_even(np.bincount(draws.ravel(), minlength=37))


def test_permute_depends_on_the_key_and_mixes() -> None:
    orders = [permute(np.arange(1000), 1000, key) for key in range(20)]
    assert len({tuple(order) for order in orders}) == 20
    for order in orders:
        assert abs(np.corrcoef(order, np.arange(1000))[0, 1]) < 0.15
        assert (np.diff(order) == 1).sum() < 10


def test_permute_does_not_depend_on_the_grouping() -> None:
    whole = permute(np.arange(777), 777, 5)
    parts = [permute(np.array([i]), 777, 5)[0] for i in range(0, 777, 50)]
    assert whole[::50].tolist() == parts


def test_selected_rows_continue_their_random_numbers() -> None:
    many = RowRng(3, np.arange(10))
    many.uniform(4)
    some = many.select(np.array([7, 2]))
    assert (some.uniform(5) == many.uniform(5)[[7, 2]]).all()
