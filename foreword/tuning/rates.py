"""Learning rates to choose from: each is tried, and the best trains all seeds."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any, Literal

from foreword.errors import TrainingStoppedError, UserError
from foreword.runs.trained_model import TrainedModel
from foreword.settings import config
from foreword.tables.examples import Labelled, LabelledTexts
from foreword.tuning.drawing import draw, hold_out
from foreword.tuning.fine_tuner import TuneSettings
from foreword.tuning.result import TuneResult, as_gain, chosen_metric, metric_name, score_text
from foreword.tuning.seeds import ReportProgress
from foreword.tuning.tasks._contract import Task

SHARE = 0.1  # of the training examples, held out to choose on
MOST, FEWEST = 5_000, 10  # examples held out
ChosenOn = Literal["train", "dev"]


@dataclass(frozen=True)
class Rates:
    """Peak learning rates to try.

    Attributes:
        values: the rates; fewer than two leave nothing to choose.
        chosen_on: a part of `train` that these trials are not trained on, or `dev`, as papers did.
    """

    values: tuple[float, ...] = ()
    chosen_on: ChosenOn = "train"


@dataclass(frozen=True)
class RateChoice:
    """The learning rate that was chosen, and by what.

    Attributes:
        chosen: the best rate.
        on: as in `Rates`.
        metric: the score that chose.
        held_out: how many training examples were held out for the choice; 0 for `dev`.
        trials: the rates and their scores; None for one that diverged.
    """

    chosen: float
    on: ChosenOn
    metric: str
    held_out: int
    trials: tuple[tuple[float, float | None], ...]

    def note(self) -> str:
        """Return what a reader of the scores has to know, in a line."""
        tried = ", ".join(
            f"{rate:.2g} ({'diverged' if score is None else score_text(score, None)})"
            for rate, score in self.trials
        )
        name = metric_name(self.metric)
        if self.on == "dev":
            return (
                f"learning rate {self.chosen:.2g} chosen by {name} on the dev examples themselves, "
                f"whose scores are therefore a little too high: {tried}"
            )
        return (
            f"learning rate {self.chosen:.2g} chosen by {name} on {self.held_out:,} training "
            f"examples held out: {tried}"
        )

    def as_json(self) -> dict[str, Any]:
        """Return the choice as in the file of the scores."""
        trials = [{"lr": rate, "score": score} for rate, score in self.trials]
        return {**vars(self), "trials": trials}


Tune = Callable[..., TuneResult]  # `foreword.tuning.run.tune` with all but the arguments below


def tune_at_best_rate(
    tune: Tune,
    trained: TrainedModel,
    task: Task,
    train: Sequence[Labelled],
    dev: Sequence[Labelled],
    settings: TuneSettings,
    rates: Rates,
    stage: Callable[[str], ReportProgress],
    further: Mapping[str, Sequence[Labelled]] = MappingProxyType({}),
) -> tuple[TuneResult, RateChoice]:
    """Try each rate, and return the result of the best with how it was chosen.

    On `train`, each rate trains one seed on the training examples (those of seed 1, if they are
    drawn) but for a part, which scores it; the best then trains all seeds on all of them. On `dev`,
    each rate trains all seeds, and the best mean wins.

    Args:
        tune: fine-tunes and scores.
        trained: the pretrained model.
        task: the task.
        train: all training examples.
        dev: the examples to score.
        settings: all settings but the rate.
        rates: at least two.
        stage: shows a stage and returns a callback of its progress.
        further: more examples to score.

    Raises:
        UserError: there are too few training examples to hold some out.
        TrainingStoppedError: training diverged at every rate.
    """
    on_dev = rates.chosen_on == "dev"
    if on_dev:
        trial_dev, trial_settings = dev, settings
        trial_train: Sequence[Labelled] = train
    else:
        trial_train, trial_dev = _split(train, settings, task)
        trial_settings = replace(settings, seeds=1, examples=None)
    # Try each rate.
    results: list[TuneResult | None] = []
    for number, rate in enumerate(rates.values, 1):
        report = stage(f"learning rate {rate:.2g}, {number} of {len(rates.values)}")
        try:
            rate_settings = with_rate(trial_settings, rate)
            more = {"further": further} if on_dev else {}
            results.append(
                tune(trained, task, trial_train, trial_dev, rate_settings, report, **more)
            )
        except TrainingStoppedError:
            results.append(None)
    # Choose; of equal ones the first.
    known = [result for result in results if result is not None]
    if not known:
        raise TrainingStoppedError(
            f"fine-tuning diverged at every learning rate: "
            f"{', '.join(f'{rate:.2g}' for rate in rates.values)}; try lower ones"
        )
    metric = chosen_metric(known[0].rows[0], settings.metric)
    scores = [None if result is None else float(result.rows[0][metric]) for result in results]
    gains = [-math.inf if score is None else as_gain(metric, score, task) for score in scores]
    best = next(
        n for n, candidate in enumerate(results) if candidate is not None and gains[n] == max(gains)
    )
    choice = RateChoice(
        rates.values[best],
        rates.chosen_on,
        metric,
        0 if on_dev else len(trial_dev),
        tuple(zip(rates.values, scores, strict=True)),
    )
    result = results[best]
    if not on_dev or result is None:
        rate_settings = with_rate(settings, choice.chosen)
        result = tune(trained, task, train, dev, rate_settings, stage("tuning"), further=further)
    return result, choice


def with_rate(settings: TuneSettings, rate: float) -> TuneSettings:
    """Return the settings with another learning rate."""
    table = config.to_table(settings)
    return config.build(
        TuneSettings, table | {"strategy": table["strategy"] | {"lr": rate}}, "tune"
    )


def _split(
    train: Sequence[Labelled], settings: TuneSettings, task: Task
) -> tuple[LabelledTexts, LabelledTexts]:
    """Return the training examples to try rates on, and those to score the trials by.

    Raises:
        UserError: there are too few.
    """
    drawn = draw(train, settings.examples, 1, task)
    examples = LabelledTexts.of(drawn.examples)
    count = min(MOST, round(SHARE * len(examples)))
    if count < FEWEST:
        raise UserError(
            f"--lr: {len(examples):,} training examples are too few to choose a learning rate on a "
            f"part of them, which needs {FEWEST / SHARE:,.0f}; give one --lr"
        )
    return hold_out(examples, count, task)
