"""From a job to a tuned model and its scores on disk."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any

from foreword.disk import atomic, stored
from foreword.runs.provenance import command
from foreword.runs.stages import ProgressReporter
from foreword.runs.tracking import Tracking, closing
from foreword.runs.trained_model import TrainedModel
from foreword.settings import config, kinds
from foreword.trackers._contract import Tracker
from foreword.tuning import run
from foreword.tuning.bag_of_words import bags_of_words
from foreword.tuning.drawing import draw
from foreword.tuning.job import TuneJob
from foreword.tuning.rates import tune_at_best_rate
from foreword.tuning.result import TuneResult, as_json, save_network, with_words
from foreword.tuning.scores import Scores
from foreword.tuning.seeds import ReportProgress


def fine_tune(
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
        tracking = _tracking(job, display)
        with closing(tracking, trackers):
            if len(job.rates) > 1:

                def trial(job: TuneJob, report: ReportProgress) -> TuneResult:
                    return run.tune(trained, job, run.Listeners(report, warn=warn))

                result = tune_at_best_rate(job, trial, display.stage)
            else:
                listeners = run.Listeners(
                    display.stage("tuning"), lambda scores: tracking.record(_record(scores)), warn
                )
                result = run.tune(trained, job, listeners)
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


def _tracking(job: TuneJob, display: ProgressReporter) -> Tracking:
    assert job.evaluation is not None
    task = {"kind": kinds.name_of(job.task), **config.to_table(job.task)}
    settings = {"task": task, **config.to_table(job.variants[0])}
    folder = next(above for above in job.evaluation.parents if above.name == "evaluations")
    name = "-".join(job.evaluation.relative_to(folder).with_suffix("").parts)
    return Tracking(folder.parent / "tracking" / name, name, display.warn, lambda: settings)


def _record(scores: Scores) -> dict[str, Any]:
    """Return the scores of an epoch as a record for trackers, its step the epoch."""
    row = scores.as_row()
    kind = f"{scores.start}, {scores.strategy}, seed {row.pop('seed')}"
    return {"kind": kind, "step": row.pop("epoch"), **row}
