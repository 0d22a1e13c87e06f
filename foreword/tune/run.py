"""Fine-tuning in reading order: encode once, run a course per way and seed, sum up."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from foreword import kinds
from foreword.config import to_table
from foreword.errors import UserError
from foreword.evaluate.prompting import PromptedModel
from foreword.runs.continued import with_special
from foreword.runs.trained_model import TrainedModel
from foreword.tune.answers import Answers
from foreword.tune.examples import LabelledTexts
from foreword.tune.features import count_chunks, fits_in_memory
from foreword.tune.fine_tuner import CachedFeatures, Data, FineTuner, TuneSettings, count_steps
from foreword.tune.input_template import InputTemplate, missing_special_tokens, template_of
from foreword.tune.result import TuneResult, summarise
from foreword.tune.rows import Examples
from foreword.tune.tasks._contract import Labelled, Task

__all__ = ["TuneSettings", "tune", "variants"]

Watch = Callable[[int, int, str], None]  # steps done, steps in all, what is running


def tune(
    trained: TrainedModel,
    task: Task,
    train: Sequence[Labelled | tuple[str, ...]],
    dev: Sequence[Labelled | tuple[str, ...]],
    settings: TuneSettings | Sequence[TuneSettings] | None = None,
    watch: Watch | None = None,
) -> TuneResult:
    """Fine-tunes a pretrained model, once per seed, and scores it on `dev` after the last epoch.

    Nothing is chosen by the score on `dev`. `trained` and torch's random state stay as they are.

    Args:
        trained: the pretrained model.
        task: what is to be learned.
        train: examples, `(text, label)` or `(text, label, pair)`.
        dev: examples to score.
        settings: one way, or several to compare; `variants` makes the usual ones.
        watch: told how far it is, after each step.

    Returns:
        A row for each of the settings, and one for the best guess that reads nothing.

    Raises:
        UserError: the examples do not fit the task or each other, or the model has no gradients.
        TrainingStoppedError: the loss is no longer finite.
    """
    trained.require_gradients()
    variants = (
        [settings] if isinstance(settings, TuneSettings) else list(settings or [TuneSettings()])
    )
    trained = with_special(trained, missing_special_tokens(trained.recipe, trained.vocab))
    template = template_of(trained.recipe, trained.vocab, variants[0].max_length)
    data = _read(trained, task, train, dev, template)
    keeps = fits_in_memory(trained.recipe.model, task, data.train, data.dev)
    total = sum(variant.seeds * variant.epochs * count_steps(data, variant) for variant in variants)
    total += (_readings(variants) if keeps else 0) * count_chunks(data.train, data.dev)
    done = 0

    def step_done(note: str) -> None:
        nonlocal done
        done += 1
        if watch is not None:
            watch(done, total, note)

    device = trained.device
    rows, epochs, network = [], [], None
    kept: dict[str, CachedFeatures] = {}  # of the pretrained body, by precision
    for variant in variants:
        finals = []
        for seed in range(1, variant.seeds + 1):
            with torch.random.fork_rng([device] if device.type == "cuda" else []):
                course = FineTuner(trained, task, data, variant, seed)
                if keeps and not variant.strategy.trains_backbone:
                    known = None if variant.from_scratch else kept.get(variant.precision)
                    found = course.cache_features(known, step_done)
                    if not variant.from_scratch:
                        kept[variant.precision] = found
                curve = course.run(step_done)
            network = network or course.finish()
            epochs += curve
            finals.append(curve[-1])
        rows.append(summarise(finals))
    assert network is not None
    cut = sum(example.was_cut for part in (data.train, data.dev) for example in part.encoded)
    return TuneResult(
        task=task,
        labels=data.labels,
        template=template,
        recipe=trained.recipe,
        tokenizer=trained.tokenizer,
        network=network,
        rows=[*rows, _guess(task, data)],
        epochs=epochs,
        settings={"task": {"kind": kinds.name_of(task), **to_table(task)}, **to_table(variants[0])},
        examples={"train": len(data.train), "dev": len(data.dev), "cut": cut, "skipped": 0},
    )


def variants(settings: TuneSettings) -> list[TuneSettings]:
    """The usual comparison: pretrained and fully tuned, pretrained and frozen, from scratch."""
    frozen = kinds.load("tune/strategies", "frozen")()
    return [
        replace(settings, from_scratch=False),
        replace(settings, from_scratch=False, strategy=frozen),
        replace(settings, from_scratch=True),
    ]


def _readings(variants: Sequence[TuneSettings]) -> int:
    """How often all examples are read by bodies that stay as they are.

    By the pretrained one once, whatever the seeds; by a random one of each seed.
    """
    still = [variant for variant in variants if not variant.strategy.trains_backbone]
    pretrained = {variant.precision for variant in still if not variant.from_scratch}
    return len(pretrained) + sum(variant.seeds for variant in still if variant.from_scratch)


def _read(
    trained: TrainedModel,
    task: Task,
    train: Sequence[Any],
    dev: Sequence[Any],
    template: InputTemplate,
) -> Data:
    train, dev = _named(train, "training"), _named(dev, "dev")
    if not dev:
        raise UserError("there is no dev example to score")
    if task.mix_layers and template.start is not None:
        raise UserError(
            "task.mix_layers: is for models of one stack; an encoder-decoder is read at the "
            "decoder's first token"
        )
    labels = task.labels(train)
    train_targets, dev_targets = task.targets(train, labels), task.targets(dev, labels)
    read, score = (task.encode(part, trained.tokenizer, template) for part in (train, dev))
    if read[0].answer is not None:
        prompted = PromptedModel.of(trained)
        return Data(
            Answers.of(prompted, read, template), Answers.of(prompted, score, template), labels
        )
    auxiliary = task.auxiliary if template.is_causal else 0.0
    return Data(
        Examples(read, train_targets, template, auxiliary),
        Examples(score, dev_targets, template),
        labels,
    )


def _named(examples: Sequence[Any], name: str) -> LabelledTexts:
    """The examples, each with a source to name in messages."""
    found = (Labelled(*example) for example in examples)
    return LabelledTexts.of(
        e if e.source else e._replace(source=f"{name} example {n}") for n, e in enumerate(found, 1)
    )


def _guess(task: Task, data: Data) -> dict[str, Any]:
    name, outputs = task.baseline(data.train.targets, data.labels)
    repeated = np.repeat(outputs[None, :], len(data.dev), axis=0)
    start = {"start": "no model", "strategy": name}
    return summarise([start | task.scores(repeated, data.dev.targets)])
