"""The trainings of a fine-tuning: its seeds or folds, and those that fit and save.

Probabilities, thresholds and the scores of folds are fitted on examples that were not trained on.
Holding them out of every training would take a tenth of the labels from the saved model, so one
more network is trained on the rest, and its fits are given to those trained on all.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from foreword.errors import NotFiniteError, TrainingStoppedError
from foreword.evaluation.calibration import BINS
from foreword.nn.model import neural_settings
from foreword.runs.trained_model import TrainedModel
from foreword.settings import config, kinds
from foreword.train.checkpoint import load_weights, stored_tensors
from foreword.tuning.features import Features, count_chunks, fits_in_memory
from foreword.tuning.fine_tuner import FineTuner
from foreword.tuning.finished import NOWHERE, OUTPUTS, FinishedStore
from foreword.tuning.job import TuneJob, digest_of
from foreword.tuning.network import Network
from foreword.tuning.scores import MeanScore, Scores
from foreword.tuning.seed_results import SeedResult
from foreword.tuning.settings import TuneSettings
from foreword.tuning.starting_network import adapted, build_network
from foreword.tuning.tasks._contract import Task
from foreword.tuning.tasks._writing import WritingTask
from foreword.tuning.tune_data import Draw, TuneData, count_steps
from foreword.types import Array

ReportProgress = Callable[[int, int, str], None]  # steps done, steps in all, what is running


@dataclass(frozen=True)
class Listeners:
    """Who is told of a fine-tuning as it goes.

    Attributes:
        report: called after each step with the progress.
        scored: called after each epoch of each seed with its scores.
        warn: called before training with each warning that is also among the notes.
    """

    report: ReportProgress = lambda done, total, note: None
    scored: Callable[[Scores], None] = lambda scores: None
    warn: Callable[[str], None] = lambda line: None


@dataclass(frozen=True)
class VariantResult:
    """What all trainings of a variant gave.

    Attributes:
        runs: the result of each seed or fold.
        task: the task with what was chosen and fitted, of the network that is saved.
        network: that network; None if none is.
        calibration: what was fitted, as the file of the scores holds it; None for nothing.
        extra: the scores of a network trained on all examples, after folds.
    """

    runs: list[SeedResult]
    task: Task
    network: Network | None = None
    calibration: dict[str, Any] | None = None
    extra: Mapping[str, MeanScore] = field(default_factory=dict)


@dataclass(frozen=True)
class HeldOutFit:
    """Examples that were not trained on, and the outputs for them.

    Attributes:
        outputs: (outputs, labels).
        targets: what `Task.targets` returned.
        folds: the fold of each output, (outputs,) int64.
    """

    outputs: Array
    targets: Any
    folds: Array

    @classmethod
    def of(
        cls, data: TuneData, draws: Sequence[Draw], results: Sequence[SeedResult]
    ) -> HeldOutFit | None:
        """Return those of one or more trainings; None without outputs."""
        parts = [
            (draw, result.outputs)
            for draw, result in zip(draws, results, strict=True)
            if result.outputs is not None
        ]
        if not parts:
            return None
        held = [int(n) for draw, _ in parts if draw.held is not None for n in draw.held]
        outputs = [outputs for _, outputs in parts]
        return cls(
            np.concatenate(outputs),
            data.pack([data.drawn.examples[n] for n in held]).targets,
            np.repeat(np.arange(len(parts)), list(map(len, outputs))),
        )

    def fitted(self, task: Task, but: int = -1) -> Mapping[str, Any]:
        """Return what a task's answers fit on them, but for those of one fold."""
        if not task.answers.fits:
            return {}
        others = self.folds != but
        return task.answers.fitted(self.outputs[others], self.targets[others])


def cross_fitted(
    task: Task, held: HeldOutFit, results: Sequence[SeedResult]
) -> tuple[list[SeedResult], tuple[float, float]]:
    """Return folds scored with what the other folds fit, and the calibration errors.

    Args:
        task: whose answers fit something.

    Returns:
        The results, and the expected calibration error of all outputs before and after.
    """
    scored, scaled, number = [], held.outputs.copy(), -1
    for result in results:
        if result.outputs is None:
            scored.append(result)
            continue
        number += 1
        is_in = held.folds == number
        settings = held.fitted(task, number if held.folds[-1] else -1)
        own, targets = replace(task, **settings), held.targets[is_in]
        scores = own.judge.scores(result.outputs, targets)
        final = replace(result.final, metrics={k: MeanScore(v) for k, v in scores.items()})
        correct = own.judge.correct(result.outputs, targets)
        scored.append(
            result._replace(
                final=final,
                confusion=own.judge.confusion(result.outputs, targets),
                correct=None if correct is None else correct.tolist(),
            )
        )
        scaled[is_in] /= settings.get("temperature", 1.0)
    error = task.answers.calibration_error
    return scored, (error(held.outputs, held.targets), error(scaled, held.targets))


