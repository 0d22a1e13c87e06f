"""Fine-tuning in reading order: encode once, train each variant with each seed, summarise."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from foreword import allocator, kinds
from foreword.config import to_table
from foreword.errors import UserError
from foreword.evaluation.prompting import PromptedModel
from foreword.nn.model import neural_settings
from foreword.runs.continued import with_special
from foreword.runs.trained_model import TrainedModel
from foreword.tuning.answers import AnswerExamples
from foreword.tuning.backbone_dropout import has_dropout, with_dropout
from foreword.tuning.bag_of_words import bags_of_words
from foreword.tuning.drawing import Drawn, draw
from foreword.tuning.examples import LabelledTexts, first_inputs
from foreword.tuning.features import count_chunks, fits_in_memory
from foreword.tuning.fine_tuner import (
    SCORING_DTYPE,
    CachedFeatures,
    FineTuner,
    TuneData,
    TuneSettings,
    build_network,
    count_steps,
    predict,
)
from foreword.tuning.input_template import InputTemplate, missing_special_tokens, template_of
from foreword.tuning.labelled import Labelled
from foreword.tuning.network import Network
from foreword.tuning.result import Row, TuneResult, summarise
from foreword.tuning.rows import PooledExamples
from foreword.tuning.tasks._contract import Task
from foreword.types import Array

__all__ = ["TuneSettings", "tune", "variants"]

ReportProgress = Callable[[int, int, str], None]  # steps done, steps in all, what is running


def tune(
    trained: TrainedModel,
    task: Task,
    train: Sequence[Labelled | tuple[str, ...]],
    dev: Sequence[Labelled | tuple[str, ...]],
    settings: TuneSettings | Sequence[TuneSettings] | None = None,
    report: ReportProgress | None = None,
    scored: Callable[[Row], None] = lambda row: None,
) -> TuneResult:
    """Fine-tune a pretrained model, once per seed, and score it on `dev` after each epoch.

    Nothing is chosen by the scores on `dev`. `trained` and torch's random state stay unchanged.

    Args:
        trained: the pretrained model.
        task: the task.
        train: examples, `(text, label)` or `(text, label, pair)`.
        dev: examples to score.
        settings: one variant, or several to compare; `variants` returns the usual ones.
        report: called after each step with the progress.
        scored: called after each epoch of each seed with its row of scores.

    Returns:
        A row for each variant, one for a bag of words if there are several variants and the labels
        are classes, and one for the task's baseline, which reads no text.

    Raises:
        UserError: the examples do not fit the task or each other, or the model has no gradients.
        TrainingStoppedError: the loss is no longer finite.
    """
    trained.require_gradients()
    variants = (
        [settings] if isinstance(settings, TuneSettings) else list(settings or [TuneSettings()])
    )
    # Draw the examples of each seed; encode them once, for all variants and seeds.
    seeds = max(variant.seeds for variant in variants)
    dev = _with_sources(dev, "dev")
    drawn = draw(_with_sources(train, "training"), variants[0].examples, seeds, task)
    recipe, trained = trained.recipe, with_dropout(trained, variants[0].dropout)
    read = task.training_examples(drawn.examples, has_dropout=has_dropout(trained))
    drawn = replace(drawn, examples=read)
    trained = with_special(trained, missing_special_tokens(trained.recipe, trained.vocab))
    template = template_of(trained.recipe, trained.vocab, variants[0].max_length)
    template = template.of_tokens() if task.reads_tokens else template
    with allocator.returning_freed():
        data = _encode(trained, task, drawn, dev, template)
    # Count all steps beforehand, those that compute cached features too.
    caches = fits_in_memory(neural_settings(trained.recipe.model), task, data.train, data.dev)
    total = sum(variant.seeds * variant.epochs * count_steps(data, variant) for variant in variants)
    total += (_feature_passes(variants) if caches else 0) * count_chunks(data.train, data.dev)
    done = 0

    def step_done(note: str) -> None:
        nonlocal done
        done += 1
        if report is not None:
            report(done, total, note)

    rows, epochs, network, fitted = _train(trained, task, data, variants, caches, step_done, scored)
    untuned = [_untuned_row(trained, task, data)] if task.scores_untuned else []
    baselines = [*untuned, *_baseline_rows(task, data)]
    if len(variants) > 1 and task.has_classes:
        words = bags_of_words(task, drawn, dev)
        baselines = [*([summarise(words)] if words else []), *baselines]
    cut = sum(example.was_cut for part in (data.train, data.dev) for example in part.encoded)
    return TuneResult(
        task=fitted,
        labels=data.labels,
        template=template,
        recipe=recipe,
        tokenizer=trained.tokenizer,
        network=network,
        rows=[*rows, *baselines],
        epochs=epochs,
        settings={"task": {"kind": kinds.name_of(task), **to_table(task)}, **to_table(variants[0])},
        examples={
            "train": len(drawn.numbers[0]),
            **({} if variants[0].examples is None else {"drawn_from": drawn.total}),
            "dev": len(dev),
            "cut": cut,
            "skipped": 0,
        },
    )


def _train(
    trained: TrainedModel,
    task: Task,
    data: TuneData,
    variants: Sequence[TuneSettings],
    caches: bool,
    step_done: Callable[[str], None],
    scored: Callable[[Row], None],
) -> tuple[list[Row], list[Row], Network, Task]:
    """Train each variant with each of its seeds.

    Returns:
        A row per variant, a row per epoch, and of the first variant's first seed the network and
        the task, fitted to it.
    """
    device = trained.device
    rows, epochs, network, fitted = [], [], None, task
    cached: dict[str, CachedFeatures] = {}  # of the pretrained backbone, by precision
    for variant in variants:
        finals = []
        for seed in range(1, variant.seeds + 1):
            with torch.random.fork_rng([device] if device.type == "cuda" else []):
                tuner = FineTuner(trained, task, data, variant, seed)
                if caches and not variant.strategy.trains_backbone:
                    # A random backbone differs by seed, so its features serve this seed alone.
                    known = None if variant.from_scratch else cached.get(variant.precision)
                    features = tuner.cache_features(known, step_done)
                    if not variant.from_scratch:
                        cached[variant.precision] = features
                curve = tuner.run(step_done, scored)
            if network is None:
                network, fitted = tuner.finish(), tuner.fitted
            epochs += curve
            finals.append(curve[-1])
        rows.append(summarise(finals))
    assert network is not None
    return rows, epochs, network, fitted


def variants(settings: TuneSettings, *, has_frozen: bool = True) -> list[TuneSettings]:
    """Return the usual comparison: pretrained in full, pretrained and frozen, from scratch.

    Args:
        settings: all other settings.
        has_frozen: whether the task has a head to train alone.
    """
    frozen = kinds.load("tuning/strategies", "frozen")()
    return [
        replace(settings, from_scratch=False),
        *([replace(settings, from_scratch=False, strategy=frozen)] if has_frozen else []),
        replace(settings, from_scratch=True),
    ]


def _feature_passes(variants: Sequence[TuneSettings]) -> int:
    """Return how often the features of all examples are computed.

    Once per precision by the pretrained backbone, and once per seed by random ones.
    """
    frozen = [variant for variant in variants if not variant.strategy.trains_backbone]
    pretrained = {variant.precision for variant in frozen if not variant.from_scratch}
    return len(pretrained) + sum(variant.seeds for variant in frozen if variant.from_scratch)


def _encode(
    trained: TrainedModel,
    task: Task,
    drawn: Drawn,
    dev: Sequence[Labelled],
    template: InputTemplate,
) -> TuneData:
    # Check labels before texts, since that is cheap.
    train = drawn.examples
    if not dev:
        raise UserError("there is no dev example to score")
    if task.mix_layers and (template.start is not None or trained.recipe.layout.start):
        raise UserError(
            "task.mix_layers: is for models of one stack; an encoder-decoder's head reads the "
            "decoder's first token"
        )
    labels = task.labels(train)
    train_targets, dev_targets = task.targets(train, labels), task.targets(dev, labels)
    encoded_train, encoded_dev = (
        task.encode(part, trained.tokenizer, template) for part in (train, dev)
    )
    train_targets = task.place(train_targets, encoded_train)
    dev_targets = task.place(dev_targets, encoded_dev)
    if encoded_train[0].answer is not None:
        prompted = PromptedModel.of(trained)
        return TuneData(
            AnswerExamples.of(prompted, encoded_train, template),
            AnswerExamples.of(prompted, encoded_dev, template),
            labels,
            drawn.numbers,
        )
    auxiliary = task.auxiliary if template.is_causal else 0.0
    begins = first_inputs(encoded_train)
    return TuneData(
        PooledExamples(encoded_train, train_targets, template, auxiliary, task.whole),
        # Outputs do not depend on others, so scoring never needs a batch as a whole.
        PooledExamples(
            encoded_dev,
            dev_targets,
            template,
            whole="input" if task.whole == "input" else "example",
        ),
        labels,
        tuple(_inputs_of(numbers, begins) for numbers in drawn.numbers)
        if task.whole == "input"
        else drawn.numbers,
    )


def _inputs_of(examples: Array, begins: Array) -> Array:
    """Return the inputs of some examples, whose inputs begin at `begins`."""
    return np.concatenate([np.arange(begins[n], begins[n + 1]) for n in examples])


def _with_sources(examples: Sequence[Any], name: str) -> LabelledTexts:
    """Return the examples, each with a source to name in messages."""
    if isinstance(examples, LabelledTexts) and all(example.source for example in examples):
        return examples  # without a copy in memory
    return LabelledTexts.of(
        e if e.source else e._replace(source=f"{name} example {n}")
        for n, e in enumerate(itertools.starmap(Labelled, examples), 1)
    )


def _untuned_row(trained: TrainedModel, task: Task, data: TuneData) -> Row:
    """Return the scores of the pretrained model as it is."""
    network = build_network(trained, task, data.labels, None).to(trained.device)
    outputs = predict(network, data.dev, trained.device, SCORING_DTYPE)
    scores = task.scores(outputs, data.dev.targets)
    return summarise([{"start": "pretrained", "strategy": "not tuned", **scores}])


def _baseline_rows(task: Task, data: TuneData) -> list[Row]:
    dev = data.dev.targets
    return [
        summarise([{"start": "no model", "strategy": name} | task.scores(outputs, dev)])
        for name, outputs in task.baselines(data.train.targets, dev, data.labels).items()
    ]
