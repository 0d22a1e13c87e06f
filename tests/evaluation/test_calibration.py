"""Temperature scaling and the expected calibration error, against independent implementations."""

import numpy as np
import pytest
import torch
from scipy.special import softmax

from foreword.evaluation.calibration import calibration_error, fit_temperature


def drawn(temperature: float, count: int = 20_000, labels: int = 4):
    """Return logits that are `temperature` times too large, and labels drawn by the true ones."""
    random = np.random.default_rng(1)
    logits = 2 * random.normal(size=(count, labels))
    shares = softmax(logits, axis=1)
    targets = (random.random((count, 1)) > shares.cumsum(axis=1)).sum(axis=1)
    return (logits * temperature).astype(np.float32), targets.clip(max=labels - 1)


@pytest.mark.parametrize("temperature", [0.4, 1.0, 3.0])
def test_the_temperature_undoes_what_multiplied_the_logits(temperature):
    logits, targets = drawn(temperature)
    found = fit_temperature(logits, targets)
    assert found == pytest.approx(temperature, rel=0.03)

    # The same minimum as L-BFGS finds in torch, as in the paper's code.
    inverse = torch.ones(1, dtype=torch.float64, requires_grad=True)
    optimizer = torch.optim.LBFGS([inverse], max_iter=100, line_search_fn="strong_wolfe")

    def loss():
        optimizer.zero_grad()
        of = torch.nn.functional.cross_entropy(
            torch.tensor(logits, dtype=torch.float64) * inverse, torch.tensor(targets)
        )
        of.backward()
        return of

    optimizer.step(loss)
    assert found == pytest.approx(1 / inverse.item(), rel=1e-3)


@pytest.mark.parametrize(
    ("outputs", "targets"),
    [([[5.0, -5.0]] * 10, [0] * 10), ([[5.0, -5.0]] * 10, [1] * 10), ([[0.0, 0.0]], [1])],
    ids=["all right", "all wrong", "one without evidence"],
)
def test_the_temperature_is_finite_and_above_zero(outputs, targets):
    temperature = fit_temperature(np.array(outputs), np.array(targets))
    assert 0.01 <= temperature <= 100.01
    if targets[0] == 0:  # (10 + 1) / (10 + 2), Platt's share
        assert softmax(np.array(outputs[0]) / temperature)[0] == pytest.approx(11 / 12, abs=0.001)


def test_the_calibration_error_equals_a_loop_over_fifteen_bins():
    logits, targets = drawn(3.0, 1000)
    probabilities = softmax(logits, axis=1)
    confidence, right = probabilities.max(axis=1), probabilities.argmax(axis=1) == targets
    expected = 0.0
    for low, high in zip(np.linspace(0, 1, 16)[:-1], np.linspace(0, 1, 16)[1:], strict=True):
        inside = (confidence > low) & (confidence <= high)
        if inside.any():
            expected += inside.mean() * abs(confidence[inside].mean() - right[inside].mean())
    assert calibration_error(probabilities, targets) == pytest.approx(expected, abs=1e-6)
    assert expected > 0.1
    calm = softmax(logits / fit_temperature(logits, targets), axis=1)
    assert calibration_error(calm, targets) < 0.05


def test_certain_and_right_answers_have_no_calibration_error():
    assert calibration_error(np.eye(3), np.arange(3)) == 0.0
    assert calibration_error(np.eye(3), np.array([1, 2, 0])) == 1.0
