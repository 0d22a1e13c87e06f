"""Linear models of arrays: logistic regression for classes, sets and options, ridge for numbers."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from scipy.sparse import issparse
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.model_selection import GridSearchCV

from foreword.tuning.tasks._contract import OutputForm
from foreword.types import Array

FOLDS = 3
MOST_CHOSEN_ON = 5_000  # outputs; with more, choosing a penalty takes minutes and gains little
MOST_OPTIONS = 20_000  # of which those that are not right are drawn, if there are more
UNSEEN = -20.0  # the logit of a class that no example has


class LinearMap(NamedTuple):
    """A linear map.

    Attributes:
        weights: (features, outputs) float32.
        bias: (outputs,) float32.
    """

    weights: Array
    bias: Array

    def __call__(self, x: Any) -> Array:
        """Return the outputs of features, dense or sparse, (rows, outputs) float64."""
        return np.asarray(x @ self.weights, np.float64) + self.bias


def fit_linear(
    x: Any, targets: Array, form: OutputForm, classes: int, inverse_penalties: Sequence[float]
) -> LinearMap:
    """Return the linear map with the least penalised loss; the penalty by cross-validation.

    Args:
        x: features, dense or sparse, (rows, features). Dense ones are standardised.
        targets: a class, below 0 for none; a number; or 0 or 1 for each label or option; (rows,) or
            (rows, columns). Of vectors to compare none are read.
        inverse_penalties: scikit-learn's C, to choose from; the middle one if examples are too few
            or too many to choose.
    """
    known = targets >= 0 if form == "classes" else np.ones(x.shape[0], bool)
    if form == "options" and x.shape[0] > MOST_OPTIONS:
        drawn = np.random.default_rng(1).random(len(known)) < MOST_OPTIONS / len(known)
        known = np.asarray(drawn | targets.reshape(len(targets), -1).any(axis=1))
    x, targets = x[np.flatnonzero(known)], targets[known]
    mean, scale = np.zeros(x.shape[1]), np.ones(x.shape[1])
    if not issparse(x):
        mean, scale = x.mean(axis=0), x.std(axis=0) + 1e-6
        x = (x - mean) / scale
    if form == "vectors":
        weights, bias = np.eye(x.shape[1]), np.zeros(x.shape[1])
    elif form == "number":
        weights, bias = _ridge(x, targets, inverse_penalties)
    elif form == "classes":
        weights, bias = _logistic(x, targets.astype(np.int64), inverse_penalties)
        weights, bias = _of_all(weights, bias, np.unique(targets), classes)
    else:
        columns = targets.reshape(len(targets), -1).T.astype(np.int64)
        models = [_yes_or_no(x, column, inverse_penalties) for column in columns]
        weights, bias = (np.concatenate(part, axis=-1) for part in zip(*models, strict=True))
    weights = weights / scale[:, None]
    return LinearMap(weights.astype(np.float32), (bias - mean @ weights).astype(np.float32))


def _ridge(x: Any, targets: Array, inverse_penalties: Sequence[float]) -> tuple[Array, Array]:
    grid = {"alpha": [1 / c for c in inverse_penalties]}
    model: Any = Ridge(alpha=grid["alpha"][len(grid["alpha"]) // 2])
    if FOLDS <= len(targets) <= MOST_CHOSEN_ON:
        model = GridSearchCV(model, grid, cv=FOLDS, scoring="neg_mean_squared_error")
    model.fit(x, targets.astype(np.float64))
    best = getattr(model, "best_estimator_", model)
    return best.coef_.reshape(-1, 1), np.atleast_1d(best.intercept_)


def _logistic(x: Any, targets: Array, inverse_penalties: Sequence[float]) -> tuple[Array, Array]:
    """Return weights and bias of each class; of two classes those of the second alone."""
    middle = inverse_penalties[len(inverse_penalties) // 2]
    model: Any = LogisticRegression(C=middle, max_iter=500)
    fewest = min(Counter(targets.tolist()).values())
    if fewest >= FOLDS and len(targets) <= MOST_CHOSEN_ON:
        grid = {"C": list(inverse_penalties)}
        model = GridSearchCV(model, grid, cv=FOLDS, scoring="neg_log_loss")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model.fit(x, targets)
    best = getattr(model, "best_estimator_", model)
    return best.coef_.T, best.intercept_


def _yes_or_no(x: Any, targets: Array, inverse_penalties: Sequence[float]) -> tuple[Array, Array]:
    """Return weights and bias of yes; if all answers are the same, that it is all but certain."""
    if targets.min() == targets.max():
        return np.zeros((x.shape[1], 1)), np.asarray([-UNSEEN if targets[0] else UNSEEN])
    return _logistic(x, targets, inverse_penalties)


def _of_all(weights: Array, bias: Array, seen: Array, classes: int) -> tuple[Array, Array]:
    """Return weights and bias of every class, given those of the classes that were seen."""
    if len(seen) == 2:
        weights = np.concatenate([-weights, weights], axis=1) / 2
        bias = np.concatenate([-bias, bias]) / 2
    of_all, biases = np.zeros((len(weights), classes)), np.full(classes, UNSEEN)
    of_all[:, seen.astype(int)], biases[seen.astype(int)] = weights, bias
    return of_all, biases
