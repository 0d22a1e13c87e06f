"""Best learning rates: parabolas in the logarithm, and the rule of width and budget."""

from __future__ import annotations

import math

import pytest

from foreword.scaling.rates import best_rates, rate_rule

RATES = (1e-3, 2e-3, 4e-3, 8e-3, 1.6e-2)


def rows(best: dict[tuple[int, float], float]) -> list[dict[str, float]]:
    """Losses whose lowest is at the rates given by width and budget."""
    return [
        {"width": w, "layers": 2, "budget": c, "lr": lr, "loss": 3 + math.log(lr / rate) ** 2}
        for (w, c), rate in best.items()
        for lr in RATES
    ]


def test_the_best_rate_and_the_rule_are_recovered() -> None:
    best = {
        (width, flops): 5e-3 * (width / 256) ** -0.5 * (flops / 1e13) ** -0.1
        for width in (128, 256, 512)
        for flops in (1e12, 1e13)
    }
    found = best_rates(rows(best))
    assert {(one.width, one.flops): one.rate for one in found} == pytest.approx(best)
    rule = rate_rule(found)
    assert rule is not None
    assert (rule.rate, rule.by_width, rule.by_flops) == pytest.approx((5e-3, -0.5, -0.1))
    assert rule.spread == pytest.approx(1) and rule.of(512, 1e13) == 3.54e-3


def test_a_rate_at_an_edge_is_marked_and_left_out_of_the_rule() -> None:
    best = {(128, 1e12): 4e-3, (256, 1e12): 4e-3, (512, 1e12): 1e-4}
    found = best_rates(rows(best))
    assert [one.is_at_edge for one in found] == [False, False, True]
    assert found[2].rate == RATES[0]
    rule = rate_rule(found)
    assert rule is not None and rule.by_width == pytest.approx(0)
    assert rate_rule(found[:1]) is None
