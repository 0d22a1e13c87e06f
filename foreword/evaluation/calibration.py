"""Calibrated probabilities: a temperature, and how far probabilities are from shares of right ones.

Reference: Guo et al. 2017, "On Calibration of Modern Neural Networks", sections 2 and 4.2.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from scipy.optimize import minimize_scalar
from scipy.special import log_softmax

from foreword.types import Array

BINS = 15  # of the calibration error, as in the paper
MOST = 100.0  # the greatest temperature; its inverse is the least


def fit_temperature(outputs: Array, targets: Array) -> float:
    """Return the temperature T for which softmax(outputs / T) has the lowest cross-entropy.

    Differs from the paper: a target counts as one example more and the others as one more
    together (Platt 1999), so that T stays above 0 where every answer is right.

    Args:
        outputs: logits of examples that were not trained on, (examples, labels), at least one.
        targets: the right label of each, (examples,) int64.
    """
    logits, share = outputs.astype(np.float64), 1 / (len(targets) + 2)
    desired = np.full(logits.shape, share / max(logits.shape[1] - 1, 1))
    desired[np.arange(len(targets)), targets] = 1 - share

    def cross_entropy(log_temperature: float) -> float:
        return -float((desired * log_softmax(logits * math.exp(-log_temperature), axis=1)).sum())

    bounds = (-math.log(MOST), math.log(MOST))
    found: Any = minimize_scalar(cross_entropy, bounds=bounds, method="bounded")
    return math.exp(found.x)


def as_two_classes(outputs: Array, right: Array) -> tuple[Array, Array]:
    """Return each yes or no as two classes: outputs (all, 2), and targets (all,) int64."""
    yes = outputs.ravel()
    return np.stack([np.zeros_like(yes), yes], axis=1), right.ravel().astype(np.int64)


def calibration_error(probabilities: Array, targets: Array) -> float:
    """Return the expected calibration error: the mean gap of confidence and accuracy in 15 bins.

    Args:
        probabilities: of each label, (examples, labels), at least one.
        targets: the right label of each, (examples,) int64.
    """
    confidence: Array = probabilities.max(axis=1).astype(np.float64)
    is_right = probabilities.argmax(axis=1) == targets
    bins = np.clip(np.ceil(confidence * BINS).astype(int) - 1, 0, BINS - 1)  # (begin, end] each
    gaps = np.bincount(bins, weights=confidence - is_right, minlength=BINS)
    return float(np.abs(gaps).sum() / len(targets))


def best_threshold(probabilities: Array, targets: Array) -> float:
    """Return the least probability to answer yes from, for the highest F1; 0.5 without a yes.

    Args:
        probabilities: of yes, (examples,).
        targets: whether yes is right, (examples,) bool.
    """
    if not targets.any():
        return 0.5
    order = np.argsort(-probabilities, kind="stable")
    ordered, right = probabilities[order].astype(np.float64), targets[order].cumsum()
    scores = 2 * right / (np.arange(1, len(order) + 1) + right[-1])
    scores[:-1][ordered[:-1] == ordered[1:]] = -1.0  # equal ones are answered alike
    best = int(scores.argmax())
    below = ordered[best + 1] if best + 1 < len(ordered) else 0.0
    return float((ordered[best] + below) / 2)
