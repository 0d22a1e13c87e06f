"""Multiple choice: one right option of several for each question."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from numbers import Real
from typing import Any, ClassVar, NamedTuple

import numpy as np
import pyarrow as pa
from scipy.special import softmax
from torch import Tensor, nn

from foreword import stored
from foreword.errors import UserError
from foreword.text.tokenizer import Tokenizer
from foreword.tuning.examples import EncodedTexts, batched
from foreword.tuning.group_loss import cross_entropy_over_groups
from foreword.tuning.input_template import InputTemplate
from foreword.tuning.labelled import Columns, Labelled, label_of, text_of
from foreword.tuning.pooled import PooledTask
from foreword.tuning.tasks._contract import (
    PREDICTION,
    PROBABILITY,
    EncodedExample,
    ExampleOutputs,
    Whole,
    shortest,
)
from foreword.types import Array, Loss

CONTEXTS = ("article", "context", "passage")  # columns of a text that the question is about
COPA = {"cause": "What was the cause?", "effect": "What was the effect?"}
OPTION, PROBABILITIES = "option", "probabilities"  # columns of answers


@dataclass(frozen=True)
class Choice(PooledTask):
    """Multiple choice: one linear map of each option's pooled state, and a softmax over options.

    The input is (context and question, option), a pair as in `classify`; in a decoder GPT-1's form
    with a delimiter and an extract token. Where it is too long, the context is cut. Questions may
    have different numbers of options.

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

    reads_texts: ClassVar[bool] = False
    cuts_texts: ClassVar[bool] = False
    whole: ClassVar[Whole] = "example"
    auto_class: ClassVar[str] = "MultipleChoice"
    export_note: ClassVar[str] = (
        "of a question that is too long Foreword cuts the context; transformers cuts the end"
    )
    columns: ClassVar[tuple[Columns, ...]] = (
        Columns("question", "answer", "options"),
        Columns("question", "answerKey", "choices"),
        Columns("query", "gold", "choices"),
        Columns("premise", "label", "choice1"),
        Columns("question", "answerKey", "question"),
        Columns("question", "answer", "choices"),
    )

    # -- examples ----------------------------------------------------------------------------------

    def example(self, row: Mapping[str, Any], columns: Columns, source: str) -> Labelled | None:
        """Return the question of a row.

        Raises:
            UserError: there are fewer than two options, one is empty, or the answer is none.
        """
        options, names, are_texts = _options(row, columns, source)
        question = row.get(columns.text)
        question = question.get("stem") if isinstance(question, Mapping) else question
        if columns.pair == "choice1":  # COPA asks in another column
            relation = text_of(row.get("question"), source)
            question = f"{text_of(question, source)} {COPA.get(relation, relation)}".strip()
        text = text_of(question, source)
        if not text.strip():
            return None
        if len(options) < 2:
            raise UserError(f"{source}: expected at least two options, got {len(options)}")
        for number, option in enumerate(options):
            if not option.strip():
                raise UserError(f"{source}: option {number} is empty")
        context = " ".join(text_of(row[c], source) for c in CONTEXTS if row.get(c) is not None)
        given = row.get(columns.label) if columns.label else None
        answer = label_of(given, source).strip()
        # A number beside options that are texts is none of them, but counts them from 0.
        if isinstance(given, Real) and are_texts and answer.isdecimal():
            label = str(_in_range(int(answer), answer, options, source))
        else:
            label = str(_number_of(answer, options, names, source)) if answer else ""
        pair = stored.to_json([context, *options])
        return Labelled(text, label, pair, source)

    def example_of_texts(self, text: str, pair: str | None) -> Labelled:
        """Return a question with two options."""
        options = [pair or "yes", f"{pair or 'yes'} {text}"]
        return Labelled(text, pair=stored.to_json(["", *options]))

    def plain_texts(self, example: Labelled) -> list[tuple[str, ...]]:
        """Return context and question, and the option, for each option."""
        question = question_of(example)
        first = f"{question.context} {question.text}" if question.context else question.text
        return [(first, option) for option in question.options]

    def labels(self, train: Sequence[Labelled]) -> tuple[str, ...]:
        """Return nothing: an option is scored, whatever it is called."""
        return ()

    def targets(self, examples: Sequence[Labelled], labels: tuple[str, ...]) -> ChoiceTargets:
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

    def encode(
        self, examples: Sequence[Labelled], tokenizer: Tokenizer, template: InputTemplate
    ) -> Sequence[EncodedExample]:
        """Return an input for each option of each question."""
        is_pooled = self.is_reduced(template)

        def encoded() -> Iterator[EncodedExample]:
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
                        room = max(template.room - len(text) - len(option), 0)
                        inputs = template.apply([*context[:room], *text], option)
                        yield EncodedExample(
                            inputs.ids,
                            inputs.segments,
                            template.pooled_positions(inputs, self.pooling),
                            inputs.was_cut or len(context) > room,
                            is_pooled,
                            is_further=number > 0,
                        )

        return EncodedTexts.of(encoded())

    # -- learning ----------------------------------------------------------------------------------

    def head(self, d_model: int, labels: tuple[str, ...]) -> nn.Module:
        """Return the head, (options, d_model) -> (options, 1)."""
        return self.linear_head(d_model, 1)

    def loss(self, outputs: Tensor, targets: Tensor, numbers: Tensor) -> Loss:
        """Return the cross-entropy of the right option among those of its question, in nats."""
        return cross_entropy_over_groups(outputs, targets[:, None], numbers)

    # -- answers -----------------------------------------------------------------------------------

    @property
    def score_names(self) -> tuple[str, ...]:
        return ("accuracy",)

    def scores(self, outputs: Array, targets: ChoiceTargets) -> dict[str, float]:
        """Return the accuracy.

        Args:
            outputs: (options, 1).
            targets: the targets of the same options.
        """
        return {"accuracy": float(self.correct(outputs, targets).mean())}

    def correct(self, outputs: Array, targets: ChoiceTargets) -> Array:
        """Return how far each question is answered correctly: in part if options are equal."""
        right = []
        for begin, end in pairwise(targets.begins):
            scores = outputs[begin:end, 0]
            is_best = scores == scores.max()
            right.append(float(targets.right[begin:end] @ is_best / is_best.sum()))
        return np.array(right)

    def baselines(
        self, train: ChoiceTargets, dev: ChoiceTargets, labels: tuple[str, ...]
    ) -> Mapping[str, Array]:
        """Return chance, and the length of each option in characters: the longest one wins."""
        lengths = dev.lengths.astype(np.float64)[:, None]
        return {"longest option": lengths, "chance": np.zeros_like(lengths)}

    def answer_types(
        self, labels: tuple[str, ...], *, probabilities: bool, is_pair: bool = False
    ) -> dict[str, Any]:
        """Return the types of the option's text, its number from 0, and its probability."""
        types = {PREDICTION: pa.string(), OPTION: pa.int64(), PROBABILITY: pa.float32()}
        return {**types, PROBABILITIES: pa.list_(pa.float32())} if probabilities else types

    def answers(
        self, results: Sequence[ExampleOutputs], labels: tuple[str, ...], *, probabilities: bool
    ) -> list[dict[str, Any]]:
        """Return the likeliest option of each question."""
        rows = []
        for result in results:
            shares = softmax(result.outputs[:, 0])
            best = int(shares.argmax())
            option = question_of(result.example).options[best]
            row = {PREDICTION: option, OPTION: best, PROBABILITY: shortest(shares[best])}
            more = {PROBABILITIES: [shortest(share) for share in shares]} if probabilities else {}
            rows.append(row | more)
        return rows


