"""Learning rates to choose from: each is tried, and the best trains all seeds."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from foreword.errors import TrainingStoppedError, UserError
from foreword.settings import config
from foreword.tables.examples import Labelled, LabelledTexts
from foreword.tuning.drawing import draw, hold_out
from foreword.tuning.job import TuneJob
from foreword.tuning.result import TuneResult
from foreword.tuning.scores import MeanScore, as_gain, metric_name
from foreword.tuning.seeds import ReportProgress
from foreword.tuning.settings import TuneSettings
from foreword.tuning.tasks._contract import Task

SHARE = 0.1  # of the training examples, held out to choose on
MOST, FEWEST = 5_000, 10  # examples held out


def tune_at_best_rate(
    job: TuneJob,
    tune: Callable[[TuneJob, ReportProgress], TuneResult],
    stage: Callable[[str], ReportProgress],
) -> TuneResult:
    """Try each rate, and return the result of the best with how it was chosen.

    On `train`, each rate trains one seed on the training examples (those of seed 1, if they are
    drawn) but for a part, which scores it; the best then trains all seeds on all of them. On `dev`,
    each rate trains all seeds, and the best mean wins.

    Raises:
        UserError: there are too few training examples to hold some out.
        TrainingStoppedError: training diverged at every rate.
    """
    on_dev, settings = job.chosen_on == "dev", job.variants[0]
    trial = job
    if not on_dev:
        train, dev = _split(job.examples.train, settings, job.task)
        examples = replace(job.examples, train=train, dev=dev, extra={})
        trial = replace(job, examples=examples)
    trial_settings = settings
    if not on_dev:
        trial_settings = replace(settings, seeds=1, examples=None, folds=None, calibrate=False)
    # Try each rate.
    results: list[TuneResult | None] = []
    for number, rate in enumerate(job.rates, 1):
        report = stage(f"learning rate {rate:.2g}, {number} of {len(job.rates)}")
        try:
            results.append(tune(trial.with_settings(_with_rate(trial_settings, rate)), report))
        except TrainingStoppedError:
            results.append(None)
    # Choose; of equal ones the first.
    known = [result for result in results if result is not None]
    if not known:
        raise TrainingStoppedError(
            f"fine-tuning diverged at every learning rate: "
            f"{', '.join(f'{rate:.2g}' for rate in job.rates)}; try lower ones"
        )
    metric = known[0].rows[0].chosen_metric(settings.metric)
    scores = [None if result is None else result.rows[0][metric] for result in results]
    gains = [-math.inf if score is None else as_gain(metric, score, job.task) for score in scores]
    best = next(
        n for n, candidate in enumerate(results) if candidate is not None and gains[n] == max(gains)
    )
    choice = {
        "chosen": job.rates[best],
        "on": job.chosen_on,
        "metric": metric,
        "held_out": 0 if on_dev else len(trial.examples.dev),
        "trials": [{"lr": r, "score": s} for r, s in zip(job.rates, scores, strict=True)],
    }
    result = results[best]
    if not on_dev or result is None:
        result = tune(job.with_settings(_with_rate(settings, job.rates[best])), stage("tuning"))
    return replace(result, rate=choice, notes=(*result.notes, _note_of(choice)))


def _note_of(choice: Mapping[str, Any]) -> str:
    """Return what a reader of the scores has to know of the choice, in a line."""
    trials = [(trial["lr"], trial["score"]) for trial in choice["trials"]]
    tried = ", ".join(
        f"{rate:.2g} ({'diverged' if score is None else MeanScore(score)})"
        for rate, score in trials
    )
    chosen = f"learning rate {choice['chosen']:.2g} chosen by {metric_name(choice['metric'])} on"
    if choice["on"] == "dev":
        return (
            f"{chosen} the dev examples themselves, whose scores are therefore a little too high: "
            f"{tried}"
        )
    return f"{chosen} {choice['held_out']:,} training examples held out: {tried}"


def _with_rate(settings: TuneSettings, rate: float) -> TuneSettings:
    table = config.to_table(settings)
    return config.build(
        TuneSettings, table | {"strategy": table["strategy"] | {"lr": rate}}, "tune"
    )


def _split(
    train: Sequence[Labelled], settings: TuneSettings, task: Task
) -> tuple[LabelledTexts, LabelledTexts]:
    """Return the training examples to try rates on, and those to score the trials by."""
    drawn = draw(train, settings.examples, 1, task)
    examples = LabelledTexts.of(drawn.examples)
    count = min(MOST, round(SHARE * len(examples)))
    if count < FEWEST:
        raise UserError(
            f"--lr: {len(examples):,} training examples are too few to choose a learning rate on a "
            f"part of them, which needs {FEWEST / SHARE:,.0f}; give one --lr"
        )
    return hold_out(examples, count, task)
