"""Fine-tuning in reading order: encode once, train each variant with each seed, summarise."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from foreword.errors import UserError
from foreword.evaluation.text_metrics import word_rules
from foreword.runs.trained_model import TrainedModel
from foreword.settings import config, kinds
from foreword.tuning.bag_of_words import bags_of_words
from foreword.tuning.drawing import HELD_FEWEST, HELD_PARTS, DrawnExamples
from foreword.tuning.encoded import cut_count, cut_warning, first_inputs, windowed_count
from foreword.tuning.input_template import InputTemplate
from foreword.tuning.job import TuneJob
from foreword.tuning.network import Network, shares_parameters
from foreword.tuning.outputs import scored_outputs
from foreword.tuning.scores import MeanScore, Scores, means_of, summarise
from foreword.tuning.seed_results import added_confusion, correct_of, notes_of
from foreword.tuning.settings import TuneSettings
from foreword.tuning.starting_network import build_network, recipe_for
from foreword.tuning.tasks._contract import BOUND, Inputs, Task
from foreword.tuning.tasks._writing import ABOUT_BOUND, WritingTask, is_bound
from foreword.tuning.trainings import Listeners, Trainings
from foreword.tuning.tune_data import TuneData, draw_and_encode
from foreword.tuning.tune_result import TuneResult, with_words
from foreword.types import Array

SILENT = Listeners()


def tune(trained: TrainedModel, job: TuneJob, listeners: Listeners = SILENT) -> TuneResult:
    """Fine-tune a pretrained model, once per seed, and score it on `dev` after each epoch.

    Nothing is chosen by the scores on `dev`, unless the settings say so. A seed that diverges is
    counted and left out. `trained` and torch's random state stay unchanged. Nothing is written but
    finished seeds, which a repeated call does not train again; the caller removes them.

    Args:
        job: what to fine-tune; its rates and its bag of words are for `tune_and_save`.

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
    is_saved = job.evaluation is not None  # others need no probabilities
    fits = task.answers.fits and first.calibrate and (is_saved or first.folds is not None)
    holds_out = fits and first.folds is None
    data = draw_and_encode(trained, task, variants, job.examples, holds_out=holds_out)
    parts = [data.train, *([] if data.drawn.folds else data.dev)]
    counts, cut = counted(trained, job, data.drawn, data.template, [p.encoded for p in parts])
    if cut:
        listeners.warn(cut)
    untrained, correct = _baselines(task, data)
    for variant, row in itertools.product(variants, untrained):
        if variant.metric not in task.judge.names:  # which a baseline may lack
            row.chosen_metric(variant.metric)
    # Train every seed or fold of each variant, but for those that an earlier call finished.
    trainings = Trainings(trained, job, data, listeners)
    prepared = task.prepared(data.train.targets, data.labels)
    trained_variants = [trainings.variant(prepared, first, fits=fits, is_saved=True)]
    saved = trained_variants[0]
    network = saved.network
    assert network is not None
    for variant in variants[1:]:  # a temperature of their own changes no score
        fits_own = (saved.calibration or {}).keys() >= {"thresholds"}
        trained_variants.append(trainings.variant(prepared, variant, fits=fits_own))
    results = [one.runs for one in trained_variants]
    # Put the rows that were not trained below those that were.
    has_bound = is_bound(task, trained) and first.metric in ("", BOUND)
    notes = notes_of(results, [] if has_bound else untrained, first, task)
    if fits and saved.calibration is None:
        why = "the training for it diverged"
        if data.held_out is None:
            why = (
                f"{counts['train']:,} training examples are too few to hold some out, which needs "
                f"{HELD_FEWEST * HELD_PARTS:,}; --folds 5 in place of --dev calibrates on all of "
                "them"
            )
        notes.append(f"probabilities are not calibrated: {why}")
    marked = {"is_bound": True} if is_bound(task, trained) else {}
    if task.judge.scores_untuned:
        untrained = [replace(_untuned(task, data), about=marked), *untrained]
    rows = [
        summarise([one.final for one in runs], variant.epochs if variant.keep == "best" else None)
        for variant, runs in zip(variants, results, strict=True)
    ]
    rows[0] = replace(rows[0], metrics={**rows[0].metrics, **saved.extra})
    rows = [replace(row, about={**row.about, **marked}) for row in rows]
    tuned = TuneResult(
        task=saved.task,
        labels=data.labels,
        max_tokens=data.template.length,
        template=data.template,
        recipe=recipe_for(trained.recipe, first.strategy),
        tokenizer=data.trained.tokenizer,
        network=network,
        rows=[*rows, *untrained],
        epochs=[row for runs in results for one in runs for row in one.curve],
        settings={"task": config.kind_table(task), **config.to_table(first)},
        examples=counts,
        notes=(
            *filter(None, [cut]),
            *notes,
            *_notes_of_model(trained, task, network, data.added, first),
            *word_rules(task.judge.names),
        ),
        confusion=added_confusion([one.confusion for one in results[0]]),
        correct=correct_of(results, are_folds=first.folds is not None) | correct,
        resumed=trainings.resumed,
        further={} if saved.calibration is None else {"calibration": saved.calibration},
    )
    if len(variants) > 1 and task.judge.has_classes:
        return with_words(tuned, bags_of_words(task, data.drawn, job.examples.dev))
    return tuned


