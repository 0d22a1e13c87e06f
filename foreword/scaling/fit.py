"""Three fits of one table side by side, with intervals over runs, and what is wrong with each."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np

from foreword.errors import UserError
from foreword.formatting import power, quantity
from foreword.scaling.law import KEPT, Law, best_sizes, ends, losses, per_token
from foreword.scaling.optima import Envelope, Minimum, PowerLaw, law_of_minima, minima
from foreword.scaling.repeated import MOST_RESAMPLES, RepeatedFit, fit_repeated
from foreword.scaling.runs import ONCE, TOGETHER, Runs
from foreword.scaling.scores import ScoreFit, fit_scores
from foreword.scaling.surface import KEPT_STARTS, NAMES, Criterion, Surface
from foreword.types import Array

RESAMPLES, SEED = 1_000, 1
FEWEST_RUNS = 8  # of a direct fit, which has five values
LARGEST_EXPONENT = 1.5
LEAST_E = 1e-3  # of the lowest loss, below which E counts as lying at its bound, 0
WORST_CONDITION = 1e4
FAR = 3.0  # times the seed noise, from which residuals are said to be far above it
NOTED_BIAS = 0.01  # of the optimal tokens, from which a parabola's is said
MANY_LOST = 0.1  # of the resampled tables, from which those without a law are said
TOO_WIDE = 4.0  # times the low end of optimal tokens, from which their high end is no forecast
AHEAD = 10.0  # times the largest budget fitted, at which that is asked
TABLES = 50  # resampled ones that are fitted at once
METHODS = ("direct", "isoflop", "akima", "envelope")

Interval = tuple[float, float] | None
Stage = Callable[[str], Callable[..., Any]]  # a stage's name -> what takes tables done, and all


@dataclass(frozen=True)
class LawFit:
    """What one method found.

    Attributes:
        law: the optimal tokens as a power of FLOPs; unknown if there is none.
        draws: exponent and log10 of the intercept for resampled tables, (tables, 2); nan without a
            law.
        refused: why there is no law, or why it is not to be used; "" if it is.
        marks: what a reader should know, a line each.
    """

    law: PowerLaw
    draws: Array = field(default_factory=lambda: np.empty((0, 2)))
    refused: str = ""
    marks: tuple[str, ...] = ()

    def tokens(self, flops: float) -> tuple[float, Interval]:
        """Return the optimal tokens of a budget, and their interval."""
        with np.errstate(over="ignore"):
            drawn = 10 ** (self.draws[:, 1] + self.draws[:, 0] * math.log10(flops))
        return self.law.tokens(flops), ends(drawn)

    def marked_if_wide(self, flops: float) -> LawFit:
        """Return it with a mark if its interval is too wide to plan a budget by."""
        _, interval = self.tokens(flops)
        if self.refused or interval is None or interval[1] <= TOO_WIDE * interval[0]:
            return self
        mark = (
            f"too wide to plan by: at {power(flops)} FLOPs, {AHEAD:g} times the largest budget "
            f"fitted, the optimal tokens lie anywhere from {quantity(interval[0])} to "
            f"{quantity(interval[1])}"
        )
        return replace(self, marks=(*self.marks, mark))

    def as_json(self) -> dict[str, Any]:
        """Return it as plain values."""
        return {
            "exponent": self.law.exponent,
            "log10_intercept": self.law.log10_intercept,
            "interval": {
                "exponent": ends(self.draws[:, 0]),
                "log10_intercept": ends(self.draws[:, 1]),
            },
            "refused": self.refused,
            "marks": self.marks,
        }


@dataclass(frozen=True)
class ForecastRun:
    """A run of the largest budget, which no fit has seen.

    Attributes:
        item: its number in the runs.
        forecast: of its loss, by the direct fit.
        low: lower end of the forecast's interval, of the fit and, if it is known, the seed.
        high: its upper end.
    """

    item: int
    forecast: float
    low: float
    high: float


@dataclass(frozen=True)
class FamilyFit:
    """The laws of a family.

    Attributes:
        runs: all of them.
        counted: the parameters that count: "all" or "without embeddings".
        fitted: whether the three methods read each run, (runs,): none of the largest budget, and
            none that read its text again.
        values: E, A, B, alpha, beta of the direct fit, (5,).
        resampled: those of the resampled tables, (tables, 5).
        intervals: of each of the five values.
        condition: of the direct fit.
        methods: what each method found, by name (`METHODS`).
        minima: of each fitted budget.
        held_out: forecasts of the largest budget.
        seed_noise: standard deviation of the loss between seeds; None if unknown.
        notes: what a reader should know besides the marks.
        repeated: laws of text read several times, by name; none without such runs.
        score: a task's score as a function of the loss; None without scores.
    """

    runs: Runs
    counted: str
    fitted: Array
    values: Array
    resampled: Array
    intervals: dict[str, Interval]
    condition: float
    methods: dict[str, LawFit]
    minima: tuple[Minimum, ...]
    held_out: tuple[ForecastRun, ...]
    seed_noise: float | None
    notes: tuple[str, ...]
    repeated: dict[str, RepeatedFit]
    score: ScoreFit | None = None

    @property
    def name(self) -> str:
        """The family, and which parameters count if not all."""
        family = self.runs.family or "all runs"
        return family if self.counted == "all" else f"{family}, {self.counted}"

    @property
    def flops_per_token(self) -> list[tuple[float, float]] | None:
        """Pairs of parameters and FLOPs per token; None where these are six for each parameter."""
        pairs = self.runs.flops_per_token()
        return (
            None if pairs is None else [(float(n), float(c)) for n, c in zip(*pairs, strict=True)]
        )

    @cached_property
    def predicted(self) -> Array:
        """The loss of each run by the direct fit, (runs,)."""
        return losses(self.values[None], self.runs.parameters, self.runs.tokens)

    @property
    def residuals(self) -> Array:
        """The log of each loss over the direct fit's, (runs,)."""
        return np.asarray(np.log(self.runs.loss / self.predicted))

    def law(self, unit: str = "", text: str = "", machine: str = "") -> Law | None:
        """Return the direct fit as a law to keep; None if it was refused.

        Args:
            unit: of the loss; "" for that of the table, or nats per token.
            text: that was trained on.
            machine: that trained.
        """
        if self.methods["direct"].refused:
            return None
        step = max(1, len(self.resampled) // KEPT)
        kept = self.resampled[::step][:KEPT]
        flops = self.runs.flops[self.fitted]
        return Law.of(
            self.runs.family or "all",
            self.values,
            kept,
            seed_noise=self.seed_noise,
            unit=unit or self.runs.unit or "nats per token",
            parameters=self.counted,
            smallest_flops=float(flops.min()),
            largest_flops=float(flops.max()),
            vocabulary=self.runs.vocabulary,
            text=text,
            machine=machine,
            marks=self.methods["direct"].marks,
        )

    def as_json(self) -> dict[str, Any]:
        """Return everything but the runs as plain values."""
        found: dict[str, Any] = {name: fit.as_json() for name, fit in self.methods.items()}
        values = {name: float(v) for name, v in zip(NAMES, self.values, strict=True)}
        found["direct"] |= values | {
            "interval": found["direct"]["interval"] | self.intervals,
            "condition": self.condition,
        }
        return {
            **found,
            "parameters": self.counted,
            "runs": len(self.runs.loss),
            "runs_fitted": int(self.fitted.sum()),
            "flops_fitted": [float(f(self.runs.flops[self.fitted])) for f in (np.min, np.max)],
            "seed_noise": self.seed_noise,
            "minima": [
                {"flops": m.flops, "parabola": m.parabola, "akima": m.akima, "mark": m.mark}
                for m in self.minima
            ],
            "held_out": [
                {
                    "parameters": float(self.runs.parameters[h.item]),
                    "tokens": float(self.runs.tokens[h.item]),
                    "flops": float(self.runs.flops[h.item]),
                    "loss": float(self.runs.loss[h.item]),
                    "forecast": h.forecast,
                    "interval": [h.low, h.high],
                    "error": h.forecast - float(self.runs.loss[h.item]),
                }
                for h in self.held_out
            ],
            "notes": self.notes,
            "repeated": {name: form.as_json() for name, form in self.repeated.items()},
            "score": self.score and self.score.as_json(),
        }


def fit_runs(
    runs: Runs,
    criterion: Criterion = "huber",
    resamples: int = RESAMPLES,
    stage: Stage = lambda name: lambda done, total: None,
) -> list[FamilyFit]:
    """Return the laws of a family, and those of its parameters without embeddings if it has them.

    Args:
        runs: the runs of one family.
        criterion: of the direct fit: Huber's loss of the log loss, or the squares of the loss.
        resamples: number of resampled tables, for the intervals.
        stage: is told of the progress.
    """
    fits = [_fit(runs, "all", criterion, resamples, stage)]
    if (without := runs.counted_without_embeddings()) is not None:
        fits.append(_fit(without, "without embeddings", criterion, resamples, stage))
    return fits


def _fit(runs: Runs, counted: str, criterion: Criterion, resamples: int, stage: Stage) -> FamilyFit:
    # The three methods know nothing of text read again; they forecast the largest budget.
    is_once = runs.epochs <= ONCE
    _require_several(runs.where(is_once), len(is_once))
    fitted = is_once & _below_largest(runs, is_once)
    seen = runs.where(fitted)
    budgets = seen.budgets()
    draws = _draws(seen, budgets, resamples)

    # Fit the table and the resampled ones.
    surface = Surface.of(seen.parameters, seen.tokens, seen.loss, criterion)
    advance = stage("direct fit")
    ended, objective = surface.descents(np.ones((1, len(seen.loss))))
    best = np.argsort(objective[0])[:KEPT_STARTS]
    values = surface.in_plain_units(ended[0, best])[0]
    condition = surface.condition(ended[0, best[0]])
    parts = []
    for first in range(0, resamples, TABLES):
        advance(first, resamples)
        parts.append(surface.fit(draws[first : first + TABLES], ended[0, best, 3:])[0])
    resampled = np.concatenate(parts)
    noise = runs.seed_noise()
    intervals = dict(zip(NAMES, (ends(column) for column in resampled.T), strict=True))

    # The optimal tokens by each method.
    found = minima(seen.flops, seen.tokens, seen.loss, budgets)
    methods = {
        "direct": _direct(seen, values, resampled, condition, noise),
        **_isoflop(seen, budgets, found, draws, stage("isoFLOP minima")),
        "envelope": _envelope(seen, draws),
    }
    ahead = AHEAD * float(seen.flops.max())
    family = FamilyFit(
        runs,
        counted,
        fitted,
        values,
        resampled,
        intervals,
        condition,
        {name: method.marked_if_wide(ahead) for name, method in methods.items()},
        tuple(found),
        _held_out(runs, is_once & ~fitted, values, resampled, noise),
        noise,
        (),
        {},
    )

    # Text read several times.
    again = int((~is_once).sum())
    notes, said = [*runs.notes], ""
    repeated: dict[str, RepeatedFit] = {}
    if again:
        notes.append(
            f"left out of the direct fit, the isoFLOP minima and the envelope: {again} of "
            f"{len(is_once)} runs that read their text more than {ONCE} times"
        )
        below = _below_largest(runs)
        several = runs.where(below)
        drawn = _draws(several, several.budgets(), min(resamples, MOST_RESAMPLES))
        repeated, said = fit_repeated(runs, below, drawn, stage("laws of repeated text"))
    score, unscored = fit_scores(runs, fitted, resampled, draws)
    notes += [*filter(None, (said, unscored)), *_notes(family, budgets)]
    return replace(family, notes=tuple(notes), repeated=repeated, score=score)


def _require_several(runs: Runs, count: int) -> None:
    """Check that runs that read their text once have several sizes and budgets.

    Raises:
        UserError: they have not.
    """
    if not len(runs.loss):
        raise UserError(f"{runs.where_read}no run read its text at most {ONCE} times")
    once = "" if len(runs.loss) == count else f" in runs that read their text {ONCE} times at most"
    if len(sizes := np.unique(runs.parameters)) < 2:
        size = f"one size, {sizes[0]:g} parameters"
        raise UserError(f"{runs.where_read}{size}{once}; a law needs several")
    if runs.flops.max() <= TOGETHER * runs.flops.min():
        budget = f"one budget, {runs.flops[0]:.3g} FLOPs"
        raise UserError(f"{runs.where_read}{budget}{once}; a law needs several")


def _below_largest(runs: Runs, chosen: Array | None = None) -> Array:
    """Return which runs are below the largest budget of those chosen, (runs,).

    All are if fewer than two budgets would be left to fit.
    """
    of = np.arange(len(runs.loss)) if chosen is None else np.flatnonzero(chosen)
    groups = runs.where(of).budgets()
    least = runs.flops[of[groups[-1]]].min() if len(groups) > 2 else np.inf
    return np.asarray(runs.flops < least)


def _draws(runs: Runs, budgets: Sequence[Array], resamples: int) -> Array:
    """Return how often each resampled table holds each measurement, (tables, measurements).

    Whole runs are drawn, with all their checkpoints; of a budget as many as it has.
    """
    rng = np.random.default_rng(SEED)
    _, run = np.unique(runs.run, return_inverse=True)
    stratum = np.zeros(run.max() + 1, int)
    for number, group in enumerate(budgets, 1):
        stratum[run[group]] = number
    counts = np.zeros((resamples, len(stratum)), int)
    for number in np.unique(stratum):
        members = np.flatnonzero(stratum == number)
        share = np.full(len(members), 1 / len(members))
        counts[:, members] = rng.multinomial(len(members), share, size=resamples)
    return counts[:, run]


def _direct(
    runs: Runs, values: Array, resampled: Array, condition: float, noise: float | None
) -> LawFit:
    """Return the optimal tokens by the direct fit, and what is wrong with it."""
    named = dict(zip(NAMES, values, strict=True))
    refused = ""
    if len(runs.loss) < FEWEST_RUNS:
        refused = f"{len(runs.loss)} runs are too few for five values; at least {FEWEST_RUNS}"
    for name, amount in (("alpha", "parameters"), ("beta", "tokens")):
        if named[name] <= 0.002:
            why = f"{name} lies at its bound, 0: the loss does not fall as a power of the {amount}"
            refused = refused or why
        elif named[name] >= LARGEST_EXPONENT:
            refused = refused or f"{name} is {named[name]:.3g}, outside 0 to {LARGEST_EXPONENT}"
    if condition > WORST_CONDITION:
        refused = refused or (
            f"the condition is {condition:.1e}: sizes and tokens grow together, so the runs do not "
            "tell their parts apart"
        )
    lowest = float(runs.loss.min())
    if not LEAST_E * lowest < named["E"] <= lowest:
        bound = "0" if named["E"] < lowest else "above the lowest loss"
        refused = refused or f"E lies at its bound, {bound}: the runs do not show a floor"
    marks = []
    if (floor := ends(resampled[:, 0])) and not refused and floor[0] <= LEAST_E * lowest:
        marks.append("the interval of E reaches 0: the runs hardly show a floor")
    for number, name in ((3, "alpha"), (4, "beta")):
        interval = ends(resampled[:, number])
        if interval and not refused and interval[1] > LARGEST_EXPONENT:
            marks.append(f"the interval of {name} reaches {interval[1]:.2f}: hardly determined")
    predicted = losses(values[None], runs.parameters, runs.tokens)
    spread = float(np.sqrt(np.mean((runs.loss - predicted) ** 2)))
    if noise is not None and spread > FAR * noise:
        marks.append(
            f"residuals of {spread:.2g} are far above the seed noise of {noise:.2g}: the form does "
            "not fit these runs, or some were trained differently"
        )
    # The law between the smallest and the largest budget, of each fit.
    pairs = runs.flops_per_token()
    rule = None if pairs is None else list(zip(*pairs, strict=True))
    budgets = np.array([runs.flops.min(), runs.flops.max()])
    fits = np.concatenate([values[None], resampled])
    sizes = np.stack([best_sizes(fits, c, rule) for c in budgets])
    with np.errstate(all="ignore"):
        tokens = np.log10(budgets[:, None] / per_token(rule, sizes))
        slopes = (tokens[1] - tokens[0]) / np.log10(budgets[1] / budgets[0])
        levels = tokens[0] - slopes * np.log10(budgets[0])
    law = PowerLaw(float(slopes[0]), float(levels[0]))
    return LawFit(law, np.stack([slopes, levels], 1)[1:], refused, tuple(marks))


def _isoflop(
    runs: Runs,
    budgets: Sequence[Array],
    found: Sequence[Minimum],
    draws: Array,
    advance: Callable[..., Any],
) -> dict[str, LawFit]:
    """Return the laws through the minima of parabolas and of Akima's interpolation."""
    if not budgets:
        why = (
            "isoFLOP minima need budgets: runs of at least three sizes within 5 % of the same "
            "FLOPs, at several FLOPs"
        )
        return {name: LawFit(PowerLaw(), refused=why) for name in ("isoflop", "akima")}
    resampled = []
    for number, draw in enumerate(draws):
        advance(number, len(draws))
        resampled.append(minima(runs.flops, runs.tokens, runs.loss, budgets, draw))
    fits = {}
    for name, method in (("isoflop", "parabola"), ("akima", "akima")):
        law = law_of_minima(found, method)
        marks = [
            f"{', '.join(power(m.flops) for m in found if m.mark == mark)} FLOPs: {mark}"
            for mark in dict.fromkeys(m.mark for m in found if m.mark)
        ]
        if math.isnan(law.exponent):
            refused = f"fewer than two budgets have a minimum: {'; '.join(marks)}"
            fits[name] = LawFit(law, refused=refused)
        else:
            laws = [law_of_minima(each, method) for each in resampled]
            fits[name] = _with_draws(law, laws, marks)
    return fits


def _envelope(runs: Runs, draws: Array) -> LawFit:
    """Return the law through the runs on the lower envelope."""
    envelope = Envelope.of(runs.flops)

    def through(drawn: Array | None) -> PowerLaw:
        on_it = envelope.items(runs.loss, drawn)
        return PowerLaw.through(runs.flops[on_it], runs.tokens[on_it])

    law = through(None)
    if math.isnan(law.exponent):
        return LawFit(law, refused="one run alone is on the envelope: no later one is better")
    count = len(envelope.items(runs.loss))
    if count == len(runs.loss):
        why = "all runs are on the envelope: at no FLOPs was one size better than another"
        return LawFit(law, refused=why)
    marks = [f"{count} runs lie on the envelope"] if count < 5 else []
    return _with_draws(law, [through(draw > 0) for draw in draws], marks)


def _with_draws(law: PowerLaw, laws: Sequence[PowerLaw], marks: Sequence[str]) -> LawFit:
    """Return a law with those of the resampled tables."""
    draws = np.array([[each.exponent, each.log10_intercept] for each in laws])
    lost = float(np.isnan(draws[:, 0]).mean())
    if lost > MANY_LOST:
        text = f"{lost:.0%} of the resampled tables have no law; the interval is of the others"
        marks = [*marks, text]
    return LawFit(law, draws, marks=tuple(marks))


def _held_out(
    runs: Runs, unseen: Array, values: Array, resampled: Array, noise: float | None
) -> tuple[ForecastRun, ...]:
    """Return the forecasts of the runs that were not fitted."""
    if values.min() <= 0:
        return ()
    law = Law.of("", values, resampled, seed_noise=noise)
    found = []
    for item in np.flatnonzero(unseen):
        forecast = law.forecast(float(runs.parameters[item]), float(runs.tokens[item]))
        found.append(ForecastRun(int(item), forecast.value, *forecast.interval))
    return tuple(found)


def isoflop_bias(fit: FamilyFit, budgets: Sequence[Array]) -> float:
    """Return by which share parabolas miss the optimal tokens of the direct fit without noise.

    The direct fit's own losses at the sizes tried are given to the parabolas; the share is that at
    the largest budget fitted.
    """
    runs = fit.runs.where(fit.fitted)
    exact = losses(fit.values[None], runs.parameters, runs.tokens)
    found = minima(runs.flops, runs.tokens, exact, budgets)
    law, flops = law_of_minima(found, "parabola"), float(runs.flops.max())
    return law.tokens(flops) / fit.methods["direct"].law.tokens(flops) - 1


def _notes(fit: FamilyFit, budgets: Sequence[Array]) -> list[str]:
    """Return what a reader should know of the fits together."""
    notes = []
    direct = fit.methods["direct"]
    if budgets and not direct.refused:
        bias = isoflop_bias(fit, budgets)
        if abs(bias) > NOTED_BIAS:
            few = "few" if bias < 0 else "many"
            notes.append(
                f"parabolas at these sizes find {abs(bias):.0%} too {few} tokens at "
                f"{power(float(fit.runs.flops[fit.fitted].max()))} FLOPs even without noise, since "
                "the loss is not symmetric around its minimum: trust the direct fit"
            )
    if fit.seed_noise is None:
        notes.append("seed noise is unknown: no size and budget has three seeds")
    if fit.held_out and not direct.refused:
        inside = [h.low <= fit.runs.loss[h.item] <= h.high for h in fit.held_out]
        errors = [h.forecast / fit.runs.loss[h.item] - 1 for h in fit.held_out]
        flops = power(float(fit.runs.flops[fit.held_out[0].item]))
        notes.append(
            f"the largest budget, {flops} FLOPs, was not fitted: its losses are forecast with an "
            f"error of {100 * float(np.sqrt(np.mean(np.square(errors)))):.2f} %, and {sum(inside)} "
            f"of {len(inside)} lie in their 95 % intervals"
            + ("" if fit.seed_noise else ", which leave out the noise of seeds")
        )
    elif (fit.fitted | (fit.runs.epochs > ONCE)).all():
        notes.append("nothing was held out: that needs three budgets, of runs of several sizes")
    return notes
