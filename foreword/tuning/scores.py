"""Scores of fine-tuning: of an epoch, and their means over seeds, in memory and as rows of JSON."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from foreword.errors import UserError
from foreword.formatting import at_most
from foreword.settings import kinds, plugins
from foreword.tuning.tasks._contract import BOUND, Task

WHY_UNDEFINED = "since all predictions or all labels are equal"  # of a correlation
CHANGE = ("distance", "curvature")  # of the weights, with `TuneSettings.measures_change`
STD = "_std"  # ends the name of a deviation in a row
LAYER = "layer_"  # begins the names of learned weights of layers in a row
# What a row has besides its scores, of a variant and of an epoch.
ABOUT = (
    "seeds", "epochs", "lr", "trained_parameters", "skipped_steps", "diverged", "kept_epoch",
    "seed", "epoch", "train_loss", "is_bound",
)  # fmt: skip


class MeanScore(NamedTuple):
    """A score over seeds.

    Attributes:
        mean: the mean; nan if one is undefined, such as the correlation of a constant.
        std: the sample standard deviation; None for a single value.
    """

    mean: float
    std: float | None = None

    @classmethod
    def of(cls, values: Sequence[float]) -> MeanScore:
        """Return the score of one seed, or of several."""
        std = float(np.std(values, ddof=1)) if len(values) > 1 else None
        return cls(float(np.mean(values)), std)

    def __str__(self) -> str:
        if math.isnan(self.mean):
            return "–"
        return f"{self.mean:.3f}" if self.std is None else f"{self.mean:.3f} ± {self.std:.3f}"


@dataclass(frozen=True)
class Scores:
    """The scores of a variant over its seeds, of one epoch, or of a baseline.

    Attributes:
        start: what the network began as, or what stands in its place.
        strategy: the strategy of fine-tuning, or the name of a baseline.
        metrics: the scores on the dev examples by metric, the most telling first; then those on
            extra examples, `NAME_metric`.
        about: the other entries of a row, of `ABOUT`; empty for a baseline.
        layers: the learned weights of a scalar mix, `layer_0`, ...
    """

    start: str
    strategy: str
    metrics: Mapping[str, MeanScore]
    about: Mapping[str, Any] = field(default_factory=dict)
    layers: Mapping[str, MeanScore] = field(default_factory=dict)

    @classmethod
    def of(cls, row: Mapping[str, Any]) -> Scores:
        """Return the scores that a row of JSON holds."""
        about = {name: row[name] for name in ABOUT if name in row}
        names = [n for n in row if n not in (*about, "start", "strategy") and not n.endswith(STD)]
        scores = {
            name: MeanScore(math.nan if row[name] is None else row[name], row.get(f"{name}{STD}"))
            for name in names
        }
        return cls.parted(row["start"], row["strategy"], scores, about)

    @classmethod
    def parted(
        cls, start: str, strategy: str, scores: Mapping[str, MeanScore], about: Mapping[str, Any]
    ) -> Scores:
        """Return scores, those of layers apart by their names."""
        layers = {name: score for name, score in scores.items() if name.startswith(LAYER)}
        metrics = {name: score for name, score in scores.items() if name not in layers}
        return cls(start, strategy, metrics, about, layers)

    def as_row(self) -> dict[str, Any]:
        """Return the scores as a row of JSON; an epoch's have no deviations."""
        row: dict[str, Any] = {"start": self.start, "strategy": self.strategy, **self.about}
        for name, score in (*self.metrics.items(), *self.layers.items()):
            row[name] = score.mean
            if "epoch" not in self.about:
                row[f"{name}{STD}"] = score.std
        return row

    def __getitem__(self, metric: str) -> float:
        """Return the mean of a metric."""
        return self.metrics[metric].mean

    def shown(self, metric: str) -> str:
        """Return a score for people, marked if it is an upper bound; a dash if there is none."""
        is_bound = metric.endswith(BOUND) and "is_bound" in self.about
        return at_most(str(self.metrics.get(metric, "–")), is_bound)

    @property
    def means(self) -> dict[str, float]:
        """The mean of each metric."""
        return {name: score.mean for name, score in self.metrics.items()}

    @property
    def name(self) -> str:
        """The start and the strategy of a variant, or the name of a baseline."""
        return f"{self.start}, {self.strategy}" if "lr" in self.about else self.strategy

    def chosen_metric(self, metric: str = "") -> str:
        """Return the score that chooses: `metric`, or the first.

        Raises:
            UserError: there is no such score.
        """
        names = list(self.metrics)
        if metric and metric not in names:
            raise UserError(
                f"tune.metric: '{metric}' is not a score of this task: {', '.join(names)}"
            )
        return metric or names[0]


