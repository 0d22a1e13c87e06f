"""Fine-tuning in reading order: encode once, train each variant with each seed, summarise."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np

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
from foreword.tuning.features import fits_in_memory
from foreword.tuning.fine_tuner import (
    TuneData,
    TuneSettings,
    scored_outputs,
)
from foreword.tuning.input_template import InputTemplate, missing_special_tokens, template_of
from foreword.tuning.labelled import Labelled
from foreword.tuning.network import Network
from foreword.tuning.result import Row, TuneResult, chosen_metric, summarise
from foreword.tuning.rows import PackedExamples, PooledExamples
from foreword.tuning.seeds import ReportProgress, SeedTrainer, Variant, stuck_notes
from foreword.tuning.starting_network import build_network
from foreword.tuning.tasks._contract import Task, Whole
from foreword.tuning.unfinished import FinishedSeeds
from foreword.types import Array

__all__ = ["TuneSettings", "tune", "variants"]

FURTHER = "further "  # before the names of further examples, next to train and dev


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
    if task.whole == "batch" and min(variants[0].batch, len(train)) < 2:
        raise UserError(
            "--batch: this task compares the examples of a batch; at least 2 are needed"
        )
    # Draw the examples of each seed; encode them once, for all variants and seeds.
    seeds = max(variant.seeds for variant in variants)
    train, dev = _with_sources(train, "training"), _with_sources(dev, "dev")
    drawn = draw(train, variants[0].examples, seeds, task)
    dropping = with_dropout(trained, variants[0].dropout)
    read = task.training_examples(drawn.examples, has_dropout=has_dropout(dropping))
    drawn = replace(drawn, examples=read)
    added = added_tokens(trained, task)
    extended = with_special(dropping, added)
    template = template_for(extended, task, variants[0].max_length)
    with allocator.returning_freed():
        data = _encode(extended, task, drawn, dev, template, further)
        data = _with_reference(extended, task, data) if task.has_reference else data
        new = [int(extended.tokenizer.encode(name, special=True)[0]) for name in added]
        data = replace(data, added=tuple(new))
    baselines = _baseline_rows(task, data)
    for variant, row in itertools.product(variants, baselines):
        if variant.metric not in task.score_names:  # which a baseline may lack
            chosen_metric(row, variant.metric)
    # Train every seed, but for those that an earlier call finished.
    examples = {"train": train, "dev": dev, **further}
    settings_of_model = neural_settings(trained.recipe.model)
    caches = not task.writes and fits_in_memory(settings_of_model, task, data.train, data.dev)
    seeds_of = [
        Variant(variant, FinishedSeeds.of(unfinished, trained, task, variant, examples))
        for variant in variants
    ]
    prepared = task.prepared(data.train.targets, data.labels)
    found = SeedTrainer(extended, prepared, data, seeds_of, caches, report, scored).train()
    stuck = stuck_notes(found.finals, baselines, variants[0].metric)
    if task.scores_untuned:
        baselines = [_untuned_row(extended, task, data), *baselines]
    if len(variants) > 1 and task.has_classes:
        words = bags_of_words(task, drawn, dev)
        baselines = [*([summarise(words)] if words else []), *baselines]
    cut = sum(example.was_cut for part in (data.train, data.dev) for example in part.encoded)
    return TuneResult(
        task=found.task,
        labels=data.labels,
        template=template,
        recipe=trained.recipe,
        tokenizer=extended.tokenizer,
        network=found.network,
        rows=[*found.rows, *baselines],
        epochs=found.epochs,
        settings={"task": {"kind": kinds.name_of(task), **to_table(task)}, **to_table(variants[0])},
        examples={
            "train": len(drawn.numbers[0]),
            **({} if variants[0].examples is None else {"drawn_from": drawn.total}),
            "dev": len(dev),
            "cut": cut,
            "skipped": 0,
        },
        notes=(*found.notes, *stuck, *_untrained_notes(found.network, added, variants[0])),
        confusion=found.confusion,
        resumed=found.resumed,
    )


def template_for(trained: TrainedModel, task: Task, max_length: int | None) -> InputTemplate:
    """Return the input template of a model for a task."""
    template = template_of(trained.recipe, trained.vocab, max_length)
    if trained.tuned_head is not None:
        template = replace(template, fresh=())  # the first task has trained them
    if task.continues and trained.recipe.objective.predicts == "next_and_in_place":
        template = replace(template, is_causal=True)
    return template.of_tokens() if task.reads_tokens else template


def _untrained_notes(
    network: Network, added: Sequence[str], settings: TuneSettings
) -> Iterator[str]:
    """Yield that tokens which are new to the model keep their first embeddings, if they do."""
    if added and not network.backbone.embedding.token.weight.requires_grad:
        yield (
            f"{', '.join(added)}: new to the model, and strategy "
            f"{kinds.name_of(settings.strategy)} leaves their embeddings as they began at random; "
            "full trains them"
        )


def added_tokens(trained: TrainedModel, task: Task) -> tuple[str, ...]:
    """Return the special tokens that the task or the input template needs and the model lacks."""
    if task.special_tokens:
        known = {*trained.tokenizer.pieces, *trained.vocab.special}
        return tuple(name for name in task.special_tokens if name not in known)
    return missing_special_tokens(trained.recipe, trained.vocab)


def _require_output_layer(trained: TrainedModel, name: str) -> None:
    """Check that a model has the output layer of pretraining, which a tuned one has no more.

    Args:
        trained: the model.
        name: what needs it.

    Raises:
        UserError: it has none.
    """
    if trained.tuned_head is not None:
        raise UserError(
            f"{name}: requires the output layer of pretraining, which the tuned model "
            f"{trained.name} no longer has; name the run that it was tuned from"
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


def _encode(
    trained: TrainedModel,
    task: Task,
    drawn: Drawn,
    dev: Sequence[Labelled],
    template: InputTemplate,
    further: Mapping[str, Sequence[Labelled]] = MappingProxyType({}),
) -> TuneData:
    train = drawn.examples
    if not dev:
        raise UserError("there is no dev example to score")
    if task.mix_layers and (template.start is not None or trained.recipe.layout.start):
        raise UserError(
            "task.mix_layers: is for models of one stack; an encoder-decoder's head reads the "
            "decoder's first token"
        )
    if task.auxiliary and template.is_causal:
        _require_output_layer(trained, "task.auxiliary")
    labels = drawn.labels
    parts = {"train": train, "dev": dev, **{FURTHER + name: p for name, p in further.items()}}
    targets = {name: task.targets(part, labels) for name, part in parts.items()}
    encoded = {name: task.encode(part, trained.tokenizer, template) for name, part in parts.items()}
    numbers = drawn.numbers
    if task.whole == "input":  # what is drawn are examples, and what is trained on their inputs
        begins = first_inputs(encoded["train"])
        numbers = tuple(_inputs_of(one_seeds, begins) for one_seeds in numbers)
    if encoded["train"][0].answer is not None:
        _require_output_layer(trained, "tasks that are answered in text")
        prompted = PromptedModel.of(trained)
        answered: dict[str, PackedExamples] = {}
        for name in parts:
            answers = AnswerExamples.of(prompted, encoded[name], template, task.whole)
            placed = task.place(targets[name], answers.encoded)
            answered[name] = replace(answers, targets=placed)
        return _data_of(answered, labels, numbers)
    # Outputs do not depend on others, so scoring never needs a batch as a whole.
    scored_whole: Whole = "input" if task.whole == "input" else "example"
    packed: dict[str, PackedExamples] = {
        name: PooledExamples(
            encoded[name],
            task.place(targets[name], encoded[name]),
            template,
            task.auxiliary if name == "train" and template.is_causal else 0.0,
            task.whole if name == "train" else scored_whole,
        )
        for name in parts
    }
    return _data_of(packed, labels, numbers)


def _with_reference(trained: TrainedModel, task: Task, data: TuneData) -> TuneData:
    """Return the examples with what the model computes for them before it is tuned, once."""
    network = build_network(trained, task, data.labels, None).to(trained.device)

    def refer(part: PackedExamples) -> PackedExamples:
        assert isinstance(part, PooledExamples | AnswerExamples)
        targets = part.targets.with_reference(scored_outputs(task, network, part))
        return replace(part, targets=targets)

    further = {name: refer(part) for name, part in data.further.items()}
    return replace(data, train=refer(data.train), dev=refer(data.dev), further=further)


def _data_of(
    parts: dict[str, PackedExamples], labels: tuple[str, ...], numbers: tuple[Array, ...]
) -> TuneData:
    train, dev = parts.pop("train"), parts.pop("dev")
    further = {name.removeprefix(FURTHER): part for name, part in parts.items()}
    return TuneData(train, dev, labels, numbers, further)


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
    outputs = scored_outputs(task, network, data.dev)
    scores = task.scores(outputs, data.dev.targets)
    return summarise([{"start": "pretrained", "strategy": "not tuned", **scores}])


def _baseline_rows(task: Task, data: TuneData) -> list[Row]:
    parts = {"": data.dev, **{f"{name}_": part for name, part in data.further.items()}}
    rows: dict[str, Row] = {}
    for prefix, part in parts.items():
        found = task.baselines(data.train.targets, part.targets, data.labels)
        for name, outputs in found.items():
            row = rows.setdefault(name, {"start": "no model", "strategy": name})
            scores = task.scores(outputs, part.targets)
            row |= {f"{prefix}{metric}": score for metric, score in scores.items()}
    return [summarise([row]) for row in rows.values()]