@dataclass(frozen=True)
class ChoiceTargets(Sequence[Any]):
    """The right options.

    Attributes:
        right: 1 for a right option and 0 for a wrong one, (options,) float32.
        begins: where the options of each question begin, and where the last ones end,
            (questions + 1,) int64.
        lengths: the characters of each option, (options,) int64.
    """

    right: Array
    begins: Array
    lengths: Array

    def __len__(self) -> int:
        return len(self.right)

    def __getitem__(self, which: Any) -> Any:
        return self.right[which]


class ChoiceQuestion(NamedTuple):
    """A question with its options, and the text it is about, "" for none."""

    context: str
    text: str
    options: list[str]


def question_of(example: Labelled) -> ChoiceQuestion:
    """Return the parts of an example of multiple choice."""
    context, *options = json.loads(example.pair or '[""]')
    return ChoiceQuestion(context, example.text, options)


class _Options(NamedTuple):
    """The options of a row.

    Attributes:
        texts: the options.
        names: their names; None if they have none.
        are_texts: whether they have no names and are written as texts, not as numbers.
    """

    texts: list[str]
    names: list[str] | None
    are_texts: bool


def _options(row: Mapping[str, Any], columns: Columns, source: str) -> _Options:
    """Return the options of a row.

    Raises:
        UserError: there is no list of options.
    """

    def named(texts: Iterable[Any], names: Iterable[Any]) -> _Options:
        texts = [text_of(text, source) for text in texts]
        return _Options(texts, [label_of(name, source) for name in names], False)

    options = row.get(columns.pair)
    if columns.pair == "choice1":  # COPA has a column for each
        columns_of_options = (row.get(f"choice{n}") for n in range(1, 10))
        options = [option for option in columns_of_options if option is not None]
    options = options.get("choices", options) if isinstance(options, Mapping) else options
    if isinstance(options, Mapping):  # {"text": [...], "label": [...]}
        return named(options.get("text") or (), options.get("label") or ())
    if not isinstance(options, list | tuple | np.ndarray):
        raise UserError(f"{source}: '{columns.pair}' is not a list of options")
    if all(isinstance(option, Mapping) for option in options):
        return named(
            [option.get("text") for option in options], [option.get("label") for option in options]
        )
    are_texts = all(isinstance(option, str) for option in options)
    return _Options([text_of(option, source) for option in options], None, are_texts)


def _number_of(answer: str, options: Sequence[str], names: list[str] | None, source: str) -> int:
    """Return the number of an answer, given as text: by name, number, text or letter.

    Raises:
        UserError: it is none of the options, or may be several.
    """
    if names is not None and answer in names:
        return names.index(answer)
    may_be = {number for number, option in enumerate(options) if option == answer}
    if answer.isdecimal() and not names and int(answer) < len(options):
        may_be.add(int(answer))
    if len(may_be) > 1:
        several = " and ".join(f"'{options[number]}'" for number in sorted(may_be))
        raise UserError(
            f"{source}: the answer '{answer}' may be option {several}; give its letter, or its "
            "number from 0 as a number"
        )
    if may_be:
        return may_be.pop()
    number = -1
    if len(answer) == 1 and answer.isascii() and answer.isupper() and not names:
        number = ord(answer) - ord("A")
    return _in_range(number, answer, options, source)


def _in_range(number: int, answer: object, options: Sequence[str], source: str) -> int:
    """Return the number of an option.

    Raises:
        UserError: there is no such option.
    """
    if not 0 <= number < len(options):
        raise UserError(f"{source}: the answer '{answer}' is none of the {len(options)} options")
    return number
