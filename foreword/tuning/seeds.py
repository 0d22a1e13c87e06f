"""The seeds of each variant of fine-tuning: trained, or found finished, then summarised."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np
import torch

from foreword.errors import TrainingStoppedError
from foreword.runs.trained_model import TrainedModel
from foreword.tuning.features import count_chunks
from foreword.tuning.fine_tuner import (
    CachedFeatures,
    FineTuner,
    SeedResult,
    TuneData,
    TuneSettings,
    count_steps,
)
from foreword.tuning.model_settings import adapted
from foreword.tuning.network import Network
from foreword.tuning.result import (
    Row,
    as_gain,
    chosen_metric,
    is_score,
    metric_name,
    row_name,
    summarise,
)
from foreword.tuning.starting_network import build_network
from foreword.tuning.tasks._contract import Task
from foreword.tuning.unfinished import FinishedSeeds
from foreword.types import Array

ReportProgress = Callable[[int, int, str], None]  # steps done, steps in all, what is running


class Variant(NamedTuple):
    """The settings of a variant, and where its finished seeds are kept."""

    settings: TuneSettings
    finished: FinishedSeeds


class TrainedSeeds(NamedTuple):
    """The results of all seeds of all variants.

    Attributes:
        network: of the first variant's first seed that did not diverge, on the CPU.
        task: the task with what was chosen on that seed's outputs.
        rows: one per variant.
        finals: of the first variant, one per seed that did not diverge.
        epochs: one per variant, seed and epoch.
        confusion: of the first variant's seeds together; None without classes.
        correct: by the variant's name, how far each seed answered each dev example correctly,
            (seeds, examples), nan if it diverged; empty unless the mean is the accuracy.
        notes: what a reader of the scores has to know, a line each.
        resumed: how many seeds had been finished before.
    """

    network: Network
    task: Task
    rows: list[Row]
    finals: list[Row]
    epochs: list[Row]
    confusion: list[list[int]] | None
    correct: dict[str, Array]
    notes: tuple[str, ...]
    resumed: int


class SeedTrainer:
    """Trains each seed of each variant, unless it is finished already.

    Args:
        trained: the pretrained model.
        task: the task.
        data: the examples.
        variants: the variants.
        caches: whether features of a backbone that is not trained are computed once.
        report: called after each step with the progress.
        scored: called after each epoch with its row of scores.
    """

    def __init__(
        self,
        trained: TrainedModel,
        task: Task,
        data: TuneData,
        variants: Sequence[Variant],
        caches: bool,
        report: ReportProgress | None,
        scored: Callable[[Row], None],
    ) -> None:
        self._trained, self._task, self._data = trained, task, data
        self._variants, self._caches, self._scored = variants, caches, scored
        self._steps = _Steps(data, [variant.settings for variant in variants], caches, report)
        self._cached: dict[str, CachedFeatures] = {}  # of the pretrained backbone, by precision
        self._network: Network | None = None
        self._resumed = 0

    def train(self) -> TrainedSeeds:
        """Train all seeds of all variants.

        Raises:
            TrainingStoppedError: every seed of the first variant diverged.
        """
        results: list[list[SeedResult]] = []
        for variant in self._variants:
            results.append([])
            for seed in range(1, variant.settings.seeds + 1):
                # The network that will be saved is the first variant's first.
                is_kept = self._network is None and len(results) == 1
                results[-1].append(self._result(variant, seed, is_kept))
                self._steps.seed_done(variant.settings)
            if self._network is None:
                raise TrainingStoppedError(results[-1][-1].final["diverged"])
        first = next(result for result in results[0] if not result.has_diverged)
        assert self._network is not None
        return TrainedSeeds(
            self._network,
            first.task,
            [
                summarise([result.final for result in runs], _chosen_of(variant.settings))
                for variant, runs in zip(self._variants, results, strict=True)
            ],
            [result.final for result in results[0] if not result.has_diverged],
            [row for runs in results for result in runs for row in result.curve],
            _added([result.confusion for result in results[0]]),
            _correct(results),
            (
                *_diverged_notes(results),
                *_undefined_notes(results),
                *_choice_notes(self._variants[0].settings, first.final),
            ),
            self._resumed,
        )

    def _result(self, variant: Variant, seed: int, is_kept: bool) -> SeedResult:
        """Return the result of a seed, finished or trained now; if `is_kept`, keep its network."""
        build = partial(self._build, variant.settings, seed) if is_kept else None
        finished = variant.finished.find(seed, build)
        if finished is not None:
            self._resumed += 1
            result, self._network = finished[0], self._network or finished[1]
            return result
        result, tuner = self._trained_seed(variant.settings, seed)
        network = tuner.finish() if is_kept and not result.has_diverged else None
        variant.finished.save(seed, result, network)
        self._network = self._network or network
        return result

    def _trained_seed(self, settings: TuneSettings, seed: int) -> tuple[SeedResult, FineTuner]:
        device = self._trained.device
        with torch.random.fork_rng([device] if device.type == "cuda" else []):
            tuner = FineTuner(self._trained, self._task, self._data, settings, seed)
            if self._caches and not settings.strategy.trains_backbone:
                # A random backbone differs by seed, so its features serve this seed alone.
                same = None if settings.from_scratch else self._cached.get(settings.precision)
                features = tuner.cache_features(same, self._steps.done)
                if not settings.from_scratch:
                    self._cached[settings.precision] = features
            try:
                return tuner.run(self._steps.done, self._scored), tuner
            except TrainingStoppedError as error:
                final = {"start": tuner.start, "strategy": tuner.strategy, "seed": seed}
                final |= {"epoch": settings.epochs, "lr": tuner.lr, "diverged": str(error)}
                final |= {"trained_parameters": tuner.trained_parameters}
                return SeedResult([], final, self._task, None), tuner

    def _build(self, settings: TuneSettings, seed: int) -> Network:
        """Return a network for the weights of a finished seed."""
        trained = adapted(self._trained, settings.strategy, seed)
        network = build_network(trained, self._task, self._data.labels, None)
        network.token_head = None
        return network.eval()


class _Steps:
    """Reports progress: the steps of all seeds, and chunks of cached features."""

    def __init__(
        self,
        data: TuneData,
        variants: Sequence[TuneSettings],
        caches: bool,
        report: ReportProgress | None,
    ) -> None:
        self._data, self._report = data, report
        self._total = sum(variant.seeds * self._of(variant) for variant in variants)
        if caches:
            self._total += _feature_passes(variants) * count_chunks(data.train, data.dev)
        self._done, self._of_seed = 0, 0

    def _of(self, settings: TuneSettings) -> int:
        """Return the steps of a seed."""
        return settings.epochs * count_steps(self._data, settings)

    def done(self, note: str) -> None:
        """Report a step."""
        self._done += 1
        self._of_seed += 1
        if self._report is not None:
            self._report(min(self._done, self._total), self._total, note)

    def seed_done(self, settings: TuneSettings) -> None:
        """Count the steps that a seed did not need."""
        self._done += max(0, self._of(settings) - self._of_seed)
        self._of_seed = 0


def _feature_passes(variants: Sequence[TuneSettings]) -> int:
    """Return how often the features of all examples are computed.

    Once per precision by the pretrained backbone, and once per seed by random ones.
    """
    frozen = [variant for variant in variants if not variant.strategy.trains_backbone]
    pretrained = {variant.precision for variant in frozen if not variant.from_scratch}
    return len(pretrained) + sum(variant.seeds for variant in frozen if variant.from_scratch)


def _chosen_of(settings: TuneSettings) -> int | None:
    """Return the number of epochs of which one was chosen; None if it was the last."""
    return settings.epochs if settings.keep == "best" else None


def _added(matrices: Sequence[list[list[int]] | None]) -> list[list[int]] | None:
    known = [matrix for matrix in matrices if matrix is not None]
    if not known:
        return None
    return [[int(count) for count in row] for row in np.sum(known, axis=0)]


def _correct(results: Sequence[Sequence[SeedResult]]) -> dict[str, Array]:
    """Return how far each variant's seeds answered correctly, of variants with other names."""
    correct: dict[str, Array] = {}
    for runs in results:
        if sizes := [len(result.correct) for result in runs if result.correct is not None]:
            nothing = [math.nan] * sizes[0]  # of a seed that diverged
            known = [nothing if result.correct is None else result.correct for result in runs]
            correct.setdefault(row_name(runs[0].final), np.array(known))
    return correct