def _require_possible(trained: TrainedModel, job: TuneJob) -> None:
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


def counted(
    trained: TrainedModel,
    job: TuneJob,
    drawn: DrawnExamples,
    template: InputTemplate,
    encoded: Sequence[Inputs],
) -> tuple[dict[str, int], str | None]:
    """Return the numbers of examples, as results have them, and a warning if many were cut.

    Args:
        encoded: the inputs of the examples to train on, and of those to score, each once.
    """
    counts = {
        "train": len(drawn.numbers[0]),
        **({} if job.variants[0].examples is None else {"drawn_from": drawn.total}),
        "dev": len(job.examples.dev) or drawn.total,
        "cut": sum(map(cut_count, encoded)),
        "in_windows": sum(map(windowed_count, encoded)),
        "skipped": job.examples.skipped,
    }
    read = sum(len(first_inputs(inputs)) - 1 for inputs in encoded)
    limit = trained.recipe.model.limit
    return counts, cut_warning(counts["cut"], read, template.length, limit)


def _notes_of_model(
    trained: TrainedModel,
    task: Task,
    network: Network,
    added: Sequence[str],
    settings: TuneSettings,
) -> Iterator[str]:
    """Yield a note if new tokens keep random embeddings, and if likelihoods are bounds."""
    if added and not network.backbone.embedding.token.weight.requires_grad:
        yield (
            f"{', '.join(added)}: new to the model, and strategy "
            f"{kinds.name_of(settings.strategy)} leaves their embeddings as they began at random; "
            "full trains them"
        )
    if is_bound(task, trained):
        yield ABOUT_BOUND


def variants(settings: TuneSettings, *, has_frozen: bool = True) -> list[TuneSettings]:
    """Return the usual comparison: pretrained in full, pretrained and frozen, from scratch.

    Args:
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
    scores = [
        task.judge.scores(scored_outputs(task, network, part), part.targets) for part in data.dev
    ]
    return Scores("pretrained", "not tuned", means_of(scores))


def _baselines(task: Task, data: TuneData) -> tuple[list[Scores], dict[str, Array]]:
    examples, whole = data.drawn.examples, data.train.targets
    learned = [
        data.pack([examples[int(n)] for n in fold.numbers]).targets for fold in data.drawn.folds
    ] or [whole]
    dev = [part.targets for part in data.dev]
    parts = {"": list(zip(learned, dev, strict=True))}
    parts |= {f"{name}_": [(whole, part.targets)] for name, part in data.extra.items()}
    return baselines(task, parts, data.labels)


def baselines(
    task: Task, parts: Mapping[str, Sequence[tuple[Any, Any]]], labels: tuple[str, ...]
) -> tuple[list[Scores], dict[str, Array]]:
    """Return the scores of each baseline, and how far each answers dev examples correctly.

    Args:
        parts: the targets to learn from and those to score, of each fold; by what the names of
            their scores begin with, "" for the dev examples.
    """
    scores: dict[str, dict[str, MeanScore]] = {}
    correct: dict[str, list[Array]] = {}
    for prefix, pairs in parts.items():
        by_name: dict[str, list[dict[str, float]]] = {}
        for train, right in pairs:
            for name, outputs in task.judge.baselines(train, right, labels).items():
                by_name.setdefault(name, []).append(task.judge.scores(outputs, right))
                answers = task.judge.correct(outputs, right)
                if answers is not None and not prefix:
                    correct.setdefault(name, []).append(answers)
        for name, of in by_name.items():
            named = scores.setdefault(name, {})
            named |= {f"{prefix}{metric}": score for metric, score in means_of(of).items()}
    rows = [Scores("no model", name, of) for name, of in scores.items()]
    return rows, {name: np.concatenate(of)[None] for name, of in correct.items()}
