"""What fine-tuning reads: the examples of all seeds, encoded once for a model and a task."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from foreword.errors import UserError
from foreword.process import allocator
from foreword.runs.continued import with_special
from foreword.runs.trained_model import TrainedModel
from foreword.tables.examples import Labelled
from foreword.text.tokenizer import Tokenizer
from foreword.tuning.answers import AnswerExamples
from foreword.tuning.drawing import DrawnExamples, ScoredSplit, draw, folds, held_out
from foreword.tuning.encoded import first_inputs, first_windows
from foreword.tuning.input_template import InputTemplate, missing_special_tokens, template_of
from foreword.tuning.job import Examples
from foreword.tuning.outputs import scored_outputs
from foreword.tuning.packed_examples import PackedExamples, PooledExamples
from foreword.tuning.settings import TuneSettings
from foreword.tuning.starting_network import build_network, has_dropout, with_dropout
from foreword.tuning.tasks._contract import LossUnit, Task
from foreword.tuning.tasks._writing import DECODER_TOKENS, WritingTask
from foreword.types import Array


class Draw(NamedTuple):
    """What one training reads, and what it is scored on.

    Attributes:
        name: what it is called: "seed 1", "fold 2".
        seed: seed of the head, the order of examples, dropout, and random weights.
        numbers: which of `TuneData.train` it trains on, (examples,) int64; of its inputs, if each
            stands for itself (see `PackedExamples.loss_unit`).
        dev: the examples to score; None for none.
        held: which training examples these are, (examples,) int64; None if they are others.
    """

    name: str
    seed: int
    numbers: Array
    dev: PackedExamples | None
    held: Array | None = None


@dataclass(frozen=True)
class TuneData:
    """The examples as a model reads them, the same for every seed and all settings.

    Attributes:
        trained: the model, with the tokens that the task adds and the dropout of the settings.
        drawn: the training examples of all seeds.
        draws: the trainings that are scored: a seed or a fold each.
        held_out: one more, scored on examples held out of the first seed's, to fit probabilities
            on; None for none.
        whole: one on all examples that is not scored, whose network is saved, after folds; or None.
        extra: more examples to score when training has ended, by name.
        added: tokens that the task or the template added to the vocabulary.
    """

    trained: TrainedModel
    drawn: DrawnExamples
    template: InputTemplate
    train: PackedExamples
    draws: tuple[Draw, ...]
    held_out: Draw | None
    whole: Draw | None
    extra: Mapping[str, PackedExamples]
    task: Task
    added: tuple[str, ...] = ()

    @property
    def dev(self) -> list[PackedExamples]:
        """The examples that are scored: of all folds, or those of every seed."""
        parts = [draw.dev for draw in self.draws if draw.dev is not None]
        return parts if self.drawn.folds else parts[:1]

    @property
    def labels(self) -> tuple[str, ...]:
        """The labels, in the order of the head's outputs."""
        return self.drawn.labels

    @property
    def new_tokens(self) -> list[int]:
        """The ids of the tokens that were added."""
        encode = self.trained.tokenizer.encode
        return [int(encode(name, special=True)[0]) for name in self.added]

    def trainings(self, settings: TuneSettings) -> tuple[Draw, ...]:
        """Return the trainings of a variant that are scored."""
        return self.draws if self.drawn.folds else self.draws[: settings.seeds]

    def pack(self, examples: Sequence[Labelled]) -> PackedExamples:
        """Encode examples to be scored."""
        tokenizer = self.trained.tokenizer
        return scoring_examples(
            self.task, examples, self.labels, tokenizer, self.template, self.trained
        )


