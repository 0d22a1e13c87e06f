"""The simulation of corpora and GPUs: its stages follow from its rates."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks import scale
from foreword.planning.gpus import find_gpu
from foreword.planning.plan import Assumptions
from foreword.runs.recipe import load_recipe
from foreword.runs.sizes import count_parameters


@pytest.mark.full
def test_stages_follow_from_the_rates() -> None:
    gpu, rates = find_gpu("memory_gb=16,bf16_tflops=1")[1], scale.Rates()
    given = (1e9, gpu, 4, ["gpt2_tiny"], rates, Assumptions(failure_hours=40), 20)
    made = scale.stages(*given, seed=3)
    assert made.tokens == pytest.approx(0.4e9 / 4.4)
    assert made.clean == pytest.approx(1000 / (0.5 * 64))
    assert made.prepare == pytest.approx(400 / (1.7 * 64))
    tokens = made.plan.steps * made.plan.tokens_per_step
    assert tokens == pytest.approx(made.tokens, rel=0.001)
    work = made.plan.steps * made.plan.best.seconds
    assert made.trained.min() >= work
    error = made.trained.std() / np.sqrt(20) + 0.01 * work
    assert abs(made.trained.mean() - made.expected) < 4 * error


def test_the_model_suits_the_tokens() -> None:
    names = ["gpt2_tiny", "gpt2_mini", "gpt2_small"]
    for name in names:
        parameters = sum(count_parameters(load_recipe(name)).values())
        assert scale.suited(20 * parameters, names) == name


def test_sizes_are_read_or_refused() -> None:
    assert scale.size_of("10TB") == 1e13
    for words in ("10", "TB", "-3GB", "xGB", "infTB"):
        with pytest.raises(SystemExit, match="--corpus"):
            scale.size_of(words)
