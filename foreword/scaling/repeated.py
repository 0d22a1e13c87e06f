"""Two laws of text that is read several times, beside E + A / N^alpha + B / D^beta.

With U unique tokens, R = D / U - 1 repetitions, and U_N the best size for U tokens:

- half-life (Muennighoff et al. 2023): N and D are replaced by U_N and U, each with what is beyond
  them, r = N / U_N - 1 or R, worth less and less: U (1 + R_D (1 - exp(-R / R_D)));
- additive (Lovelace et al. 2026): the loss grows by P R^delta (N / U)^kappa.

All values of a form are fitted together, to all runs, those read once and those read often: runs
of one epoch alone cannot tell a large N from an excessive one. The fit starts from that of the runs
of about one epoch, and minimises Huber's loss of the log loss, as the direct fit does.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.optimize import least_squares

from foreword.scaling.law import ends
from foreword.scaling.runs import ONCE, Runs
from foreword.scaling.surface import DELTA, NAMES, Surface
from foreword.types import Array

FEWEST_REPEATED = 4  # runs; fewer fit no form
FEWEST_VALUES = 8  # of the larger form; as many runs are needed
MOST_RESAMPLES = 200
LEAST_LOG = -100.0  # of a best size, far below any
# Least and largest of the values that a form adds.
LIMITS = {"R_D": (0.01, 1e4), "R_N": (0.01, 1e4), "P": (1e-9, 1e3)}
LIMITS |= {"kappa": (1e-3, 5.0), "delta": (1e-3, 5.0)}
FORMS: dict[str, tuple[str, ...]] = {
    "half_life": ("R_D", "R_N"),
    "additive": ("P", "kappa", "delta"),
}
STARTS: dict[str, tuple[tuple[float, ...], ...]] = {
    "half_life": ((15.0, 5.0), (3.0, 1.0), (40.0, 40.0)),
    "additive": ((0.01, 0.5, 1.0), (0.01, 1.0, 0.5), (0.1, 0.3, 1.5)),
}


@dataclass(frozen=True)
class RepeatedFit:
    """A law of repeated text.

    Attributes:
        values: E, A, B, alpha, beta and what the form adds, by name.
        intervals: of each value, over runs.
        error: root of the mean squared log residual of the fitted runs.
        held_out_error: the same of the runs that were not fitted; None if all were.
        mark: which values the runs do not determine; "" if they do.
    """

    values: dict[str, float]
    intervals: dict[str, tuple[float, float] | None]
    error: float
    held_out_error: float | None
    mark: str

    def as_json(self) -> dict[str, Any]:
        """Return it as plain values."""
        others = {
            name: of for name, of in vars(self).items() if name not in ("values", "intervals")
        }
        return {**self.values, "interval": self.intervals, **others}


def effective(unique: Array, repetitions: Array, half_life: float) -> Array:
    """Return what repeated tokens, or excess parameters, are worth in unique ones."""
    worth: Array = unique * (1 + half_life * -np.expm1(-repetitions / half_life))
    return worth


def repeated_losses(form: str, values: Array, n: Array, d: Array, unique: Array) -> Array:
    """Return the losses of a form: E, A, B, alpha, beta and its own values at runs, (runs,)."""
    e, a, b, alpha, beta = values[:5]
    u = np.minimum(unique, d)
    if form == "additive":
        p, kappa, delta = values[5:]
        plain = e + a * n**-alpha + b * d**-beta
        return np.asarray(plain + p * (d / u - 1) ** delta * (n / u) ** kappa)
    # In logarithms, since far from the minimum the best size is beyond all numbers.
    log_best = (np.log(alpha * a) - np.log(beta * b) + beta * np.log(u)) / alpha
    best = np.exp(np.clip(log_best, LEAST_LOG, np.log(n)))
    size, tokens = effective(best, n / best - 1, values[6]), effective(u, d / u - 1, values[5])
    return np.asarray(e + a * size**-alpha + b * tokens**-beta)


def fit_repeated(
    runs: Runs, fitted: Array, draws: Array, advance: Callable[..., Any]
) -> tuple[dict[str, RepeatedFit], str]:
    """Return the two forms, and what a reader should know.

    Args:
        runs: of a family.
        fitted: whether each is fitted, (runs,); the others test the forms.
        draws: how often each resampled table holds each fitted run, (tables, fitted runs).
        advance: called with the tables fitted and their number.
    """
    seen, unseen = runs.where(fitted), runs.where(~fitted)
    epochs = seen.epochs
    again = int((epochs > ONCE).sum())
    levels = len(np.unique(np.round(np.log(epochs[epochs > ONCE]), 1)))
    if again < FEWEST_REPEATED or levels < 2 or len(epochs) < FEWEST_VALUES + 1:
        return {}, (
            f"{again} of {len(epochs)} fitted runs read text again, at {levels} numbers of epochs: "
            f"a law of repeated text needs {FEWEST_REPEATED}, at two numbers, among "
            f"{FEWEST_VALUES + 1} runs"
        )
    once = epochs <= ONCE
    start = seen.where(once) if once.sum() >= FEWEST_VALUES else seen
    surface = Surface.of(start.parameters, start.tokens, start.loss)
    base = surface.fit(np.ones((1, len(start.loss))))[0][0]
    found, total = {}, len(FORMS) * len(draws)
    for number, (form, added) in enumerate(FORMS.items()):
        tries = [_descend(form, seen, base, np.array(s)) for s in STARTS[form]]
        values, _ = min(tries, key=lambda each: each[1])
        resampled = []
        for done, draw in enumerate(draws, number * len(draws)):
            advance(done, total)
            drawn = seen.where(np.repeat(np.arange(len(draw)), draw))
            resampled.append(_descend(form, drawn, values[:5], values[5:])[0])
        names = (*NAMES, *added)
        intervals = [ends(column) for column in np.reshape(resampled, (-1, len(names))).T]
        loose = [
            name
            for name, value in zip(added, values[5:], strict=True)
            if not 1.1 * LIMITS[name][0] < value < LIMITS[name][1] / 1.1
        ]
        found[form] = RepeatedFit(
            dict(zip(names, map(float, values), strict=True)),
            dict(zip(names, intervals, strict=True)),
            _error(form, values, seen),
            _error(form, values, unseen) if len(unseen.loss) else None,
            f"the runs do not determine {', '.join(loose)}" if loose else "",
        )
    return found, ""


def _descend(form: str, runs: Runs, base: Array, added: Array) -> tuple[Array, float]:
    """Return the values of a form nearest to a start, and their objective.

    The logs of all values move, those of A and B in units of the geometric means of N and D.
    """
    assert runs.unique_tokens is not None
    n, d, unique = runs.parameters, runs.tokens, runs.unique_tokens
    units = np.log(n).mean(), np.log(d).mean()

    def plain(theta: Array) -> Array:
        logs = theta.copy()
        logs[1:3] += np.exp(theta[3:5]) * units
        return np.asarray(np.exp(np.clip(logs, -600, 600)))

    def residuals(theta: Array) -> Array:
        predicted = repeated_losses(form, plain(theta), n, d, unique)
        return np.log(np.clip(predicted, 1e-30, 1e30) / runs.loss)

    theta = np.log(np.maximum(np.concatenate([base, added]), 1e-12))
    theta[1:3] -= np.exp(theta[3:5]) * units
    low, high = np.full(len(theta), -30.0), np.full(len(theta), 30.0)
    low[3:5], high[3:5] = np.log(1e-3), np.log(5.0)
    low[5:], high[5:] = np.log([LIMITS[name] for name in FORMS[form]]).T
    theta = np.clip(theta, low + 1e-6, high - 1e-6)
    found = least_squares(
        residuals, theta, bounds=(low, high), loss="huber", f_scale=DELTA, x_scale="jac",
        ftol=1e-12, xtol=1e-12, gtol=1e-14, max_nfev=200,
    )  # fmt: skip
    return plain(found.x), float(found.cost)


def _error(form: str, values: Array, runs: Runs) -> float:
    assert runs.unique_tokens is not None
    expected = repeated_losses(form, values, runs.parameters, runs.tokens, runs.unique_tokens)
    return float(np.sqrt(np.mean(np.log(expected / runs.loss) ** 2)))
