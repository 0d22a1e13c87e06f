"""Fine-tuning in reading order: encode once, train each variant with each seed, summarise."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

from foreword.errors import UserError
from foreword.nn.model import neural_settings
from foreword.runs.trained_model import TrainedModel
from foreword.settings import kinds
from foreword.settings.config import to_table
from foreword.tables.examples import Labelled, LabelledTexts
from foreword.tuning.bag_of_words import bags_of_words
from foreword.tuning.encoded import cut_count, cut_warning, first_inputs
from foreword.tuning.encoding import TuningExamples, draw_and_encode
from foreword.tuning.features import fits_in_memory
from foreword.tuning.fine_tuner import TuneData, TuneSettings, scored_outputs
from foreword.tuning.model_settings import recipe_for
from foreword.tuning.network import Network, shares_parameters
from foreword.tuning.result import Row, TuneResult, chosen_metric, summarise, with_words
from foreword.tuning.seeds import ReportProgress, SeedTrainer, Variant, stuck_notes
from foreword.tuning.starting_network import build_network
from foreword.tuning.tasks._contract import Task
from foreword.tuning.tasks._writing import WritingTask
from foreword.tuning.text_metrics import word_rules
from foreword.tuning.unfinished import FinishedSeeds
from foreword.types import Array

__all__ = ["TuneSettings", "tune", "variants", "without_tied_head"]


def tune(
    trained: TrainedModel,
    task: Task,
    train: Sequence[Labelled | tuple[str, ...]],
    dev: Sequence[Labelled | tuple[str, ...]],
    settings: TuneSettings | Sequence[TuneSettings] | None = None,
    report: ReportProgress | None = None,
    scored: Callable[[Row], None] = lambda row: None,
    further: Mapping[str, Sequence[Labelled]] = MappingProxyType({}),
    unfinished: Path | None = None,
    warn: Callable[[str], None] = lambda line: None,
) -> TuneResult:
    """Fine-tune a pretrained model, once per seed, and score it on `dev` after each epoch.

    Nothing is chosen by the scores on `dev`, unless the settings say so. A seed that diverges is
    counted and left out. `trained` and torch's random state stay unchanged.

    Args:
        trained: the pretrained model.
        task: the task.
        train: examples, `(text, label)` or `(text, label, pair)`.
        dev: examples to score.
        settings: one variant, or several to compare; `variants` returns the usual ones.
        report: called after each step with the progress.
        scored: called after each epoch of each seed with its row of scores.
        further: more examples to score when training has ended, by the name of their scores.
        unfinished: folder that keeps each finished seed, which is not trained again when the call
            was interrupted and is repeated; the caller removes it.
        warn: called before training with each warning that is also among the notes.

    Returns:
        A row for each variant, one for a bag of words if there are several variants and the labels
        are classes, and one for the task's baseline, which reads no text.

    Raises:
        UserError: the examples do not fit the task or each other, or the model has no gradients.
        TrainingStoppedError: the loss of every seed of the first variant is no longer finite.
    """
    trained.require_gradients()
    variants = (
        [settings] if isinstance(settings, TuneSettings) else list(settings or [TuneSettings()])
    )
    if task.needs.loss_unit == "batch" and min(variants[0].batch, len(train)) < 2:
        raise UserError(
            "--batch: this task compares the examples of a batch; at least 2 are needed"
        )
    recipe, *_ = [recipe_for(trained.recipe, variant.strategy) for variant in variants]
    # Draw the examples of each seed; encode them once, for all variants and seeds.
    train, dev = _with_sources(train, "training"), _with_sources(dev, "dev")
    read = draw_and_encode(trained, task, variants, train, dev, further)
    counts = _counts(read, len(dev), is_drawn=variants[0].examples is not None)
    inputs = sum(len(first_inputs(part.encoded)) - 1 for part in (read.data.train, read.data.dev))
    cut = cut_warning(counts["cut"], inputs, read.template.length, recipe.model.limit)
    if cut is not None:
        warn(cut)
    baselines, correct = _baselines(task, read.data)
    for variant, row in itertools.product(variants, baselines):
        if variant.metric not in task.judge.names:  # which a baseline may lack
            chosen_metric(row, variant.metric)
    # Train every seed, but for those that an earlier call finished.
    examples = {"train": train, "dev": dev, **further}
    settings_of_model = neural_settings(trained.recipe.model)
    data = read.data
    caches = not task.judge.writes and fits_in_memory(settings_of_model, task, data.train, data.dev)
    seeds_of = [
        Variant(variant, FinishedSeeds.of(unfinished, trained, task, variant, examples))
        for variant in variants
    ]
    prepared = task.prepared(data.train.targets, data.labels)
    trained_seeds = SeedTrainer(
        read.trained, prepared, data, seeds_of, caches, report, scored
    ).train()
    # Put the rows that were not trained below those that were.
    stuck = stuck_notes(trained_seeds.finals, baselines, variants[0].metric, task)
    if task.judge.scores_untuned:
        baselines = [_untuned_row(read.trained, task, data), *baselines]
    result = TuneResult(
        task=trained_seeds.task,
        labels=data.labels,
        template=read.template,
        recipe=recipe,
        tokenizer=read.trained.tokenizer,
        network=trained_seeds.network,
        rows=[*trained_seeds.rows, *baselines],
        epochs=trained_seeds.epochs,
        settings={"task": {"kind": kinds.name_of(task), **to_table(task)}, **to_table(variants[0])},
        examples=counts,
        notes=(
            *filter(None, [cut]),
            *trained_seeds.notes,
            *stuck,
            *_untrained_notes(trained_seeds.network, read.added, variants[0]),
            *word_rules(task.judge.names),
        ),
        confusion=trained_seeds.confusion,
        correct=trained_seeds.correct | correct,
        resumed=trained_seeds.resumed,
    )
    if len(variants) > 1 and task.judge.has_classes:
        return with_words(result, bags_of_words(task, read.drawn, dev))
    return result


def _counts(read: TuningExamples, dev: int, *, is_drawn: bool) -> dict[str, int]:
    """Return how many examples there are of each sort."""
    parts = (read.data.train, read.data.dev)
    return {
        "train": len(read.drawn.numbers[0]),
        **({"drawn_from": read.drawn.total} if is_drawn else {}),
        "dev": dev,
        "cut": sum(cut_count(part.encoded) for part in parts),
        "skipped": 0,
    }


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


def _untuned_row(trained: TrainedModel, task: Task, data: TuneData) -> Row:
    """Return the scores of the pretrained model as it is."""
    network = build_network(trained, task, data.labels, None).to(trained.device)
    outputs = scored_outputs(task, network, data.dev)
    scores = task.judge.scores(outputs, data.dev.targets)
    return summarise([{"start": "pretrained", "strategy": "not tuned", **scores}])


def _baselines(task: Task, data: TuneData) -> tuple[list[Row], dict[str, Array]]:
    """Return a row for each baseline, and how far each answers each dev example correctly."""
    parts = {"": data.dev, **{f"{name}_": part for name, part in data.further.items()}}
    rows: dict[str, Row] = {}
    correct: dict[str, Array] = {}
    for prefix, part in parts.items():
        outputs_by_name = task.judge.baselines(data.train.targets, part.targets, data.labels)
        for name, outputs in outputs_by_name.items():
            row = rows.setdefault(name, {"start": "no model", "strategy": name})
            scores = task.judge.scores(outputs, part.targets)
            row |= {f"{prefix}{metric}": score for metric, score in scores.items()}
            answers = task.judge.correct(outputs, part.targets)
            if answers is not None and not prefix:
                correct[name] = answers[None]
    return [summarise([row]) for row in rows.values()], correct


def _with_sources(examples: Sequence[Any], name: str) -> LabelledTexts:
    """Return the examples, each with a source to name in messages."""
    if isinstance(examples, LabelledTexts) and all(example.source for example in examples):
        return examples  # without a copy in memory
    return LabelledTexts.of(
        e if e.source else e._replace(source=f"{name} example {n}")
        for n, e in enumerate(itertools.starmap(Labelled, examples), 1)
    )
