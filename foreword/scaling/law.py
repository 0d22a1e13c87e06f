"""A scaling law as a record and a file: forecasts with intervals, and the best size of a budget."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from foreword.disk import atomic
from foreword.errors import UserError
from foreword.settings import config
from foreword.types import Array

LEVEL = 0.95  # of every interval
KEPT = 200  # resampled fits that a law keeps
Z = 1.959964  # half the width of the interval of a normal distribution, in its deviations
WIDE, PLACES = 1e4, 2_001  # how far around the fitted sizes the best one is looked for, and where

# FLOPs per token by parameters: a function, or pairs to interpolate between; None for 6 N.
FlopsPerToken = Callable[[float], float] | Sequence[tuple[float, float]] | None


@dataclass(frozen=True)
class LossForecast:
    """The loss that a law expects of a run.

    Attributes:
        value: the loss.
        fit: interval for the law's own uncertainty, by its resampled fits.
        seed: interval for the seed of one run around `value`; None if the noise is unknown.
    """

    value: float
    fit: tuple[float, float]
    seed: tuple[float, float] | None

    @property
    def interval(self) -> tuple[float, float]:
        """The interval of one run's loss: both parts, as independent ones add up."""
        seed = 0.0 if self.seed is None else self.seed[1] - self.value
        low, high = (math.hypot(end - self.value, seed) for end in self.fit)
        return self.value - low, self.value + high


@dataclass(frozen=True)
class Law:
    """L(N, D) = E + A / N^alpha + B / D^beta, of one family, text and tokenizer.

    Attributes:
        family: its name.
        E: the loss that remains, in `unit`.
        A: of parameters.
        B: of tokens.
        alpha: exponent of parameters.
        beta: exponent of tokens.
        resampled: E, A, B, alpha, beta of fits to resampled runs.
        seed_noise: standard deviation of the loss between seeds; None if unknown.
        unit: of the loss.
        parameters: which are counted: "all" or "without embeddings".
        smallest_flops: of the runs fitted.
        largest_flops: of the runs fitted.
        vocabulary: tokens of the tokenizer; None if unknown.
        text: that it was measured on.
        machine: that it was measured on.
        marks: what is wrong with the fit, a line each.
    """

    family: str
    E: float
    A: float
    B: float
    alpha: float
    beta: float
    resampled: tuple[tuple[float, ...], ...] = ()
    seed_noise: float | None = None
    unit: str = "nats per token"
    parameters: str = "all"
    smallest_flops: float = 0.0
    largest_flops: float = 0.0
    vocabulary: int | None = None
    text: str = ""
    machine: str = ""
    marks: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        values = (self.E, self.A, self.B, self.alpha, self.beta)
        if not all(math.isfinite(v) and v > 0 for v in values):
            raise ValueError("E: E, A, B, alpha and beta of a law must be above 0 and finite")
        if any(len(fit) != len(values) for fit in self.resampled):
            raise ValueError("resampled: five values each: E, A, B, alpha, beta")

    @classmethod
    def of(cls, family: str, values: Array, resampled: Array, **others: Any) -> Law:
        """Return the law of a fit.

        Args:
            family: its name.
            values: E, A, B, alpha, beta, (5,).
            resampled: the same of resampled runs, (fits, 5).
            others: the other attributes.
        """
        e, a, b, alpha, beta = map(float, values)
        fits = tuple(tuple(map(float, fit)) for fit in resampled)
        return cls(family, e, a, b, alpha, beta, fits, **others)

    @property
    def values(self) -> Array:
        """E, A, B, alpha and beta, (1, 5)."""
        return np.array([[self.E, self.A, self.B, self.alpha, self.beta]])

    def forecast(self, parameters: float, tokens: float) -> LossForecast:
        """Return the loss to expect of a run."""
        value = float(losses(self.values, parameters, tokens)[0])
        fits = np.array(self.resampled).reshape(-1, 5)
        low, high = ends(losses(fits, parameters, tokens)) or (value, value)
        noise = None if self.seed_noise is None else Z * self.seed_noise
        seed = None if noise is None else (value - noise, value + noise)
        return LossForecast(value, (min(low, value), max(high, value)), seed)

    def best_size(self, flops: float, flops_per_token: FlopsPerToken = None) -> tuple[float, float]:
        """Return the parameters and tokens of the lowest loss for a budget.

        Args:
            flops: of training.
            flops_per_token: by parameters: a function, or pairs of parameters and FLOPs per token
                (beyond which it goes on as between the last two); default: six for each parameter.
        """
        size = float(best_sizes(self.values, flops, flops_per_token)[0])
        return size, flops / float(per_token(flops_per_token, np.array([size]))[0])

    def save(self, path: str | Path) -> None:
        """Write it as TOML.

        Raises:
            UserError: the file cannot be written.
        """
        table = config.to_table(self)
        table["resampled"] = [[float(f"{v:.6g}") for v in fit] for fit in self.resampled]
        atomic.write_text(Path(path), config.dumps(table))

    @classmethod
    def load(cls, path: str | Path) -> Law:
        """Read a law that `save` wrote.

        Raises:
            UserError: it cannot be read, or its values are impossible.
        """
        try:
            return config.build(cls, config.read_toml(Path(path)), owner="a law")
        except UserError as error:
            text = str(error)
            raise UserError(text if text.startswith(str(path)) else f"{path}: {text}") from error


