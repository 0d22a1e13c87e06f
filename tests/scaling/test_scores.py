"""A task's score in two steps, against sigmoids with known values."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from foreword.scaling.fit import FamilyFit, fit_runs
from foreword.scaling.law import losses
from foreword.scaling.runs import read_runs
from foreword.scaling.scores import sigmoid
from tests.scaling.surfaces import SURFACES, runs_on, with_noise

TRUE = np.array([0.25, 0.85, 6.0, 2.3])
FEW = 40


def scored(noise: float = 0.0, values: np.ndarray[Any, Any] = TRUE) -> list[dict[str, Any]]:
    """Return runs of a known surface with the scores of a known sigmoid."""
    rng, rows = np.random.default_rng(1), runs_on(SURFACES[0][0])
    for row in rows:
        at = float(sigmoid(values, np.array([row["loss"]]))[0])
        row["score"] = at + noise * rng.standard_normal()
    return rows


def fit(rows: list[dict[str, Any]]) -> FamilyFit:
    (runs,) = read_runs(rows)
    return fit_runs(runs, resamples=FEW)[0]


def test_a_known_sigmoid_is_found_and_forecast() -> None:
    found = fit(scored())
    assert found.score is not None and not found.score.mark
    assert found.score.values == pytest.approx(TRUE, rel=1e-3)
    assert found.runs.score is not None
    truth = [found.runs.score[one.item] for one in found.score.forecasts]
    assert len(truth) == (~found.fitted).sum() > 0
    assert [one.forecast for one in found.score.forecasts] == pytest.approx(truth, abs=1e-3)
    assert [one.from_loss for one in found.score.forecasts] == pytest.approx(truth, abs=1e-3)


def test_intervals_hold_the_largest_budget() -> None:
    found = fit(scored(noise=0.01))
    assert found.score is not None and found.runs.score is not None
    assert found.score.spread == pytest.approx(0.01, rel=0.3)
    inside = [one.low <= found.runs.score[one.item] <= one.high for one in found.score.forecasts]
    assert np.mean(inside) >= 0.8


def test_the_interval_holds_the_uncertainty_of_the_law() -> None:
    """Scores follow the losses without noise; the losses are noisy, so the forecast is not sure."""
    rows = with_noise(runs_on(SURFACES[1][0], sizes=7), 0.02)
    for row in rows:
        row["score"] = float(sigmoid(TRUE, np.array([row["loss"]]))[0])
    found = fit(rows)
    assert found.score is not None
    for one in found.score.forecasts:
        n, d = found.runs.parameters[one.item], found.runs.tokens[one.item]
        of_law = sigmoid(TRUE, losses(found.resampled, n, d))
        assert one.high - one.low == pytest.approx(np.ptp(of_law), rel=0.3)
        assert one.forecast == pytest.approx(np.median(of_law), rel=1e-3)


@pytest.mark.parametrize("flat", [np.array([0.5, 0.5, 1.0, 2.0]), np.array([0.9, 0.3, 6.0, 2.3])])
def test_a_score_that_does_not_follow_the_loss_is_marked(flat: np.ndarray[Any, Any]) -> None:
    found = fit(scored(noise=0.01, values=flat))
    assert found.score is not None and "does not follow" in found.score.mark


def test_few_scores_are_said_and_empty_cells_are_left_out() -> None:
    rows = scored()
    for row in rows[5:]:
        row["score"] = ""
    found = fit(rows)
    assert found.score is None and any("5 runs below" in note for note in found.notes)
    assert fit([{**row, "score": ""} for row in rows]).score is None
