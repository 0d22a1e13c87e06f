from __future__ import annotations

import numpy as np
import pytest

from foreword.data.rng import RowRng, permute


@pytest.mark.parametrize("n", [1, 2, 3, 5, 16, 17, 1000, 4097])
def test_permute_is_a_permutation(n: int) -> None:
    for key in (0, 1, 2**64 - 1):
        assert sorted(permute(np.arange(n), n, key).tolist()) == list(range(n))


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


def test_random_numbers_depend_on_the_row_alone() -> None:
    many, one = RowRng(3, np.arange(10)), RowRng(3, np.array([7]))
    for _ in range(3):
        assert (many.uniform(5)[7] == one.uniform(5)[0]).all()
    draws = RowRng(3, np.arange(2000)).uniform(8)
    assert abs(draws.mean() - 0.5) < 0.01
    assert len(np.unique(draws)) == draws.size


def test_selected_rows_continue_their_random_numbers() -> None:
    many = RowRng(3, np.arange(10))
    many.uniform(4)
    some = many.select(np.array([7, 2]))
    assert (some.uniform(5) == many.uniform(5)[[7, 2]]).all()
