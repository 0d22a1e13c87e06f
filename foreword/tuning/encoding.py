"""What fine-tuning reads: the examples of all seeds, encoded once for a model and a task."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType

import numpy as np

from foreword.errors import UserError
from foreword.evaluation.prompting import PromptedModel
from foreword.process import allocator
from foreword.runs.continued import with_special
from foreword.runs.trained_model import TrainedModel
from foreword.tables.examples import Labelled
from foreword.text.tokenizer import Tokenizer
from foreword.tuning.answers import AnswerExamples
from foreword.tuning.backbone_dropout import has_dropout, with_dropout
from foreword.tuning.drawing import Drawn, draw
from foreword.tuning.encoded import first_inputs
from foreword.tuning.fine_tuner import TuneData, TuneSettings, scored_outputs
from foreword.tuning.input_template import InputTemplate, missing_special_tokens, template_of
from foreword.tuning.rows import PackedExamples, PooledExamples
from foreword.tuning.starting_network import build_network
from foreword.tuning.tasks._contract import Task, Whole
from foreword.tuning.writing import WritingTask
from foreword.types import Array


@dataclass(frozen=True)
class TuningExamples:
    """Examples as a model reads them.

    Attributes:
        trained: the model, with the tokens that the task adds and the dropout of the settings.
        drawn: the training examples of all seeds.
        template: the input template.
        added: the tokens that the task adds.
        data: all examples, encoded.
    """

    trained: TrainedModel
    drawn: Drawn
    template: InputTemplate
    added: tuple[str, ...]
    data: TuneData


def draw_and_encode(
    trained: TrainedModel,
    task: Task,
    variants: Sequence[TuneSettings],
    train: Sequence[Labelled],
    dev: Sequence[Labelled],
    further: Mapping[str, Sequence[Labelled]] = MappingProxyType({}),
) -> TuningExamples:
    """Draw the training examples of each seed, and encode all, once for all variants and seeds.

    Args:
        trained: the pretrained model.
        task: the task.
        variants: settings of fine-tuning; those of examples are the first one's.
        train: examples to draw from.
        dev: examples to score.
        further: more examples to score, by name.

    Raises:
        UserError: the examples do not fit the task or each other, or the task the model.
    """
    first = variants[0]
    drawn = draw(train, first.examples, max(variant.seeds for variant in variants), task)
    dropping = with_dropout(trained, first.dropout)
    read = task.training_examples(drawn.examples, has_dropout=has_dropout(dropping))
    drawn = replace(drawn, examples=read)
    added = added_tokens(trained, task)
    extended = with_special(dropping, added)
    template = template_for(extended, task, first.max_length)
    with allocator.returning_freed():
        data = encode(extended, task, drawn, dev, template, further)
        data = with_reference(extended, task, data) if task.has_reference else data
        new = [int(extended.tokenizer.encode(name, special=True)[0]) for name in added]
        data = replace(data, added=tuple(new))
    return TuningExamples(extended, drawn, template, added, data)


def template_for(trained: TrainedModel, task: Task, max_length: int | None) -> InputTemplate:
    """Return the input template of a model for a task."""
    template = template_of(trained.recipe, trained.vocab, max_length)
    if trained.tuned_head is not None:
        template = replace(template, fresh=())  # the first task has trained them
    if task.continues and trained.recipe.objective.predicts.form == "next_and_in_place":
        template = replace(template, is_causal=True)
    return template.of_tokens() if task.reads_tokens else template


def added_tokens(trained: TrainedModel, task: Task) -> tuple[str, ...]:
    """Return the special tokens that the task or the input template needs and the model lacks."""
    is_decoder = trained.recipe.objective.predicts.form in ("next", "next_and_in_place")
    if names := task.special_tokens or (task.decoder_tokens if is_decoder else ()):
        known = {*trained.tokenizer.pieces, *trained.vocab.special}
        return tuple(name for name in names if name not in known)
    return missing_special_tokens(trained.recipe, trained.vocab)


def _require_output_layer(trained: TrainedModel, name: str) -> None:
    """Check that a model still has the output layer of pretraining, which tuning removes.

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


def encode(
    trained: TrainedModel,
    task: Task,
    drawn: Drawn,
    dev: Sequence[Labelled],
    template: InputTemplate,
    further: Mapping[str, Sequence[Labelled]] = MappingProxyType({}),
) -> TuneData:
    """Encode examples for a task.

    Args:
        trained: the model, with the tokens that the task adds.
        task: the task.
        drawn: the training examples of all seeds.
        dev: examples to score.
        template: the input template.
        further: more examples to score, by name.

    Raises:
        UserError: there is no dev example, or the task does not fit the model.
    """
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
    prompted = None
    if isinstance(task, WritingTask):
        _require_output_layer(trained, "tasks that are answered in text")
        prompted = PromptedModel.of(trained)

    def pack(part: Sequence[Labelled]) -> PackedExamples:
        return scoring_examples(task, part, labels, trained.tokenizer, template, prompted)

    # Those to score come first: they are few, and their mistakes are found at once.
    scored = {name: pack(part) for name, part in {"dev": dev, **further}.items()}
    trained_on = pack(drawn.examples)
    if isinstance(trained_on, PooledExamples):
        auxiliary = task.auxiliary if template.is_causal else 0.0
        trained_on = replace(trained_on, auxiliary=auxiliary, whole=task.whole)
    numbers = drawn.numbers
    if task.whole == "input":  # what is drawn are examples, and what is trained on their inputs
        begins = first_inputs(trained_on.encoded)
        numbers = tuple(_inputs_of(one_seeds, begins) for one_seeds in numbers)
    return TuneData(trained_on, scored.pop("dev"), labels, numbers, scored)


def scoring_examples(
    task: Task,
    examples: Sequence[Labelled],
    labels: tuple[str, ...],
    tokenizer: Tokenizer,
    template: InputTemplate,
    prompted: PromptedModel | None,
) -> PooledExamples | AnswerExamples:
    """Encode examples to be scored, or to be answered in text.

    Args:
        task: the task.
        examples: with their labels.
        labels: the labels, in the order of the outputs.
        tokenizer: the model's.
        template: the input template.
        prompted: the model, if the task is answered in text.

    Raises:
        UserError: the examples do not fit the task, or a label is unknown.
    """
    targets = task.targets(examples, labels)
    encoded = task.encode(examples, tokenizer, template)
    if encoded[0].answer is not None:
        assert prompted is not None
        answers = AnswerExamples.of(prompted, encoded, template, task.whole)
        return replace(answers, targets=task.place(targets, answers.encoded))
    # Outputs do not depend on others, so scoring never needs a batch as a whole.
    whole: Whole = "input" if task.whole == "input" else "example"
    return PooledExamples(encoded, task.place(targets, encoded), template, 0.0, whole)


def with_reference(trained: TrainedModel, task: Task, data: TuneData) -> TuneData:
    """Return the examples with the untuned model's outputs as reference, computed once."""
    network = build_network(trained, task, data.labels, None).to(trained.device)

    def refer(part: PackedExamples) -> PackedExamples:
        assert isinstance(part, PooledExamples | AnswerExamples)
        targets = part.targets.with_reference(scored_outputs(task, network, part))
        return replace(part, targets=targets)

    further = {name: refer(part) for name, part in data.further.items()}
    return replace(data, train=refer(data.train), dev=refer(data.dev), further=further)


def _inputs_of(examples: Array, begins: Array) -> Array:
    """Return the inputs of some examples, whose inputs begin at `begins`."""
    return np.concatenate([np.arange(begins[n], begins[n + 1]) for n in examples])
