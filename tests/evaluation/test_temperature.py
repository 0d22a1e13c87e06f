"""Sampling at extreme temperatures."""

from __future__ import annotations

import pytest
import torch

from foreword.evaluation.sampling import Sampling, distribution


@pytest.mark.parametrize("temperature", [5e-324, 1e-300, 1e-6, 1000.0])
def test_every_temperature_above_zero_gives_probabilities(temperature: float) -> None:
    logits = torch.tensor([[1.0, 3.0, -2.0]])
    probabilities = distribution(logits, Sampling(temperature=temperature, top_k=0))
    assert float(probabilities.sum()) == pytest.approx(1.0)
    assert int(probabilities.argmax()) == 1