def _diverged_notes(results: Sequence[Sequence[SeedResult]]) -> list[str]:
    """Return a line for each variant of which some seeds diverged."""
    notes = []
    for runs in results:
        if failed := [result.final for result in runs if result.has_diverged]:
            name = f"{failed[0]['start']}, {failed[0]['strategy']}"
            seeds = ", ".join(str(final["seed"]) for final in failed)
            notes.append(
                f"{name}: {len(failed)} of {len(runs)} seeds diverged (seed {seeds}) and are not "
                f"in the scores; the first: {failed[0]['diverged']}"
            )
    return notes


def _undefined_notes(results: Sequence[Sequence[SeedResult]]) -> list[str]:
    """Return a line for each variant of which some seeds have scores that are undefined."""
    notes = []
    for runs in results:
        finals = [result.final for result in runs if not result.has_diverged]
        undefined = [{k for k, v in row.items() if is_score(k) and math.isnan(v)} for row in finals]
        if any(undefined):
            names = [metric_name(name) for name in finals[0] if name in set().union(*undefined)]
            seeds = [str(row["seed"]) for row, of in zip(finals, undefined, strict=True) if of]
            notes.append(
                f"{row_name(finals[0])}: {', '.join(names)} undefined for {len(seeds)} of "
                f"{len(finals)} seeds ({', '.join(seeds)}), since all predictions or all labels "
                "are equal; so is the mean over seeds"
            )
    return notes


