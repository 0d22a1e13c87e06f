"""From a job, with one learning rate or several to try, to a tuned model and its scores on disk."""

from __future__ import annotations

import math
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any

from foreword.disk import atomic, stored
from foreword.errors import TrainingStoppedError, UserError
from foreword.runs.provenance import command
from foreword.runs.stages import ProgressReporter
from foreword.runs.tracking import Tracking, closing
from foreword.runs.trained_model import TrainedModel
from foreword.settings import config
from foreword.tables.examples import Labelled, LabelledTexts
from foreword.trackers._contract import Tracker
from foreword.tuning.bag_of_words import bags_of_words
from foreword.tuning.drawing import draw, hold_out
from foreword.tuning.job import TuneJob
from foreword.tuning.scores import MeanScore, Scores, as_gain, metric_name
from foreword.tuning.settings import TuneSettings
from foreword.tuning.tasks._contract import Task
from foreword.tuning.trainings import Listeners, ReportProgress
from foreword.tuning.tune import tune
from foreword.tuning.tune_result import TuneResult, as_json, save_network, with_words

SHARE = 0.1  # of the training examples, held out to choose a learning rate on
MOST, FEWEST = 5_000, 10  # examples held out


def tune_and_save(
    trained: TrainedModel, job: TuneJob, display: ProgressReporter, trackers: Sequence[Tracker] = ()
) -> tuple[TuneResult, dict[str, Any]]:
    """Fine-tune, and write the tuned model and its scores.

    Args:
        trackers: receive the scores of each epoch.

    Returns:
        The result, and the scores as they are written.
    """
    assert job.folder is not None and job.evaluation is not None and job.seeds_folder is not None
    examples, first, request = job.examples, job.variants[0], job.request(trained)
    warn = lru_cache(display.warn)  # once, however many rates are tried
    with atomic.guarded(trained.run):
        above = next(one for one in job.evaluation.parents if one.name == "evaluations")
        name = "-".join(job.evaluation.relative_to(above).with_suffix("").parts)
        about = {"task": config.kind_table(job.task), **config.to_table(first)}
        place = above.parent / "tracking" / name
        tracking = Tracking(place, name, display.warn, lambda: about)
        with closing(tracking, trackers):
            if len(job.rates) > 1:

                def trial(job: TuneJob, report: ReportProgress) -> TuneResult:
                    return tune(trained, job, Listeners(report, warn=warn))

                result = tune_at_best_rate(job, trial, display.stage)
            else:
                listeners = Listeners(
                    display.stage("tuning"), lambda scores: tracking.record(_record(scores)), warn
                )
                result = tune(trained, job, listeners)
        if result.resumed:
            seeds = "1 seed was" if result.resumed == 1 else f"{result.resumed} seeds were"
            display.note(f"{seeds} trained by an earlier call")
        if job.has_words and len(job.variants) == 1 and job.task.judge.has_classes:
            drawn = draw(examples.train, first.examples, first.seeds, job.task)
            words = bags_of_words(job.task, drawn, examples.dev, examples.extra)
            result = with_words(result, words)
        settings = dict(result.settings) | {"data": dict(examples.about or {})}
        if trained.tuned_head is not None:
            settings["tuned_from"] = str(trained.folder)
        result = replace(result, settings=settings, notes=(*result.notes, *examples.notes))
        content = as_json(result, job.name, command()) | {"request": request}
        save_network(result, job.folder, examples.tuned_on, content)
        stored.write(job.evaluation, content)
        shutil.rmtree(job.seeds_folder, ignore_errors=True)
    return result, content


def _record(scores: Scores) -> dict[str, Any]:
    """Return the scores of an epoch as a record for trackers, its step the epoch."""
    row = scores.as_row()
    kind = f"{scores.start}, {scores.strategy}, seed {row.pop('seed')}"
    return {"kind": kind, "step": row.pop("epoch"), **row}


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
    trial, trial_settings = job, settings
    if not on_dev:
        train, dev = _split(job.examples.train, settings, job.task)
        trial = replace(job, examples=replace(job.examples, train=train, dev=dev, extra={}))
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
    further, notes = {"rate": choice, **result.further}, (*result.notes, _note_of(choice))
    return replace(result, further=further, notes=notes)


def _note_of(choice: Mapping[str, Any]) -> str:
    """Return what a reader of the scores has to know of the choice, in a line."""
    tried = ", ".join(
        f"{trial['lr']:.2g} ({'diverged' if (s := trial['score']) is None else MeanScore(s)})"
        for trial in choice["trials"]
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