def means_of(scores: Sequence[Mapping[str, float]]) -> dict[str, MeanScore]:
    """Return the mean of each score."""
    return {name: MeanScore.of([one[name] for one in scores]) for name in scores[0]}


def single(start: str, strategy: str, scores: Mapping[str, float], **about: Any) -> Scores:
    """Return scores that are no means; those of layers by their names."""
    values = {name: MeanScore(score) for name, score in scores.items()}
    return Scores.parted(start, strategy, values, about)


def summarise(finals: Sequence[Scores], epochs: int | None = None) -> Scores:
    """Return the means over seeds of the kept epochs' scores.

    Seeds that diverged are counted, not averaged.

    Args:
        finals: the scores of each seed; of one that diverged none, but `about` has `diverged`.
        epochs: number of epochs, if the kept one is not the last but chosen by its score.
    """
    sound, first = [final for final in finals if "diverged" not in final.about], finals[0]
    about: dict[str, Any] = {
        "seeds": len(finals),
        "epochs": epochs or first.about["epoch"],
        "lr": first.about["lr"],
        "trained_parameters": first.about["trained_parameters"],
        "skipped_steps": sum(final.about["skipped_steps"] for final in sound),
        "diverged": len(finals) - len(sound),
    }
    if epochs is not None and sound:
        about["kept_epoch"] = float(np.mean([final.about["epoch"] for final in sound]))
    every = [{name: s.mean for name, s in {**f.metrics, **f.layers}.items()} for f in sound]
    return Scores.parted(first.start, first.strategy, means_of(every or [{}]), about)


@cache
def _shipped_lower() -> frozenset[str]:
    """Return the `lower_is_better` of all shipped tasks together."""
    folder = "tuning/tasks"
    tasks = [kinds.load(folder, name) for name in plugins.SHIPPED.kinds(folder)]
    return frozenset(name for task in tasks for name in task().judge.lower_is_better)


def is_lower_better(metric: str, task: Task | None = None) -> bool:
    """Return whether the lower one of two scores is better, as `Judge.lower_is_better` says.

    Args:
        task: the task whose score it is; where only names are known: any shipped one.
    """
    return metric in (_shipped_lower() if task is None else task.judge.lower_is_better)


def as_gain(metric: str, score: float, task: Task | None = None) -> float:
    """Return a score such that higher is better; nan is the worst. See `is_lower_better`."""
    if math.isnan(score):
        return -math.inf
    return -score if is_lower_better(metric, task) else score


def metric_name(name: str) -> str:
    """Return what people call a metric."""
    return "macro F1" if name == "f1" else name.replace("_f1", " F1").replace("_", " ")


def by_label(labels: Sequence[str], confusion: Any) -> list[dict[str, Any]]:
    """Return F1, precision and recall of each label, where a text may have several; else none.

    Args:
        confusion: as `Judge.confusion` returned it, in a file; or what is none.
    """
    rows: list[dict[str, Any]] = []
    if np.shape(confusion or ()) != (len(labels), 2, 2):
        return rows
    for label, ((_, wrong), (missed, right)) in zip(labels, confusion, strict=True):
        scores = {
            "f1": (2 * right, 2 * right + wrong + missed),
            "precision": (right, right + wrong),
            "recall": (right, right + missed),
        }
        rows.append({"label": label} | {k: a / b if b else 0.0 for k, (a, b) in scores.items()})
    return rows


def of_classes(labels: Sequence[str], confusion: Any) -> dict[str, Any]:
    """Return what a file has of classes: their confusion, and what `by_label` returns."""
    rows = by_label(labels, confusion)
    counts = {} if confusion is None else {"confusion": confusion}
    return counts | ({"by_label": rows} if rows else {})


def train_count(examples: Mapping[str, Any]) -> str:
    """Return the number of training examples in words, from the numbers of examples of a result."""
    drawn = examples.get("drawn_from")
    if not isinstance(drawn, int):
        count = examples["train"]
        return f"{count:,} training example{'s' * (count != 1)}"
    return f"{examples['train']:,} of {drawn:,} training examples, drawn for each seed"
