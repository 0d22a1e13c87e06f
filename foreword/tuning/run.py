"""Fine-tuning in reading order: encode once, train each variant with each seed, summarise."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch

from foreword.errors import NotFiniteError, TrainingStoppedError, UserError
from foreword.nn.model import neural_settings
from foreword.runs.trained_model import TrainedModel
from foreword.settings import kinds
from foreword.settings.config import to_table
from foreword.tables.examples import Labelled, LabelledTexts
from foreword.tuning.bag_of_words import bags_of_words
from foreword.tuning.encoded import cut_count, cut_warning, first_inputs, windowed_count
from foreword.tuning.encoding import TuneData, draw_and_encode
from foreword.tuning.features import Features, fits_in_memory
from foreword.tuning.fine_tuner import FineTuner, SeedResult
from foreword.tuning.job import Examples, TuneJob
from foreword.tuning.model_settings import adapted, recipe_for
from foreword.tuning.network import Network, shares_parameters
from foreword.tuning.outputs import scored_outputs
from foreword.tuning.result import TuneResult, with_words
from foreword.tuning.scores import Scores, single, summarise
from foreword.tuning.seed_store import SeedStore
from foreword.tuning.seeds import (
    ReportProgress,
    Steps,
    added_confusion,
    correct_of,
    notes_of,
)
from foreword.tuning.settings import TuneSettings
from foreword.tuning.starting_network import build_network
from foreword.tuning.tasks._contract import Task
from foreword.tuning.tasks._writing import WritingTask
from foreword.tuning.text_metrics import word_rules
from foreword.types import Array

__all__ = ["TuneSettings", "tune", "variants", "without_tied_head"]


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


def tune(trained: TrainedModel, job: TuneJob, listeners: Listeners = Listeners()) -> TuneResult:
    """Fine-tune a pretrained model, once per seed, and score it on `dev` after each epoch.

    Nothing is chosen by the scores on `dev`, unless the settings say so. A seed that diverges is
    counted and left out. `trained` and torch's random state stay unchanged. Nothing is written but
    finished seeds, which a repeated call does not train again; the caller removes them.

    Args:
        job: what to fine-tune; its rates and its bag of words are for `fine_tune`.
        listeners: who is told of it.

    Returns:
        The scores of each variant, of a bag of words if there are several variants and the labels
        are classes, and of the task's baseline, which reads no text.

    Raises:
        UserError: the examples do not fit the task or each other, or the model has no gradients.
        TrainingStoppedError: the loss of every seed of the first variant is no longer finite.
    """
    task, variants, first = job.task, job.variants, job.variants[0]
    _require_possible(trained, job)
    # Draw the examples of each seed; encode them once, for all variants and seeds.
    job = replace(job, examples=_with_sources(job.examples))
    data = draw_and_encode(trained, task, variants, job.examples)
    counts, cut = _counts(data, job), _cut_warning(data, trained)
    if cut:
        listeners.warn(cut)
    baselines, correct = _baselines(task, data)
    for variant, row in itertools.product(variants, baselines):
        if variant.metric not in task.judge.names:  # which a baseline may lack
            row.chosen_metric(variant.metric)
    # Train every seed, but for those that an earlier call finished.
    model = neural_settings(trained.recipe.model)
    caches = not task.judge.writes and fits_in_memory(model, task, data.train, data.dev)
    steps = Steps(data, variants, caches, listeners.report)
    prepared = task.prepared(data.train.targets, data.labels)
    features: dict[str, tuple[Features, Features]] = {}  # of the pretrained backbone, by precision
    results: list[list[SeedResult]] = []
    network: Network | None = None  # the first variant's first
    gpus = [trained.device] if trained.device.type == "cuda" else []
    resumed = 0
    for variant in variants:
        store = SeedStore.of(trained, job, variant)
        results.append([])
        for seed in range(1, variant.seeds + 1):
            is_kept = network is None and len(results) == 1
            build = partial(_untrained, prepared, data, variant, seed) if is_kept else None
            if (found := store.find(seed, build)) is None:
                with torch.random.fork_rng(gpus):
                    tuner = FineTuner(prepared, data, variant, seed, steps.done)
                    if caches:
                        _use_features(tuner, features)
                    loop = tuner.loop(listeners.scored)
                    try:
                        loop.train()
                        result = tuner.result()
                    except NotFiniteError as error:
                        result = tuner.diverged(error)
                found = result, tuner.finish() if is_kept and not result.has_diverged else None
                store.save(seed, *found)
                del tuner, loop  # before the next one needs as much memory
            else:
                resumed += 1
            results[-1].append(found[0])
            network = network or found[1]
            steps.seed_done(variant)
        if network is None:
            raise TrainingStoppedError(results[0][-1].final.about["diverged"])
    assert network is not None
    # Put the rows that were not trained below those that were.
    sound = [result for result in results[0] if not result.has_diverged]
    notes = notes_of(results, baselines, first, task)
    if task.judge.scores_untuned:
        baselines = [_untuned(task, data), *baselines]
    rows = [
        summarise([one.final for one in runs], variant.epochs if variant.keep == "best" else None)
        for variant, runs in zip(variants, results, strict=True)
    ]
    tuned = TuneResult(
        task=sound[0].task,
        labels=data.labels,
        template=data.template,
        recipe=recipe_for(trained.recipe, first.strategy),
        tokenizer=data.trained.tokenizer,
        network=network,
        rows=[*rows, *baselines],
        epochs=[row for runs in results for one in runs for row in one.curve],
        settings={"task": {"kind": kinds.name_of(task), **to_table(task)}, **to_table(first)},
        examples=counts,
        notes=(
            *filter(None, [cut]),
            *notes,
            *_untrained_notes(network, data.added, first),
            *word_rules(task.judge.names),
        ),
        confusion=added_confusion([one.confusion for one in results[0]]),
        correct=correct_of(results) | correct,
        resumed=resumed,
    )
    if len(variants) > 1 and task.judge.has_classes:
        return with_words(tuned, bags_of_words(task, data.drawn, job.examples.dev))
    return tuned


def _require_possible(trained: TrainedModel, job: TuneJob) -> None:
    """Check that the model can be tuned by each variant."""
    trained.require_gradients()
    for variant in job.variants:
        recipe_for(trained.recipe, variant.strategy)
        if variant.strategy.chooses:
            raise UserError(
                "strategy best: chooses among ways to learn, as 'foreword tune' alone does; name "
                "another, such as full"
            )
    smallest = min(job.variants[0].batch, len(job.examples.train))
    if job.task.needs.loss_unit == "batch" and smallest < 2:
        raise UserError(
            "--batch: this task compares the examples of a batch; at least 2 are needed"
        )


def _use_features(tuner: FineTuner, known: dict[str, tuple[Features, Features]]) -> None:
    """Compute the features of a backbone that is not trained once for all seeds."""
    settings = tuner.settings
    if settings.strategy.trains_backbone:
        return
    # A random backbone differs by seed, so its features serve this seed alone.
    same = None if settings.from_scratch else known.get(settings.precision)
    features = tuner.cache_features(same)
    if not settings.from_scratch:
        known[settings.precision] = features


def _untrained(task: Task, data: TuneData, settings: TuneSettings, seed: int) -> Network:
    """Return a network for the weights of a finished seed."""
    trained = adapted(data.trained, settings.strategy, seed)
    network = build_network(trained, task, data.labels, None)
    network.token_head = None
    return network.eval()


def _counts(data: TuneData, job: TuneJob) -> dict[str, int]:
    """Return how many examples there are of each sort."""
    return {
        "train": len(data.drawn.numbers[0]),
        **({} if job.variants[0].examples is None else {"drawn_from": data.drawn.total}),
        "dev": len(job.examples.dev),
        "cut": sum(cut_count(part.encoded) for part in (data.train, data.dev)),
        "in_windows": sum(windowed_count(part.encoded) for part in (data.train, data.dev)),
        "skipped": job.examples.skipped,
    }


def _cut_warning(data: TuneData, trained: TrainedModel) -> str | None:
    parts = (data.train, data.dev)
    cut = sum(cut_count(part.encoded) for part in parts)
    examples = sum(len(first_inputs(part.encoded)) - 1 for part in parts)
    return cut_warning(cut, examples, data.template.length, trained.recipe.model.limit)


def _untrained_notes(
    network: Network, added: Sequence[str], settings: TuneSettings
) -> Iterator[str]:
    """Yield a note if tokens that are new to the model keep their random embeddings."""
    if added and not network.backbone.embedding.token.weight.requires_grad:
        yield (
            f"{', '.join(added)}: new to the model, and strategy "
            f"{kinds.name_of(settings.strategy)} leaves their embeddings as they began at random; "
            "full trains them"
        )


def variants(settings: TuneSettings, *, has_frozen: bool = True) -> list[TuneSettings]:
    """Return the usual comparison: pretrained in full, pretrained and frozen, from scratch.

    Args:
        settings: all other settings.
        has_frozen: whether the task has a head to train alone.
    """
    frozen = kinds.load("tuning/strategies", "frozen")()
    plain = replace(settings, from_scratch=False, reinit_layers=0)
    return [
        replace(settings, from_scratch=False),
        *([replace(plain, strategy=frozen)] if has_frozen else []),
        replace(plain, from_scratch=True),
    ]


def without_tied_head(
    variants: Sequence[TuneSettings], trained: TrainedModel, task: Task
) -> tuple[list[TuneSettings], list[str]]:
    """Return the variants of a comparison that the model's head allows, and a note if one goes.

    An output layer that is tied to the embedding cannot be trained while the backbone is frozen.
    """
    kept = [one for one in variants if kinds.name_of(one.strategy) != "frozen"]
    if len(kept) == len(variants) or not isinstance(task, WritingTask):
        return list(variants), []
    if not shares_parameters(trained.model.token_head, trained.model.backbone):
        return list(variants), []
    return kept, [
        "no frozen variant: the head of this task is the output layer, which this model shares "
        "with its embedding"
    ]


def _untuned(task: Task, data: TuneData) -> Scores:
    """Return the scores of the pretrained model as it is."""
    network = build_network(data.trained, task, data.labels, None).to(data.trained.device)
    outputs = scored_outputs(task, network, data.dev)
    return single("pretrained", "not tuned", task.judge.scores(outputs, data.dev.targets))


def _baselines(task: Task, data: TuneData) -> tuple[list[Scores], dict[str, Array]]:
    """Return the scores of each baseline, and how far each answers dev examples correctly."""
    parts = {"": data.dev, **{f"{name}_": part for name, part in data.extra.items()}}
    scores: dict[str, dict[str, float]] = {}
    correct: dict[str, Array] = {}
    for prefix, part in parts.items():
        baselines = task.judge.baselines(data.train.targets, part.targets, data.labels)
        for name, outputs in baselines.items():
            of_part = task.judge.scores(outputs, part.targets)
            named = scores.setdefault(name, {})
            named |= {f"{prefix}{metric}": score for metric, score in of_part.items()}
            answers = task.judge.correct(outputs, part.targets)
            if answers is not None and not prefix:
                correct[name] = answers[None]
    return [single("no model", name, of) for name, of in scores.items()], correct


def _with_sources(examples: Examples) -> Examples:
    """Return the examples, each of `train` and `dev` with a source to name in messages."""
    train, dev = _sourced(examples.train, "training"), _sourced(examples.dev, "dev")
    return replace(examples, train=train, dev=dev)


def _sourced(examples: Sequence[Any], name: str) -> LabelledTexts:
    """Return the examples, each with a source to name in messages."""
    if isinstance(examples, LabelledTexts) and all(example.source for example in examples):
        return examples  # without a copy in memory
    return LabelledTexts.of(
        e if e.source else e._replace(source=f"{name} example {n}")
        for n, e in enumerate(itertools.starmap(Labelled, examples), 1)
    )
