from __future__ import annotations

from dataclasses import replace

from foreword.models.transformer import Transformer
from foreword.runs.same_model import resolved


def test_models_that_begin_differently_compute_the_same() -> None:
    model = Transformer()
    assert resolved(replace(model, zero_init_residual=True)) == resolved(model)
    assert resolved(replace(model, init_std=0.5)) == resolved(model)
    assert resolved(replace(model, layers=model.layers + 1)) != resolved(model)
