"""A sweep: settings with values to try before a cell's seeds, in short runs.

    [sweep]
    optimizer.lr = [3e-4, 1e-3, 3e-3]
    train.batch = [8, 32]

Each combination of values is a trial. It trains for a share of the grid's budget, with a seed that
no run of the table has, and is scored by its loss on a validation part of the training documents.
In further rounds the better half is tried again, for twice the budget: the values that are best for
a short run are not always best for a long one.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from numbers import Real
from typing import Any

from foreword.settings.ranges import MOST_TRAININGS

SEED = 0  # of trials; the seeds of pretraining are 1, 2, ...
FEWEST_ON_AN_EDGE = 3  # of two values, the best is always at an edge
# Parts of a recipe that change neither the text nor what its loss counts.
PARTS = ("model", "optimizer", "schedule", "train")
FIXED = ("steps", "epochs", "tokens", "flops", "hours", "seed")  # settings of `train`

Values = Mapping[str, Any]  # by dotted setting: {"optimizer.lr": 1e-3}


@dataclass(frozen=True)
class PlannedTrial:
    """The place of a trial in a sweep.

    Attributes:
        round: the round, from 1.
        number: the number in it, from 0: of the combinations in the first round, in the others of
            the round before, the best first.
        values: the values that it tries in the first round; None in the others, until the round
            before is done.
    """

    round: int
    number: int
    values: Values | None = None

    def __str__(self) -> str:
        if self.values is not None:
            return describe(self.values)
        return f"round {self.round}, rank {self.number + 1} of round {self.round - 1}"


@dataclass(frozen=True)
class Trial:
    """The result of one short run.

    Attributes:
        cell: name of the cell.
        values: the values tried.
        loss: nats per prediction on the validation part; None if training diverged.
        steps: number of steps.
        tokens: tokens read.
        seconds: training time.
        round: the round.
    """

    cell: str
    values: Values
    loss: float | None
    steps: int
    tokens: int
    seconds: float
    round: int = 1


def settings_of(table: Any) -> dict[str, Sequence[Any]]:
    """Return the values to try of each dotted setting.

    Raises:
        ValueError: the table is not one of settings with lists of values, or a setting would make
            losses incomparable.
    """
    settings = dict(_flatten(table, ""))
    for name, values in settings.items():
        part, _, rest = name.partition(".")
        if part not in PARTS or not rest:
            raise ValueError(
                f"sweep.{name}: cannot be swept, only settings of {', '.join(PARTS)} can: with "
                "others, losses would not be comparable"
            )
        if part == "train" and rest in FIXED:
            raise ValueError(f"sweep.{name}: is the same for all runs of a sweep")
        if len({repr(value) for value in values}) < max(2, len(values)):
            raise ValueError(f"sweep.{name}: expected two or more different values, got {values!r}")
    if (count := math.prod(map(len, settings.values()))) > MOST_TRAININGS:
        raise ValueError(
            f"sweep: {count:,} combinations of values; at most {MOST_TRAININGS:,} are trained"
        )
    return settings


def combinations(table: Any) -> list[Values]:
    """Return all combinations of the values in a table of settings; none without settings."""
    settings = settings_of(table)
    if not settings:
        return []
    return [
        dict(zip(settings, values, strict=True)) for values in itertools.product(*settings.values())
    ]


def as_table(values: Values) -> dict[str, Any]:
    """Return values as a table like a recipe."""
    table: dict[str, Any] = {}
    for name, value in values.items():
        *parts, last = name.split(".")
        below = table
        for part in parts:
            below = below.setdefault(part, {})
        below[last] = value
    return table


def describe(values: Values) -> str:
    """Return values in a few words: `lr 0.001, batch 8`."""
    short = {name: name.removesuffix(".kind").rsplit(".", 1)[-1] for name in values}
    is_clear = len(set(short.values())) == len(short)
    return ", ".join(f"{short[n] if is_clear else n} {_text(v)}" for n, v in values.items())


def ranked(trials: Sequence[Trial]) -> list[Trial]:
    """Return the trials of the last round that did not diverge, the lowest loss first."""
    last = max((trial.round for trial in trials), default=1)
    left = [trial for trial in trials if trial.round == last and trial.loss is not None]
    return sorted(left, key=_loss)


def best_of(trials: Sequence[Trial]) -> Trial | None:
    """Return the trial of the lowest loss in the last round; None if all of it diverged."""
    return next(iter(ranked(trials)), None)


def settings_at_edge(trials: Sequence[Trial]) -> list[str]:
    """Return the settings whose best value is the lowest or the highest of three or more.

    Each as `lr 0.001 (highest)`.
    """
    best = best_of(trials)
    at_edge = []
    for name, value in best.values.items() if best else ():
        tried = [trial.values[name] for trial in trials]
        if not all(isinstance(v, Real) for v in tried) or len(set(tried)) < FEWEST_ON_AN_EDGE:
            continue
        if value in (min(tried), max(tried)):
            where = "lowest" if value == min(tried) else "highest"
            at_edge.append(f"{describe({name: value})} ({where})")
    return at_edge


def _flatten(table: Any, where: str) -> list[tuple[str, Sequence[Any]]]:
    if not isinstance(table, Mapping):
        name = f"sweep.{where}".rstrip(".")
        expected = (
            "a list of values to try" if where else "a table of settings with lists of values"
        )
        raise ValueError(f"{name}: expected {expected}, got {table!r}")
    pairs: list[tuple[str, Sequence[Any]]] = []
    for key, value in table.items():
        name = f"{where}{key}"
        is_list = isinstance(value, list | tuple)
        pairs += [(name, value)] if is_list else _flatten(value, f"{name}.")
    return pairs


def _loss(trial: Trial) -> float:
    return math.inf if trial.loss is None else trial.loss


def _text(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)