def losses(fits: Array, parameters: float | Array, tokens: float | Array) -> Array:
    """Return the losses of fits, (fits, 5), at sizes and tokens that broadcast with (fits,)."""
    e, a, b, alpha, beta = fits.T
    values: Array = e + a * parameters**-alpha + b * tokens**-beta
    return values


def ends(values: Array) -> tuple[float, float] | None:
    """Return the percentile interval of draws; None without a finite one."""
    known = values[np.isfinite(values)]
    if not len(known):
        return None
    low, high = np.quantile(known, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return float(low), float(high)


def per_token(flops_per_token: FlopsPerToken, sizes: Array) -> Array:
    """Return the training FLOPs per token of sizes, (...,)."""
    if flops_per_token is None:
        six: Array = 6.0 * sizes
        return six
    if callable(flops_per_token):
        each: Array = np.vectorize(flops_per_token, otypes=[float])(sizes)
        return each
    x, y = np.log(np.array(sorted(flops_per_token), float)).T
    if len(x) < 2:
        raise UserError("flops_per_token: needs two pairs of parameters and FLOPs at least")
    slopes = np.diff(y) / np.diff(x)
    u = np.log(sizes)
    inside = np.interp(u, x, y)
    below, above = np.minimum(u - x[0], 0) * slopes[0], np.maximum(u - x[-1], 0) * slopes[-1]
    values: Array = np.exp(inside + below + above)
    return values


def best_sizes(fits: Array, flops: float, flops_per_token: FlopsPerToken = None) -> Array:
    """Return the parameters of the lowest loss for a budget, of each fit, (fits,)."""
    _, a, b, alpha, beta = fits.T
    # Exact where a token costs six FLOPs for each parameter; else the start of a search.
    with np.errstate(all="ignore"):
        exact: Array = (alpha * a / (beta * b)) ** (1 / (alpha + beta)) * (flops / 6) ** (
            beta / (alpha + beta)
        )
    if flops_per_token is None:
        return exact
    found = np.full(len(fits), np.nan)
    for row in np.flatnonzero(np.isfinite(exact) & (exact > 0)):
        span = WIDE
        centre = math.log(exact[row])
        for _ in range(3):  # each time around the last best size, on a finer grid
            places = centre + math.log(span) * np.linspace(-1, 1, PLACES // 10)
            sizes = np.exp(places)
            tokens = flops / per_token(flops_per_token, sizes)
            centre = float(places[np.argmin(losses(fits[row : row + 1], sizes, tokens))])
            span = math.exp(2 * math.log(span) / (PLACES // 10) * 2)
        found[row] = math.exp(centre)
    return found
