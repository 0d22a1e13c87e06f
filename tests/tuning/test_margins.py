"""Margins between two ways of answering the same examples."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import bootstrap, ttest_rel

from foreword.tuning.margins import lines, margin, margins

RNG = np.random.default_rng(0)
EASE = RNG.random(400)  # of each example, the same for both
FIRST = (RNG.random((1, 400)) < 0.3 + 0.6 * EASE).astype(float)
SECOND = (RNG.random((1, 400)) < 0.1 + 0.7 * EASE).astype(float)


def test_the_interval_is_that_of_a_paired_test_by_scipy() -> None:
    result = margin("a", FIRST, "b", SECOND)
    expected = ttest_rel(FIRST[0], SECOND[0]).confidence_interval(0.95)
    # 400 examples: Student's t is 0.3 % wider than the normal.
    assert [result.low, result.high] == pytest.approx([expected.low, expected.high], abs=2e-4)
    assert result.difference == pytest.approx(FIRST.mean() - SECOND.mean())


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
    assert head.startswith("'pretrained, full' in points of accuracy, with 95 % intervals")
    assert line.startswith(f"  {100 * tables[0]['difference']:+.1f} (+") and line.endswith(
        "over 'from scratch, full'"
    )


def test_one_example_has_no_interval_and_no_margin() -> None:
    assert margins({"a": np.ones((3, 1)), "b": np.zeros((1, 1))}) == []
    assert margins({}) == lines([]) == []
