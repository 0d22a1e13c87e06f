"""Which settings make two models compute different things."""

from __future__ import annotations

import pytest

from foreword import kinds
from foreword.runs.same_model import differences, resolved


@pytest.mark.parametrize("name", kinds.names("models"))
def test_models_of_every_kind_can_be_compared(name: str) -> None:
    model = kinds.load("models", name)
    assert differences(resolved(model()), resolved(model())) == []


def test_a_recurrent_model_may_differ_only_in_training() -> None:
    lstm = kinds.load("models", "lstm")
    assert differences(resolved(lstm(dropout=0.1)), resolved(lstm(dropout=0.2))) == []
    actual = differences(resolved(lstm(layers=1)), resolved(lstm(layers=2)))
    assert actual == ["model.layers is 2, not 1"]


def test_derived_widths_of_a_transformer_are_compared_by_value() -> None:
    transformer = kinds.load("models", "transformer")
    one, other = transformer(d_model=64), transformer(d_model=64, d_ff=256)
    assert differences(resolved(one), resolved(other)) == []