def calibration(
    fitted: Mapping[str, Any], examples: int, errors: Sequence[float], *, on: str
) -> dict[str, Any]:
    """Return what was fitted and how it changes the error, as the file of the scores holds it.

    Args:
        examples: the number of examples that it was fitted on.
        errors: the expected calibration error before and after, on examples to score.
        on: what the first were: examples "held out", or all of them in "folds".
    """
    before, after = errors
    about = {"on": on, "examples": examples, "error_before": before, "error": after}
    return {**fitted, **about, "bins": BINS}


class Trainings:
    """Trains each draw of examples with the settings of each variant.

    Args:
        job: whose finished seeds are kept until all are done.
    """

    def __init__(
        self, trained: TrainedModel, job: TuneJob, data: TuneData, listeners: Listeners
    ) -> None:
        self.trained, self.job, self.data, self.listeners = trained, job, data, listeners
        self.resumed = 0
        model = neural_settings(trained.recipe.model)
        varies = trained.unmasks and isinstance(job.task, WritingTask)  # by the masks of an epoch
        is_read = not (varies or job.task.judge.writes)
        self._caches = is_read and fits_in_memory(model, job.task, data.train, *data.dev)
        self._total, self._done, self._of_seed = self._count_steps(), 0, 0
        self._features: dict[tuple[int, torch.dtype], Features] = {}  # of the pretrained backbone

    def _count_steps(self) -> int:
        """Return the steps of all trainings, and the chunks of features that are computed once."""
        data, variants = self.data, self.job.variants
        further = [draw for draw in (data.held_out, data.whole) if draw is not None]
        steps = sum(
            count_steps(draw, variant)
            for number, variant in enumerate(variants)
            for draw in (*data.trainings(variant), *([] if number else further))
        )
        if not self._caches:
            return steps
        frozen = [variant for variant in variants if not variant.strategy.trains_backbone]
        passes = len({variant.precision for variant in frozen if not variant.from_scratch})
        passes += sum(variant.seeds for variant in frozen if variant.from_scratch)
        return steps + passes * count_chunks(data.train, *data.dev)

    def _step_done(self, note: str) -> None:
        self._done += 1
        self._of_seed += 1
        self.listeners.report(min(self._done, self._total), self._total, note)

    def variant(
        self, task: Task, settings: TuneSettings, *, fits: bool, is_saved: bool = False
    ) -> VariantResult:
        """Train every seed or fold of a variant.

        Args:
            fits: whether the answers' settings are fitted on examples that are held out.
            is_saved: whether the first network is saved; after folds, one trained on all examples.

        Raises:
            TrainingStoppedError: no network is left to save.
        """
        data, fitted = self.data, dict[str, Any]()
        runs: list[SeedResult] = []
        held: HeldOutFit | None = None
        network: Network | None = None
        if fits and data.held_out is not None:
            once = settings  # scored at the end alone, unless the scores choose an epoch
            if settings.keep == "last":
                once = replace(settings, score_every=settings.epochs)
            result, _ = self._run(task, once, data.held_out)
            held = HeldOutFit.of(data, [data.held_out], [result])
            fitted |= held.fitted(task) if held else {}
        own = replace(task, **fitted)
        for draw in data.trainings(settings):
            keeps = is_saved and network is None and data.whole is None
            result, kept = self._run(own, settings, draw, keeps=keeps)
            runs.append(result)
            network = network or kept
        sound = next((result for result in runs if not result.has_diverged), runs[-1])
        if is_saved and sound.has_diverged:
            raise TrainingStoppedError(sound.final.about["diverged"])
        if data.whole is None:
            if held is None or sound.outputs is None:
                return VariantResult(runs, sound.task, network)
            dev, outputs = data.dev[0].targets, sound.outputs
            errors = tuple(one.answers.calibration_error(outputs, dev) for one in (task, own))
            about = calibration(fitted, len(held.folds), errors, on="held out")
            return VariantResult(runs, sound.task, network, about)
        return self._whole(task, settings, runs, fits=fits, is_saved=is_saved)

    def _whole(
        self,
        task: Task,
        settings: TuneSettings,
        runs: list[SeedResult],
        *,
        fits: bool,
        is_saved: bool,
    ) -> VariantResult:
        """Return folds scored by what the others fit, and a network trained on all examples."""
        assert self.data.whole is not None
        held, about = HeldOutFit.of(self.data, self.data.draws, runs), None
        own = task
        if held is not None:
            own = replace(own, **own.judge.chosen(held.outputs, held.targets))
            if fits:
                fitted = held.fitted(task)
                own = replace(own, **fitted)
                runs, errors = cross_fitted(task, held, runs)
                about = calibration(fitted, len(held.folds), errors, on="folds")
        if not is_saved:
            return VariantResult(runs, own, None, about)
        result, network = self._run(own, settings, self.data.whole, keeps=True)
        if network is None:
            raise TrainingStoppedError(result.final.about["diverged"])
        return VariantResult(runs, own, network, about, result.final.metrics)

    def _run(
        self, task: Task, settings: TuneSettings, draw: Draw, *, keeps: bool = False
    ) -> tuple[SeedResult, Network | None]:
        """Return the result of a training, and its network if it is kept and did not diverge."""
        finished = _seed_store(self.trained, self.job, settings)
        if (found := self._found(finished, task, settings, draw, keeps)) is None:
            data = self.data
            gpus = [data.trained.device] if data.trained.device.type == "cuda" else []
            with torch.random.fork_rng(gpus):
                tuner = FineTuner(task, data, settings, draw, self._step_done)
                if self._caches and not settings.strategy.trains_backbone:
                    # A random backbone differs by seed, so its features serve this one alone.
                    tuner.cache_features({} if settings.from_scratch else self._features)
                is_told = any(draw is one for one in data.draws)
                loop = tuner.loop(self.listeners.scored if is_told else lambda scores: None)
                try:
                    loop.train()
                    result = tuner.result()
                except NotFiniteError as error:
                    result = tuner.diverged(error)
            found = result, tuner.finish() if keeps and not result.has_diverged else None
            _save(finished, draw.name, *found)
            del tuner, loop  # before the next one needs as much memory
        else:
            self.resumed += 1
        self._done += max(0, count_steps(draw, settings) - self._of_seed)  # not needed
        self._of_seed = 0
        return found

    def _found(
        self, finished: FinishedStore, task: Task, settings: TuneSettings, draw: Draw, keeps: bool
    ) -> tuple[SeedResult, Network | None] | None:
        """Return the result of a finished training, and its network if it is kept."""

        def read(about: Mapping[str, Any], folder: Path) -> tuple[SeedResult, Network | None]:
            result = SeedResult(
                [Scores.of(row) for row in about["curve"]],
                Scores.of(about["final"]),
                config.build_kind(kinds.Part("tuning/tasks"), about["task"], "task"),
                about["confusion"],
                about["correct"],
                finished.outputs(folder),
            )
            if not keeps or result.has_diverged:
                return result, None
            trained = adapted(self.data.trained, settings.strategy, draw.seed)
            network = build_network(trained, task, self.data.labels, None)
            network.token_head = None
            load_weights(folder, network)
            return result, network.eval()

        return finished.find(draw.name, read)


def _seed_store(trained: TrainedModel, job: TuneJob, settings: TuneSettings) -> FinishedStore:
    """Return the finished seeds of a variant of a job."""
    if job.seeds_folder is None:
        return NOWHERE
    table = config.to_table(settings) | {"parts": list(job.examples.parts)}
    if settings.examples is None:  # the number of seeds matters where they draw examples
        del table["seeds"]
    return FinishedStore(job.seeds_folder, digest_of(trained, job.task, [table], job.examples))


def _save(finished: FinishedStore, name: str, result: SeedResult, network: Network | None) -> None:
    """Keep the result of a training, with its network if it will be saved."""
    about = {
        "curve": [scores.as_row() for scores in result.curve],
        "final": result.final.as_row(),
        "task": config.kind_table(result.task),
        "confusion": result.confusion,
        "correct": result.correct,
    }
    outputs = {} if result.outputs is None else {OUTPUTS: torch.from_numpy(result.outputs)}
    weights = {} if network is None else stored_tensors(network)
    finished.save(name, about, {"weights": weights, OUTPUTS: outputs})