def count_steps(draw: Draw, settings: TuneSettings) -> int:
    """Return the steps of a training."""
    return settings.epochs * -(-len(draw.numbers) // settings.batch)


def draw_and_encode(
    trained: TrainedModel,
    task: Task,
    variants: Sequence[TuneSettings],
    examples: Examples,
    *,
    holds_out: bool = False,
) -> TuneData:
    """Draw the training examples of each seed, and encode all, once for all variants and seeds.

    Args:
        variants: settings of fine-tuning; those of examples are the first one's.

    Raises:
        UserError: the examples do not fit the task or each other, or the task the model.
    """
    first = variants[0]
    seeds = 1 if first.folds else max(v.seeds for v in variants)
    drawn = draw(examples.train, first.examples, seeds, task)
    if first.folds is not None:
        drawn = replace(drawn, folds=folds(drawn.examples, first.folds, task))
    split = held_out(drawn.numbers[0], drawn.examples, task) if holds_out else None
    dropping = with_dropout(trained, first.dropout)
    added = added_tokens(trained, task)
    extended = with_special(dropping, added)
    template = template_for(extended, task, first.max_length)
    with allocator.returning_freed():
        data = _encode(extended, task, drawn, split, examples, template)
        data = _with_reference(task, data) if task.needs.has_reference else data
    return replace(data, added=added)


def template_for(trained: TrainedModel, task: Task, max_length: int | None) -> InputTemplate:
    """Return the input template of a model for a task."""
    template = template_of(trained.recipe, trained.vocab, max_length)
    if trained.tuned_head is not None:
        template = replace(template, fresh=())  # the first task has trained them
    predicts = trained.recipe.objective.predicts
    if task.needs.continues and predicts.form == "next_and_in_place":
        template = replace(template, is_causal=True)
    # A head that reads tokens reads those of the encoder, if there is one.
    return replace(template, start=None) if task.needs.reads_tokens else template


def added_tokens(trained: TrainedModel, task: Task) -> tuple[str, ...]:
    """Return the special tokens that the task or the input template needs and the model lacks."""
    names = task.needs.special_tokens
    if isinstance(task, WritingTask) and trained.unmasks:  # text and answer in one row
        names = tuple(dict.fromkeys((*names, *DECODER_TOKENS)))
    elif trained.continues:
        names = names or task.needs.decoder_tokens
    if names:
        known = {*trained.tokenizer.pieces, *trained.vocab.special}
        return tuple(name for name in names if name not in known)
    return missing_special_tokens(trained.recipe, trained.vocab)


def _require_output_layer(trained: TrainedModel, name: str) -> None:
    """Check that a model still has the output layer of pretraining, which tuning removes."""
    if trained.tuned_head is not None:
        raise UserError(
            f"{name}: requires the output layer of pretraining, which the tuned model "
            f"{trained.name} no longer has; name the run that it was tuned from"
        )


def _encode(
    trained: TrainedModel,
    task: Task,
    drawn: DrawnExamples,
    split: ScoredSplit | None,
    examples: Examples,
    template: InputTemplate,
) -> TuneData:
    """Encode examples for a task; the model has the tokens that the task adds."""
    needs = task.needs
    if not examples.dev and not drawn.folds:
        raise UserError("there is no dev example to score")
    if needs.mix_layers and (template.start is not None or trained.recipe.layout.start):
        raise UserError(
            "task.mix_layers: is for models of one stack; an encoder-decoder's head reads the "
            "decoder's first token"
        )
    if needs.auxiliary and template.is_causal:
        _require_output_layer(trained, "task.auxiliary")
    if isinstance(task, WritingTask):
        _require_output_layer(trained, "tasks that are answered in text")

    def pack(part: Sequence[Labelled]) -> PackedExamples:
        return scoring_examples(task, part, drawn.labels, trained.tokenizer, template, trained)

    def pack_held(split: ScoredSplit) -> PackedExamples:
        return pack([drawn.examples[int(n)] for n in split.held])

    # Those to score come first: they are few, and their mistakes are found at once.
    dev = None if drawn.folds else pack(examples.dev)
    extra = {name: pack(e) for name, e in examples.extra.items()}
    train = pack(task.reader.to_train(drawn.examples, has_dropout(trained)))
    if isinstance(train, PooledExamples):
        auxiliary = needs.auxiliary if template.is_causal else 0.0
        train = replace(train, auxiliary=auxiliary, loss_unit=needs.loss_unit)
    begins = np.searchsorted(first_windows(train.encoded), first_inputs(train.encoded))

    def inputs(numbers: Array) -> Array:  # examples are drawn, and their texts or inputs trained on
        if needs.loss_unit != "input":
            return numbers
        return np.concatenate([np.arange(begins[n], begins[n + 1]) for n in numbers])

    draws = [Draw(f"seed {n}", n, inputs(d), dev) for n, d in enumerate(drawn.numbers, 1)]
    whole = Draw("all examples", 1, inputs(drawn.numbers[0]), None) if drawn.folds else None
    if drawn.folds:
        draws = [
            Draw(f"fold {n}", n, inputs(fold.numbers), pack_held(fold), fold.held)
            for n, fold in enumerate(drawn.folds, 1)
        ]
    apart = split and Draw("held out", 1, inputs(split.numbers), pack_held(split), split.held)
    return TuneData(trained, drawn, template, train, tuple(draws), apart, whole, extra, task)


def scoring_examples(
    task: Task,
    examples: Sequence[Labelled],
    labels: tuple[str, ...],
    tokenizer: Tokenizer,
    template: InputTemplate,
    prompted: TrainedModel | None,
) -> PooledExamples | AnswerExamples:
    """Encode examples to be scored, or to be answered in text.

    Args:
        prompted: the model; None for one that does not answer in text.

    Raises:
        UserError: the examples do not fit the task, or a label is unknown.
    """
    encoded = task.encode(examples, tokenizer, template)
    if encoded[0].answer is not None:
        assert prompted is not None and isinstance(task, WritingTask)
        most = task.max_tokens
        if most is None and not task.judge.writes:
            most = task.most_tokens(labels, prompted)
        answers = AnswerExamples.of(prompted, encoded, template, task.needs.loss_unit, most)
        return replace(answers, targets=task.targets(examples, labels, answers.encoded))
    # Outputs do not depend on others, so scoring never needs a batch as a whole.
    unit: LossUnit = "input" if task.needs.loss_unit == "input" else "example"
    return PooledExamples(encoded, task.targets(examples, labels, encoded), template, 0.0, unit)


def _with_reference(task: Task, data: TuneData) -> TuneData:
    """Return the examples with the untuned model's outputs as reference, computed once."""
    network = build_network(data.trained, task, data.labels, None).to(data.trained.device)

    def refer(part: PackedExamples) -> PackedExamples:
        assert isinstance(part, PooledExamples | AnswerExamples)
        targets = part.targets.with_reference(scored_outputs(task, network, part))
        return replace(part, targets=targets)

    dev = {id(part): refer(part) for part in data.dev}
    draws = tuple(draw._replace(dev=dev[id(draw.dev)]) for draw in data.draws)
    extra = {name: refer(part) for name, part in data.extra.items()}
    return replace(data, train=refer(data.train), draws=draws, extra=extra)
