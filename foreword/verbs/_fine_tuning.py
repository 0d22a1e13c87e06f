"""One fine-tuning, from examples in memory to a tuned model and its scores on disk."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

from foreword.disk import atomic, stored
from foreword.runs.provenance import command
from foreword.runs.stages import ProgressReporter
from foreword.runs.tracking import Tracking, closing
from foreword.runs.trained_model import TrainedModel
from foreword.settings import config, kinds
from foreword.tables.examples import Labelled
from foreword.trackers._contract import Tracker
from foreword.tuning import finished, unfinished
from foreword.tuning import result as results
from foreword.tuning import run as tuning
from foreword.tuning.bag_of_words import bags_of_words
from foreword.tuning.drawing import draw
from foreword.tuning.fine_tuner import TuneSettings
from foreword.tuning.predictor import TunedOn
from foreword.tuning.rates import Rates, tune_at_best_rate
from foreword.tuning.result import TuneResult
from foreword.tuning.tasks._contract import Task


@dataclass(frozen=True, kw_only=True)
class FineTuning:
    """What one fine-tuning learns from, how, and where its results go.

    Attributes:
        task: the task.
        variants: settings of fine-tuning, one or several to compare.
        train: examples to train on.
        dev: examples to score on.
        tuned_on: the form of the training examples.
        data: where the examples came from, as the settings of the scores record it.
        name: name of the results.
        evaluation: file of the scores.
        folder: folder of the tuned model.
        skipped: number of rows without text or label.
        further: more examples to score when training has ended, by name.
        rates: learning rates to choose from.
        has_words: whether a bag of words stands beside a single variant too.
        warnings: what is shown before the work, a line each.
        notes: what a reader of the scores has to know of the examples, a line each.
    """

    task: Task
    variants: Sequence[TuneSettings]
    train: Sequence[Labelled]
    dev: Sequence[Labelled]
    tuned_on: TunedOn
    data: Mapping[str, Any]
    name: str
    evaluation: Path
    folder: Path
    skipped: int = 0
    further: Mapping[str, Sequence[Labelled]] = field(default_factory=dict)
    rates: Rates = field(default_factory=Rates)
    has_words: bool = False
    warnings: Sequence[str] = ()
    notes: Sequence[str] = ()

    def request(self, trained: TrainedModel) -> str:
        """Return a digest of all that decides the result."""
        tables: list[Mapping[str, Any]] = [config.to_table(variant) for variant in self.variants]
        if len(self.rates.values) > 1:
            tables.append(config.to_table(self.rates))
        if self.further or self.has_words:
            tables.append({"further": list(self.further), "has_words": self.has_words})
        examples = (self.train, self.dev, *self.further.values())
        return finished.request_digest(trained, self.task, tables, examples)


def find(trained: TrainedModel, job: FineTuning) -> dict[str, Any] | None:
    """Return the scores if the same fine-tuning is done already; None if it can begin.

    Raises:
        UserError: another result is there, which is not overwritten.
    """
    place = job.folder, job.evaluation
    done = finished.find(*place, job.name, job.request(trained))
    if done is None:
        results.require_free(job.evaluation, job.folder)
    return done


def fine_tune(
    trained: TrainedModel,
    job: FineTuning,
    display: ProgressReporter,
    trackers: Sequence[Tracker] = (),
) -> tuple[TuneResult, dict[str, Any]]:
    """Fine-tune, and write the tuned model and its scores.

    Args:
        trained: the pretrained model.
        job: what to fine-tune, and where its results go.
        display: shows the progress.
        trackers: receive the scores of each epoch.

    Returns:
        The result, and the scores as they are written.
    """
    seeds_folder, request = unfinished.folder_for(job.folder), job.request(trained)
    with atomic.guarded(trained.run):
        tracking = _tracking(trained, job, display)
        with closing(tracking, trackers):
            warn = lru_cache(display.warn)  # once, however many rates are tried
            tune = partial(tuning.tune, unfinished=seeds_folder, warn=warn)
            parts = trained, job.task, job.train, job.dev
            choice = None
            if len(job.rates.values) > 1:
                result, choice = tune_at_best_rate(
                    tune, *parts, job.variants[0], job.rates, display.stage, job.further
                )
            else:
                result = tune(
                    *parts, job.variants, display.stage("tuning"),
                    lambda row: tracking.record(_record(row)), further=job.further,
                )  # fmt: skip
        if result.resumed:
            seeds = "1 seed was" if result.resumed == 1 else f"{result.resumed} seeds were"
            display.note(f"{seeds} trained by an earlier call")
        if job.has_words and len(job.variants) == 1 and job.task.has_classes:
            result = _with_words(result, job)
        result = replace(
            result,
            examples=result.examples | {"skipped": job.skipped},
            settings=result.settings
            | {"data": dict(job.data)}
            | ({} if trained.tuned_head is None else {"tuned_from": str(trained.folder)}),
            notes=(*result.notes, *([] if choice is None else [choice.note()]), *job.notes),
        )
        content = results.as_json(result, job.name, command())
        content |= {"request": request}
        content |= {} if choice is None else {"rate": choice.as_json()}
        results.save_network(result, job.folder, job.tuned_on, content)
        stored.write(job.evaluation, content)
        unfinished.remove(seeds_folder)
    return result, content


def _tracking(trained: TrainedModel, job: FineTuning, display: ProgressReporter) -> Tracking:
    task = {"kind": kinds.name_of(job.task), **config.to_table(job.task)}
    settings = {"task": task, **config.to_table(job.variants[0])}
    file = job.evaluation.relative_to(trained.run / "evaluations").with_suffix("")
    name = "-".join(file.parts)
    return Tracking(trained.run / "tracking" / name, name, display.warn, lambda: settings)


def _with_words(result: TuneResult, job: FineTuning) -> TuneResult:
    first = job.variants[0]
    drawn = draw(job.train, first.examples, first.seeds, job.task)
    return results.with_words(result, bags_of_words(job.task, drawn, job.dev, job.further))


def _record(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return the scores of an epoch as a record for trackers, its step the epoch."""
    kind = f"{row['start']}, {row['strategy']}, seed {row['seed']}"
    numbers = {name: v for name, v in row.items() if name not in ("seed", "epoch")}
    return {"kind": kind, "step": row["epoch"], **numbers}