def stuck_notes(
    finals: Sequence[Row], baselines: Sequence[Row], metric: str, task: Task
) -> list[str]:
    """Return a line that says how many seeds learned nothing, if some did.

    Args:
        finals: the row of each seed.
        baselines: the rows of the baselines, the best of which counts.
        metric: the score; default: the task's first.
        task: the task.
    """
    name = chosen_metric(finals[0], metric)
    # Where a baseline's correlation is undefined, as of a constant, none above 0 was learned.
    known = [np.nan_to_num(row[name]) if name in row else np.nan for row in baselines]
    gains = [as_gain(name, score, task) for score in known]
    best = baselines[int(np.argmax(gains))] if gains else {}
    most = max(gains, default=-np.inf)
    stuck = [row["seed"] for row in finals if -math.inf < as_gain(name, row[name], task) <= most]
    if not stuck:
        return []
    seeds = ", ".join(map(str, stuck))
    which = (
        f"{len(stuck)} of {len(finals)} seeds ({seeds}) are"
        if len(finals) > 1
        else "the one seed is"
    )
    cause = "likely --lr is too high, training is too short, or pretraining has barely begun"
    return [f"{which} no better than '{best['strategy']}' by {metric_name(name)}; {cause}"]


def _choice_notes(settings: TuneSettings, final: Row) -> list[str]:
    """Return a line that says what the dev examples chose, if anything."""
    if settings.keep == "last":
        return []
    name = metric_name(chosen_metric(final, settings.metric))
    return [
        f"each seed kept the best of its epochs by {name} on the dev examples, which is therefore "
        "a little too high; score others too, with --test, for a number to report"
    ]
