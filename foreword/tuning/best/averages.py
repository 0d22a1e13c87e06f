"""The average of candidates' outputs, and the weights with which it fits the targets best.

By the form of the outputs (`Needs.outputs`): probabilities are averaged, of classes, of each label
of a set or of the options or positions of a group; numbers too; and vectors stand side by side, so
that their cosine is the average of the parts' cosines.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from scipy.optimize import nnls
from scipy.special import expit, log_softmax, logit

from foreword.evaluation.calibration import as_two_classes, fit_temperature
from foreword.tuning.best.material import Material
from foreword.types import Array

TINY = 1e-12
ROUNDS = 200  # of expectation-maximisation


def temperature_of(material: Material, outputs: Array) -> float:
    """Return the temperature of logits, fitted on the outputs that have targets; 1 for others."""
    if material.form == "classes":
        known = np.flatnonzero(material.targets >= 0)
        return fit_temperature(outputs[known], material.targets[known])
    if material.form == "sets":
        return fit_temperature(*as_two_classes(outputs, material.targets))
    return 1.0


def comparable(outputs: Array, temperature: float, material: Material) -> Array:
    """Return outputs as `average` takes them.

    Of classes log-probabilities, of options and positions those among their group, of sets the
    logits of calibrated probabilities, of texts vectors of length 1; numbers as they are.
    """
    if material.form == "classes":
        return np.asarray(log_softmax(outputs / temperature, axis=1))
    if material.form == "sets":
        return outputs / temperature
    if material.form == "options":
        parts = [log_softmax(outputs[a:b], axis=0) for a, b in pairwise(material.groups)]
        return np.concatenate(parts)
    if material.form == "vectors":
        lengths = np.linalg.norm(outputs, axis=1, keepdims=True)
        return np.asarray(outputs / np.maximum(lengths, TINY))
    return outputs


def average(parts: Sequence[tuple[Array, float]], material: Material) -> Array:
    """Return the average of outputs in the form of `comparable`.

    Args:
        parts: what `comparable` returned, and the weight of each.
    """
    if material.form == "vectors":
        return np.concatenate([np.sqrt(weight) * vectors for vectors, weight in parts], axis=1)
    if material.form == "number":
        return np.asarray(sum(weight * outputs for outputs, weight in parts))
    if material.form == "sets":
        shares: Any = sum(weight * expit(outputs) for outputs, weight in parts)
        return np.asarray(logit(np.clip(shares, TINY, 1 - TINY)))
    mean: Any = sum(weight * np.exp(shares) for shares, weight in parts)
    return np.asarray(np.log(np.maximum(mean, TINY)))


def best_weights(parts: Sequence[Array], material: Material) -> Array:
    """Return the weights, shares of 1, of the average that fits the targets best.

    Args:
        parts: what `comparable` returned for each.
    """
    if material.form == "vectors":
        cosines = np.stack([(one[0::2] * one[1::2]).sum(axis=1) for one in parts], axis=1)
        return _least_squares(*(x - x.mean(axis=0) for x in (cosines, material.targets[0::2, 0])))
    if material.form == "number":
        columns = np.stack([outputs[:, 0] for outputs in parts], axis=1)
        targets = material.targets.astype(np.float64)
        strong = 1e3 * float(np.abs(targets).max() + 1) * len(targets)  # that they sum to 1
        rows = np.concatenate([columns, np.full((1, len(parts)), strong)])
        return _least_squares(rows, np.append(targets, strong))
    # The probability of the right answers by each candidate; then expectation-maximisation.
    right = np.stack([_right_shares(shares, material) for shares in parts], axis=1)
    weights = np.full(len(parts), 1 / len(parts))
    for _ in range(ROUNDS):
        each = right * weights + TINY
        weights = (each / each.sum(axis=1, keepdims=True)).mean(axis=0)
    return np.asarray(weights)


def _right_shares(shares: Array, material: Material) -> Array:
    """Return the probability of each right answer."""
    targets = material.targets
    if material.form == "classes":
        known = np.flatnonzero(targets >= 0)
        return np.asarray(np.exp(shares[known, targets[known]]))
    if material.form == "sets":
        return np.asarray(expit(np.where(targets > 0, shares, -shares)).ravel())
    return np.asarray(np.exp(shares[targets.reshape(shares.shape) > 0]))


def _least_squares(columns: Array, targets: Array) -> Array:
    """Return the weights of the least squared error, none below 0; equal ones if all are 0."""
    weights, _ = nnls(columns, targets)
    total = weights.sum()
    return np.asarray(weights / total if total > 0 else np.full(len(weights), 1 / len(weights)))
