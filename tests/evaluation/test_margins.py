"""Margins between two ways of answering the same examples."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import bootstrap, ttest_rel

from foreword.evaluation.margins import lines, margin, margins

RNG = np.random.default_rng(0)
EASE = RNG.random(400)  # of each example, the same for both
FIRST = (RNG.random((1, 400)) < 0.3 + 0.6 * EASE).astype(float)
SECOND = (RNG.random((1, 400)) < 0.1 + 0.7 * EASE).astype(float)


def test_the_interval_is_that_of_a_paired_test_by_scipy() -> None:
    result = margin("a", FIRST, "b", SECOND)
    expected = ttest_rel(FIRST[0], SECOND[0]).confidence_interval(0.95)
    assert [result.low, result.high] == pytest.approx([expected.low, expected.high])
    assert result.difference == pytest.approx(FIRST.mean() - SECOND.mean())


def test_seeds_that_diverged_are_left_out_and_not_paired_with_others() -> None:
    nothing = np.full((1, 400), np.nan)
    first = np.concatenate([FIRST, nothing, SECOND])
    result = margin("a", first, "b", np.concatenate([FIRST, SECOND, nothing]))
    alone = margin("a", np.concatenate([FIRST, SECOND]), "b", np.concatenate([FIRST, SECOND]))
    assert result.seeds == 2 and result.difference == alone.difference == 0.0
    assert result.high > 0.0 == alone.high  # equal answers of seeds that are the same


def test_one_seed_is_said_and_no_interval_exceeds_all_points() -> None:
    assert (
        "examples alone, since there is one seed:" in lines(margins({"a": FIRST, "b": SECOND}))[0]
    )
    apart = np.stack([np.ones(4), np.zeros(4)])
    wide = margin("a", apart, "b", apart[::-1])
    assert (wide.low, wide.high) == (-1.0, 1.0)


def test_answers_that_are_always_equal_have_no_width() -> None:
    result = margin("a", FIRST, "b", FIRST)
    assert (result.difference, result.low, result.high) == (0.0, 0.0, 0.0)


def test_the_interval_is_that_of_a_bootstrap_over_pairs() -> None:
    result = margin("a", FIRST, "b", SECOND)
    drawn = bootstrap((FIRST[0] - SECOND[0],), np.mean, rng=1).confidence_interval
    assert [result.low, result.high] == pytest.approx([drawn.low, drawn.high], abs=5e-3)


def test_pairs_on_the_same_examples_have_narrower_intervals_than_two_samples() -> None:
    easy = np.concatenate([np.ones(200), np.zeros(200)])[None]
    better = easy.copy()
    better[0, 200:220] = 1.0
    result = margin("a", better, "b", easy)
    assert result.difference == pytest.approx(0.05)
    assert result.low > 0.028  # two samples of 400 have a half width of 0.069


def test_seeds_that_draw_the_same_examples_are_paired() -> None:
    draws = np.array([0.0, 40, 80, 120]).astype(int)  # of which both sides learn more or less
    first = np.stack([np.r_[np.ones(200 + n), np.zeros(200 - n)] for n in draws])
    second = np.stack([np.r_[np.ones(180 + n), np.zeros(220 - n)] for n in draws])
    paired = margin("a", first, "b", second)
    apart = margin("a", first, "b", second[:3])
    assert paired.difference == pytest.approx(0.05)
    assert paired.low > 0.02 and apart.low < 0


def test_few_seeds_have_the_wide_interval_of_a_t_test_over_them() -> None:
    # Many examples, which are all alike: only the seeds differ.
    counts = np.array([[50, 56, 61], [40, 45, 42]])  # of a hundred
    first, second = (
        np.tile([[1.0] * count + [0.0] * (100 - count) for count in of], 4000) for of in counts
    )
    result = margin("a", first, "b", second)
    expected = ttest_rel(*counts / 100).confidence_interval(0.95)
    assert [result.low, result.high] == pytest.approx([expected.low, expected.high], abs=1e-3)


def test_seeds_that_differ_widen_the_interval() -> None:
    same = np.repeat(FIRST, 3, axis=0)
    apart = same.copy()
    apart[0, :100], apart[2, :100] = 1.0, 0.0
    widths = [
        one.high - one.low for one in (margin("a", x, "b", SECOND) for x in (FIRST, same, apart))
    ]
    assert widths[0] == pytest.approx(widths[1])
    assert widths[2] > 1.5 * widths[1]  # the seeds' accuracies deviate by 0.11


def test_the_first_is_set_against_each_other_and_said_in_points() -> None:
    tables = margins({"pretrained, full": FIRST, "from scratch, full": SECOND, "chance": SECOND})
    assert [table["over"] for table in tables] == ["from scratch, full", "chance"]
    head, line, _ = lines(tables)
    assert head.startswith("'pretrained, full' in points of accuracy, with 95 % intervals over")
    assert line.startswith(f"  {100 * tables[0]['difference']:+.1f} (+")
    assert line.endswith("over 'from scratch, full'")


def test_one_example_has_no_interval_and_no_margin() -> None:
    assert margins({"a": np.ones((3, 1)), "b": np.zeros((1, 1))}) == []
    assert margins({}) == lines([]) == []
