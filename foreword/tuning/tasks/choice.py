"""Multiple choice: one right option of several for each question."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
from scipy.special import softmax
from torch import Tensor, nn

from foreword.disk import stored
from foreword.tables.choice import COLUMNS, choice_example, question_of
from foreword.tables.columns import PREDICTION
from foreword.tables.examples import Labelled, batched
from foreword.text.tokenizer import Tokenizer
from foreword.tuning.encoded import in_columns
from foreword.tuning.input_template import InputTemplate, TemplatedText
from foreword.tuning.tasks._contract import (
    PROBABILITY,
    Answers,
    EncodedExample,
    ExampleOutputs,
    Exports,
    Inputs,
    Judge,
    Labels,
    Needs,
    OutputForm,
    RowReader,
    Targets,
    shortest,
)
from foreword.tuning.tasks._headed import PooledTask, pooled_inputs
from foreword.tuning.tasks._losses import cross_entropy_over_groups
from foreword.tuning.windows import overlapping
from foreword.types import Array, Loss

LEAST_ROOM = 4  # 1 / LEAST_ROOM of the input at least is for the context, if it has windows
OPTION, PROBABILITIES = "option", "probabilities"  # columns of answers


def _texts_of(example: Labelled) -> list[tuple[str, ...]]:
    """Return context and question, and the option, for each option."""
    question = question_of(example)
    first = f"{question.context} {question.text}" if question.context else question.text
    return [(first, option) for option in question.options]


class ChoiceJudge(Judge):
    """Accuracy, beside chance and the longest option; of options that are equal each has a part."""

    names: ClassVar[tuple[str, ...]] = ("accuracy",)

    def scores(self, outputs: Array, targets: ChoiceTargets) -> dict[str, float]:
        return {"accuracy": float(self.correct(outputs, targets).mean())}

    def correct(self, outputs: Array, targets: ChoiceTargets) -> Array:
        right = []
        for begin, end in pairwise(targets.begins):
            scores = outputs[begin:end, 0]
            is_best = scores == scores.max()
            right.append(float(targets.arrays[begin:end] @ is_best / is_best.sum()))
        return np.array(right)

    def baselines(
        self, train: ChoiceTargets, dev: ChoiceTargets, labels: Labels
    ) -> Mapping[str, Array]:
        lengths = dev.lengths.astype(np.float64)[:, None]
        return {"longest option": lengths, "chance": np.zeros_like(lengths)}


class ChoiceAnswers(Answers):
    """The likeliest option: its text, its number from 0, and its probability."""

    def types(self, labels: Labels, *, probabilities: bool, is_pair: bool) -> dict[str, Any]:
        types = {PREDICTION: pa.string(), OPTION: pa.int64(), PROBABILITY: pa.float32()}
        return {**types, PROBABILITIES: pa.list_(pa.float32())} if probabilities else types

    def row(self, result: ExampleOutputs, labels: Labels, *, probabilities: bool) -> dict[str, Any]:
        shares = softmax(result.outputs[:, 0])
        best = int(shares.argmax())
        option = question_of(result.example).options[best]
        row = {PREDICTION: option, OPTION: best, PROBABILITY: shortest(shares[best])}
        return row | ({PROBABILITIES: list(map(shortest, shares))} if probabilities else {})


@dataclass(frozen=True)
class Choice(PooledTask):
    """Multiple choice: one linear map of each option's pooled state, and a softmax over options.

    The input is (context and question, option), a pair as in `classify`; in a decoder GPT-1's form
    with a delimiter and an extract token. A context that is too long is read in windows, or cut
    where question and option leave it less than a quarter of the input. Questions may have
    different numbers of options.

    Rows have a question, a list of options and the right one: its number from 0, its letter, its
    name or its text. The layouts of RACE (its folders of articles, or rows with `article`,
    `question`, `options`, `answer`), ARC (`question`, `choices`, `answerKey`) and COPA (`premise`,
    `choice1`, `choice2`, `question`, `label`) are read as they are; `--text`, `--pair` and
    `--label` name other columns of question, options and answer.

    It is scored by accuracy, beside chance and the longest option. An option that is the best along
    with others counts in part.

    Also called: multiple choice.
    Reference: Radford et al. 2018, section 3.3; Devlin et al. 2019, section 4.4.
    """

    reader: ClassVar[RowReader] = RowReader(
        choice_example,
        COLUMNS,
        takes_texts=False,
        counted=lambda example, _: [Labelled(a, pair=b) for a, b in _texts_of(example)],
    )
    exports: ClassVar[Exports] = Exports(
        "MultipleChoice",
        "of a question that is too long transformers cuts the end, not the context",
        cuts_texts=False,
        example=lambda text, pair: Labelled(
            text, pair=stored.to_json(["", pair or "yes", f"{pair or 'yes'} {text}"])
        ),
        texts=_texts_of,
        outputs=lambda result, row, encoded, before: result.logits[row].numpy()[:, None],
        pipeline_tag="multiple-choice",
    )
    judge: ClassVar[Judge] = ChoiceJudge()
    output_form: ClassVar[OutputForm | None] = "options"
    answers: ClassVar[Answers] = ChoiceAnswers()

    @property
    def needs(self) -> Needs:
        return replace(super().needs, loss_unit="example")

    def targets(
        self, examples: Sequence[Labelled], labels: Labels, encoded: Inputs = ()
    ) -> ChoiceTargets:
        """Return for each option of each question 1 if it is right and 0 if not, float32."""
        questions = [question_of(example) for example in examples]
        right = [
            np.arange(len(question.options)) == int(example.label)
            for question, example in zip(questions, examples, strict=True)
        ]
        lengths = [[len(option) for option in question.options] for question in questions]
        begins = np.cumsum([0, *map(len, right)])
        return ChoiceTargets(
            np.concatenate(right).astype(np.float32), begins, np.concatenate(lengths)
        )

    @in_columns
    def encode(
        self, examples: Sequence[Labelled], tokenizer: Tokenizer, template: InputTemplate
    ) -> Iterator[EncodedExample]:
        """Yield an input for each option of each question."""
        for chunk in batched(examples):
            questions = [question_of(example) for example in chunk]
            contexts = tokenizer.encode_batch([q.context for q in questions])
            texts = tokenizer.encode_batch(
                [f" {q.text}" if q.context else q.text for q in questions]
            )
            options = iter(tokenizer.encode_batch([o for q in questions for o in q.options]))
            for question, context, text in zip(questions, contexts, texts, strict=True):
                for number in range(len(question.options)):
                    option = next(options)
                    windows = self._windows(context, text, option, template)
                    is_further = number > 0
                    yield from pooled_inputs(windows, template, self.pooling, is_further=is_further)

    def _windows(
        self,
        context: Sequence[int],
        text: Sequence[int],
        option: Sequence[int],
        template: InputTemplate,
    ) -> Iterator[TemplatedText]:
        """Yield a question and an option with the context, in windows if these leave room."""
        room = max(template.room - len(text) - len(option), 0)
        if self.windows == "cut" or room < template.room // LEAST_ROOM:
            inputs = template.apply([*context[:room], *text], option)
            yield replace(inputs, was_cut=inputs.was_cut or len(context) > room)
            return
        for part in overlapping(context, room):
            yield template.apply([*part, *text], option)

    def head(self, d_model: int, labels: Labels) -> nn.Module:
        return self.linear_head(d_model, 1)

    def loss(self, outputs: Tensor, targets: Tensor, numbers: Tensor) -> Loss:
        """Return the cross-entropy of the right option among those of its question, in nats."""
        return cross_entropy_over_groups(outputs, targets[:, None], numbers)


@dataclass(frozen=True)
class ChoiceTargets(Targets):
    """The right options.

    Attributes:
        arrays: 1 for a right option and 0 for a wrong one, (options,) float32.
        begins: where the options of each question begin, and where the last ones end,
            (questions + 1,) int64.
        lengths: the characters of each option, (options,) int64.
    """

    begins: Array
    lengths: Array
