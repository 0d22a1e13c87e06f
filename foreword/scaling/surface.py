"""The direct fit (approach 3): L(N, D) = E + A / N^alpha + B / D^beta, for many tables at once.

Given the exponents the law is linear in E, A and B, so a start is a pair of exponents alone: the
other three come from linear least squares (variable projection). Sizes and tokens are measured in
units of their geometric means, which brings the condition of the problem from 1e11 to about 1e1.
Every start of a grid is then followed down by Levenberg and Marquardt's method, and so is every
resampled table from the best of them, all in the same arrays.

The loss of the fit is Huber's of the residuals of log loss (Hoffmann et al. 2022, approach 3), or
the squared residuals of the loss itself. Each is minimised as a weighted least-squares problem
whose weights follow the residuals.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from foreword.types import Array

DELTA = 1e-3  # of Huber's loss: residuals of log loss up to it are squared
STARTS = np.geomspace(0.04, 1.4, 12)  # of each exponent: 144 starts
KEPT_STARTS = 3  # from which a resampled table starts
LOWEST, HIGHEST = 1e-3, 5.0  # of an exponent while it is looked for
STEPS, RESAMPLED_STEPS = 400, 150  # at most
CLOSE = 1e-12  # relative change of the objective below which a step ends the descent

Criterion = Literal["huber", "squares"]
NAMES = ("E", "A", "B", "alpha", "beta")


@dataclass(frozen=True)
class Surface:
    """The points of a table, in units of their geometric means.

    Attributes:
        n: sizes, (points,).
        d: tokens, (points,).
        loss: (points,).
        units: the geometric means of sizes and tokens.
        criterion: what is minimised.
    """

    n: Array
    d: Array
    loss: Array
    units: tuple[float, float]
    criterion: Criterion

    @classmethod
    def of(cls, n: Array, d: Array, loss: Array, criterion: Criterion = "huber") -> Surface:
        """Return the points of a table.

        Args:
            n: parameters, (points,).
            d: tokens, (points,).
            loss: (points,).
            criterion: what is minimised.
        """
        units = float(np.exp(np.log(n).mean())), float(np.exp(np.log(d).mean()))
        return cls(np.log(n / units[0]), np.log(d / units[1]), loss, units, criterion)

    def fit(self, weights: Array, starts: Array | None = None) -> tuple[Array, Array]:
        """Return the best fit of each table and its objective.

        Args:
            weights: how often each table holds each point, (tables, points).
            starts: pairs of exponents, (starts, 2); default: the grid.

        Returns:
            E, A, B, alpha, beta in units of parameters and tokens, (tables, 5), and (tables,).
        """
        fits, values = self.descents(weights, starts)
        best = values.argmin(1)
        rows = np.arange(len(best))
        return self.in_plain_units(fits[rows, best]), values[rows, best]

    def descents(self, weights: Array, starts: Array | None = None) -> tuple[Array, Array]:
        """Return where each start ends for each table, in units of the means, and its objective."""
        most = STEPS if starts is None else RESAMPLED_STEPS
        starts = grid() if starts is None else starts
        tables, count = len(weights), len(starts)
        w = np.repeat(weights.astype(float), count, 0)
        exponents = np.tile(starts, (tables, 1))
        theta = np.concatenate([self._project(exponents, w), exponents], 1)
        theta, value = self._descend(theta, w, most)
        return theta.reshape(tables, count, 5), value.reshape(tables, count)

    def predict(self, theta: Array) -> tuple[Array, Array]:
        """Return the losses of fits in units of the means, and their derivatives.

        Args:
            theta: (fits, 5).

        Returns:
            (fits, points), and (fits, points, 5).
        """
        e, a, b, alpha, beta = (theta[:, i, None] for i in range(5))
        by_size, by_tokens = np.exp(-alpha * self.n), np.exp(-beta * self.d)
        slopes = (
            *(np.ones_like(by_size), by_size, by_tokens),
            *(-self.n * a * by_size, -self.d * b * by_tokens),
        )
        return e + a * by_size + b * by_tokens, np.stack(slopes, 2)

    def objective(self, predicted: Array, w: Array) -> tuple[Array, Array]:
        """Return the objective of predictions, and the weights of its least-squares problem."""
        if self.criterion == "squares":
            r = predicted - self.loss
            return (w * r * r).sum(1) / 2, w
        r = np.log(predicted / self.loss)
        size = np.abs(r)
        is_small = size <= DELTA
        rho = np.where(is_small, r * r / 2, DELTA * (size - DELTA / 2))
        # d rho / d predicted = weight * (predicted - loss)
        slope = np.where(is_small, 1.0, DELTA / np.maximum(size, DELTA))
        gap = predicted - self.loss
        with np.errstate(divide="ignore", invalid="ignore"):
            ratio = np.where(size < 1e-9, 1 / predicted, r / gap)
        return (w * rho).sum(1), w * slope * ratio / predicted

    def condition(self, theta: Array) -> float:
        """Return the condition of a fit: of its derivatives by the five values, each of norm 1."""
        columns = self.predict(theta[None])[1][0] / self.loss[:, None]
        columns /= np.maximum(np.linalg.norm(columns, axis=0), 1e-300)
        values = np.linalg.svd(columns, compute_uv=False)
        return float(values[0] / max(values[-1], 1e-300))

    def in_plain_units(self, theta: Array) -> Array:
        """Return fits, (fits, 5), in units of one parameter and one token."""
        with np.errstate(over="ignore"):
            scale = np.stack([self.units[i] ** theta[:, 3 + i] for i in range(2)], 1)
            plain: Array = np.concatenate([theta[:, :1], theta[:, 1:3] * scale, theta[:, 3:]], 1)
        return plain

    def _project(self, exponents: Array, w: Array) -> Array:
        """Return E, A and B of least relative squares for given exponents, (fits, 3)."""
        count = len(exponents)
        theta = np.concatenate([np.ones((count, 3)), exponents], 1)
        columns = self.predict(theta)[1][:, :, :3] / self.loss[:, None]
        normal = np.einsum("fp,fpi,fpj->fij", w, columns, columns)
        normal += 1e-9 * np.trace(normal, axis1=1, axis2=2)[:, None, None] * np.eye(3)
        right = np.einsum("fp,fpi->fi", w, columns)
        linear: Array = np.linalg.solve(normal, right[..., None])[..., 0]
        return np.maximum(linear, [0.0, 1e-3, 1e-3])

    def _descend(self, theta: Array, w: Array, most: int) -> tuple[Array, Array]:
        """Follow every fit down; see the module's text."""
        low = np.array([0.0, 1e-9, 1e-9, LOWEST, LOWEST])
        high = np.array([np.inf, np.inf, np.inf, HIGHEST, HIGHEST])
        theta = np.clip(theta, low, high)
        predicted, slopes = self.predict(theta)
        value, q = self.objective(predicted, w)
        damping = np.full(len(theta), 1e-3)
        active = np.arange(len(theta))
        still = np.zeros(len(theta), int)
        for _ in range(most):
            if not len(active):
                break
            t, v, wa = theta[active], value[active], w[active]
            predicted, slopes = self.predict(t)
            _, q = self.objective(predicted, wa)
            gradient = np.einsum("fp,fpi->fi", q * (predicted - self.loss), slopes)
            # At a bound a value moves only inwards.
            is_held = ((t <= low) & (gradient > 0)) | ((t >= high) & (gradient < 0))
            gradient = np.where(is_held, 0.0, gradient)
            slopes = np.where(is_held[:, None], 0.0, slopes)
            normal = np.einsum("fp,fpi,fpj->fij", q, slopes, slopes)
            diagonal = np.einsum("fii->fi", normal)
            size = 1e-12 * diagonal.sum(1, keepdims=True) + 1e-300
            diagonal += damping[active, None] * diagonal + np.where(is_held, 1.0, size)
            step = np.linalg.solve(normal, -gradient[..., None])[..., 0]
            tried = np.clip(t + step, low, high)
            new, _ = self.objective(self.predict(tried)[0], wa)
            is_better = new < v
            theta[active] = np.where(is_better[:, None], tried, t)
            value[active] = np.where(is_better, new, v)
            damping[active] = np.where(
                is_better, damping[active] / 5, np.maximum(damping[active] * 4, 1e-8)
            )
            is_end = np.where(is_better, v - new <= CLOSE * v, damping[active] > 1e6)
            still[active] = np.where(is_end, still[active] + 1, 0)
            active = active[(still[active] < 3) & (damping[active] <= 1e8)]
        return theta, value


def grid(values: Sequence[float] = tuple(STARTS)) -> Array:
    """Return all pairs of exponents, (pairs, 2)."""
    return np.stack(np.meshgrid(values, values, indexing="ij"), -1).reshape(-1, 2)
