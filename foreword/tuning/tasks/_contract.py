"""The contract of fine-tuning tasks, the kinds in `tuning/tasks/`.

A task is what a network learns (`Task`), and it names the small objects that read its rows
(`RowReader`), judge outputs (`Judge`), make predictions of them (`Answers`) and say which class of
`transformers` has such a head (`Exports`).
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np
import pyarrow as pa
from scipy.special import softmax
from torch import Tensor, nn

from foreword.errors import UserError
from foreword.evaluation.calibration import calibration_error, fit_temperature
from foreword.settings.ranges import Ranged
from foreword.tables.columns import PREDICTION, Columns, ReadExample, example_of
from foreword.tables.examples import Labelled
from foreword.text.tokenizer import Tokenizer
from foreword.tuning.input_template import InputTemplate
from foreword.tuning.windows import Windows
from foreword.types import Array, Loss

PROBABILITY = "probability"  # the column beside the prediction
START, END = "start", "end"  # columns: the first character in the text, and the one after the last
ENTITIES = "entities"  # the column of named entities, with the same of each
BOUND = "perplexity"  # the score that is an upper bound where its row has `is_bound`
Reduction = Literal["mean", "max"]
LossUnit = Literal["input", "example", "batch"]
OutputForm = Literal["classes", "sets", "number", "options", "vectors"]
Labels = tuple[str, ...]
Confusion = list[list[Any]]  # whole numbers


@dataclass(frozen=True)
class EncodedExample:
    """One example as token ids, or one of its inputs, if it has several.

    Attributes:
        ids: special tokens included, (length,) int64.
        segments: 0, and 1 for the second text of a pair, (length,) int64.
        pooled_positions: positions whose states the head reads, (pooled,) int64; positions in the
            decoder for an encoder-decoder.
        was_cut: whether the text was cut to the template's length.
        is_pooled: the head reads the mean of these states, or their maximum (`Needs.reduction`),
            not each of them.
        answer: the tokens to be generated, (tokens,) int64, with `ids` as the source, both without
            special tokens; None if a head reads pooled positions.
        is_further: a further input of the same example as the one before: a window of a long text,
            an option of a question.
        is_continued: a further window of the same text as the one before: the pooled states of a
            text's windows are reduced to one (`Needs.windows`), which has one output and target.
        spans: the first character of each pooled position in the text and the one after its last,
            (pooled, 2) int64, if the task answers with parts of the text.
    """

    ids: Array
    segments: Array
    pooled_positions: Array
    was_cut: bool
    is_pooled: bool = False
    answer: Array | None = None
    is_further: bool = False
    spans: Array | None = None
    is_continued: bool = False

    @property
    def written(self) -> Array:
        """The tokens that are to be written: the answer, or the one after each pooled position."""
        return self.ids[self.pooled_positions + 1] if self.answer is None else self.answer


Inputs = Sequence[EncodedExample]
Counted = Callable[[Labelled, Inputs], Sequence[Labelled | list[str]]]


@dataclass(frozen=True)
class Targets(Sequence[Any]):
    """The targets of inputs; a task's own adds what its scores need to know besides."""

    arrays: Any

    def __len__(self) -> int:
        return len(self.arrays)

    def __getitem__(self, which: Any) -> Any:
        return self.arrays[which]


class ExampleOutputs(NamedTuple):
    """An example with the outputs that a network computed for it.

    Attributes:
        outputs: the outputs for its inputs, in their order, (outputs, labels).
    """

    example: Labelled
    inputs: Sequence[EncodedExample]
    outputs: Array


@dataclass(frozen=True)
class RowReader:
    """How rows of tables become examples of a task.

    Attributes:
        read: returns the example of a row, without a label if it has none; None if the row has no
            text. It takes the values by column, which columns hold what, and where the row came
            from, for the UserError of one that is broken.
        columns: the usual columns of its tables; the first that a table has count.
        formats: endings of files that it reads as another format: {".txt": ".conll"}.
        takes_texts: whether examples are texts or pairs of texts as they stand in a table, so that
            they may have a task prefix.
        compares_texts: whether its two texts are inputs of their own, of which the second may be
            missing in some files; such a task needs no labels, and takes no task prefix.
        to_predict: returns the columns that prediction reads, given those of training.
        to_train: returns the training examples as the network is to read them, given them and
            whether the backbone has dropout in training.
        labels_of: returns the labels of an example, of which draws and folds keep the proportions,
            given its label as written.
        counted: returns for each output of an example what words are counted of, given its inputs
            too: a text, a pair, or a list of features that have names of their own.
    """

    read: ReadExample = example_of
    columns: tuple[Columns, ...] = (Columns(),)
    formats: Mapping[str, str] = field(default_factory=dict)
    takes_texts: bool = True
    compares_texts: bool = False
    to_predict: Callable[[Columns], Columns] = lambda columns: replace(columns, label="")
    to_train: Callable[[Sequence[Labelled], bool], Sequence[Labelled]] = lambda train, _: train
    labels_of: Callable[[str], Labels] = lambda label: (label,)
    counted: Counted = lambda example, inputs: [example]


@dataclass(frozen=True)
class Needs:
    """Needs of a task: of the model, and which outputs belong together.

    Attributes:
        reads_tokens: whether the head reads the states of a text's tokens: in an encoder-decoder
            those of the encoder, and not of the decoder's first token.
        mix_layers: whether the head reads a scalar mix of all layers.
        reduction: what makes one state of several that the head reads together.
        windows: what makes one state of those of a text's windows; `cut` for tasks that read no
            text so.
        auxiliary: weight of a decoder's language-model loss on the same texts, beside the task's.
        loss_unit: what has one loss, so that no micro-batch parts it: each input, all inputs of an
            example, or all examples of a batch.
        has_reference: whether the loss compares the model with the one that it starts from: the
            targets take that one's outputs (`with_reference`).
        continues: whether a text is continued, so that a model which reads both ways reads it
            causally.
        special_tokens: tokens that inputs have beside the texts; a tokenizer that lacks one gets
            it.
        decoder_tokens: the same for a model that continues text alone.
        outputs: what the outputs are, for learners that are no networks: logits of `classes`, or of
            each label of `sets`; a `number`; scores of each of the `options`, of which one of each
            example or input (`loss_unit`) is right; `vectors` to compare; None for another form.
    """

    reads_tokens: bool = False
    mix_layers: bool = False
    reduction: Reduction = "mean"
    windows: Windows = "cut"
    auxiliary: float = 0.0
    loss_unit: LossUnit = "input"
    has_reference: bool = False
    continues: bool = False
    special_tokens: tuple[str, ...] = ()
    decoder_tokens: tuple[str, ...] = ()
    outputs: OutputForm | None = None


class Judge(ABC):
    """How good outputs are. Those of all inputs stand in their order, (outputs, labels).

    Attributes:
        has_classes: whether labels are classes, and outputs a score for each.
        scores_untuned: whether a model has scores before it is tuned, since no head is new.
        lower_is_better: the scores of which the lower one is better: `perplexity`, `rmse`.
        not_shares: the scores that are not shares of 1, nor correlations: tables in percent show
            them as they are, and have no average with others.
    """

    has_classes: ClassVar[bool] = False
    scores_untuned: ClassVar[bool] = False
    lower_is_better: ClassVar[tuple[str, ...]] = ()
    not_shares: ClassVar[tuple[str, ...]] = ()

    @property
    def names(self) -> tuple[str, ...]:
        """The names that `scores` may give, so that another is refused early; () if not known."""
        return ()

    @property
    def writes(self) -> bool:
        """Whether dev examples are answered by writing, not by each token after the right ones."""
        return False

    @abstractmethod
    def scores(self, outputs: Array, targets: Any) -> dict[str, float]:
        """Return metrics by name, the most telling first.

        Args:
            targets: what `Task.targets` returned.
        """

    @abstractmethod
    def baselines(self, train: Any, dev: Any, labels: Labels) -> Mapping[str, Array]:
        """Return by name the outputs for the dev examples that are best without a network.

        Args:
            dev: the targets of the dev examples, which are not to be read for an answer.
        """

    def confusion(self, outputs: Array, targets: Any) -> Confusion | None:
        """Return how often each label (row) got each answer (column); None without classes.

        Where an example has several labels: these counts for each, (labels, 2, 2), absent first.
        """
        return None

    def correct(self, outputs: Array, targets: Any) -> Array | None:
        """Return how far each example is answered correctly, 0 to 1; None unless that is accuracy.

        Returns:
            (examples,) float64, whose mean is the accuracy.
        """
        return None

    def chosen(self, outputs: Array, targets: Any) -> Mapping[str, Any]:
        """Return the task's settings that are chosen on the outputs for the dev examples."""
        return {}

    def notes(
        self, train: Sequence[Labelled], dev: Sequence[Labelled], tokenizer: Tokenizer
    ) -> list[str]:
        """Return what a reader of the scores has to know of the examples, a line each."""
        return []


class Answers(ABC):
    """Predictions: the columns of each example's answer.

    Attributes:
        purpose: what a model that gives no labels was tuned for, for messages: "tuned to ...".
    """

    purpose: ClassVar[str] = "predict numbers, not labels"

    @abstractmethod
    def types(self, labels: Labels, *, probabilities: bool, is_pair: bool) -> dict[str, Any]:
        """Return the Arrow type of each column.

        Args:
            probabilities: whether there is a column for the probability of each label.
            is_pair: whether the examples have second texts.

        Raises:
            UserError: there are no probabilities.
        """

    @abstractmethod
    def row(self, result: ExampleOutputs, labels: Labels, *, probabilities: bool) -> dict[str, Any]:
        """Return the answer to an example, by column."""

    def rows(
        self, results: Sequence[ExampleOutputs], labels: Labels, *, probabilities: bool
    ) -> list[dict[str, Any]]:
        """Return the answer to each example, by column."""
        return [self.row(result, labels, probabilities=probabilities) for result in results]

    @property
    def fits(self) -> bool:
        """Whether examples are held out of one network's training for `fitted`."""
        return False

    def fitted(self, outputs: Array, targets: Any) -> Mapping[str, Any]:
        """Return the task's settings that are fitted on examples that were not trained on.

        These are never those to score. A temperature leaves predictions as they are.
        """
        return {}

    def calibration_error(self, outputs: Array, targets: Any) -> float:
        """Return the expected calibration error of the probabilities; nan without any."""
        return math.nan

    def at_threshold(self, threshold: float, labels: Labels) -> Mapping[str, Any]:
        """Return the task's settings that predict a label from this probability on.

        Raises:
            UserError: it has no label to which a threshold could apply.
        """
        raise UserError(
            "--threshold: is for two labels, several labels a text, or entities; here are none"
        )

    def decided(self, labels: Labels) -> str:
        """Return what a threshold decides on, in words."""
        return "a label"


class NumberAnswers(Answers):
    """The first output of each example."""

    def types(self, labels: Labels, *, probabilities: bool, is_pair: bool) -> dict[str, Any]:
        if probabilities:
            raise UserError(f"--probabilities: this model was tuned to {self.purpose}")
        return {PREDICTION: pa.float32()}

    def row(self, result: ExampleOutputs, labels: Labels, *, probabilities: bool) -> dict[str, Any]:
        return {PREDICTION: shortest(result.outputs[0, 0])}


@dataclass(frozen=True)
class LabelAnswers(Answers):
    """The likeliest label of each example and its probability, by a softmax over the labels.

    Attributes:
        temperature: divides the outputs; None if it is to be fitted.
        threshold: of two labels, the probability from which the second is predicted; None for the
            likelier one.
    """

    temperature: float | None = 1.0
    threshold: float | None = None
    purpose: ClassVar[str] = "predict one of several labels"

    def shares(self, outputs: Array) -> Array:
        """Return the probability of each label, (examples, labels)."""
        return np.asarray(softmax(outputs / (self.temperature or 1.0), axis=1))

    def numbers(self, outputs: Array) -> Array:
        """Return the number of each example's label, (examples,) int64."""
        if self.threshold is None:
            return np.asarray(outputs.argmax(axis=1))
        return np.asarray(self.shares(outputs)[:, 1] >= self.threshold, np.int64)

    def types(self, labels: Labels, *, probabilities: bool, is_pair: bool) -> dict[str, Any]:
        columns = probability_columns(labels) if probabilities else []
        return {PREDICTION: pa.string(), **dict.fromkeys([PROBABILITY, *columns], pa.float32())}

    def row(self, result: ExampleOutputs, labels: Labels, *, probabilities: bool) -> dict[str, Any]:
        (best,), (shares,) = self.numbers(result.outputs), self.shares(result.outputs)
        row = {PREDICTION: labels[best], PROBABILITY: shortest(shares[best])}
        return row | (share_columns(labels, shares) if probabilities else {})

    @property
    def fits(self) -> bool:
        return self.temperature is None

    def fitted(self, outputs: Array, targets: Array) -> Mapping[str, Any]:
        return {"temperature": fit_temperature(outputs, targets)} if self.fits else {}

    def calibration_error(self, outputs: Array, targets: Array) -> float:
        return calibration_error(self.shares(outputs), targets)

    def at_threshold(self, threshold: float, labels: Labels) -> Mapping[str, Any]:
        if len(labels) != 2:
            raise UserError(
                "--threshold: is for two labels, or several labels a text; here are "
                f"{len(labels):,}, of which one is predicted"
            )
        return {"threshold": threshold}

    def decided(self, labels: Labels) -> str:
        return f"'{labels[1]}'"


def texts_of(example: Labelled) -> tuple[str, ...]:
    """Return the text of an example, or both of a pair."""
    return (example.text,) if example.pair is None else (example.text, example.pair)


@dataclass(frozen=True)
class Exports:
    """The class of `transformers` with a task's head, and how the two are compared.

    Attributes:
        auto_class: AutoModelFor...
        note: what a user of that class has to know; "" for nothing.
        problem_type: its `problem_type` in `config.json`; "" for none.
        cuts_texts: whether a text that is too long loses its end, as with `truncation=True` there;
            others are read in windows or lose their context.
        example: returns an example made of a text or a pair.
        texts: returns the text or the pair that `transformers` reads for each input of an example.
        outputs: returns an example's outputs there, given the result, its row, its first input and
            the number of padding tokens before it.
        outputs_named: the names of its outputs.
        pipeline_tag: what the hub of `transformers` calls such a task.
    """

    auto_class: str
    note: str = ""
    problem_type: str = ""
    cuts_texts: bool = True
    example: Callable[[str, str | None], Labelled] = lambda text, pair: Labelled(text, pair=pair)
    texts: Callable[[Labelled], list[tuple[str, ...]]] = lambda example: [texts_of(example)]
    outputs: Callable[[Any, int, EncodedExample, int], Array] = (
        lambda result, row, encoded, before: result.logits[row].numpy()[None]
    )
    outputs_named: tuple[str, ...] = ("logits",)
    pipeline_tag: str = "text-classification"


@dataclass(frozen=True)
class Task(Ranged, ABC):
    """A task learned from labelled texts: a kind in `tuning/tasks/`.

    Attributes:
        reader: how rows become its examples.
        exports: the class of `transformers` with such a head; None for none.
    """

    reader: ClassVar[RowReader] = RowReader()
    exports: ClassVar[Exports | None] = None

    @property
    def needs(self) -> Needs:
        """Needs of the model and of a batch."""
        return Needs()

    @property
    @abstractmethod
    def judge(self) -> Judge:
        """The scores and baselines."""

    @property
    def answers(self) -> Answers:
        """The predictions; by default a label, or a number if labels are not classes."""
        return LabelAnswers() if self.judge.has_classes else NumberAnswers()

    def for_examples(self, columns: Columns, train: Sequence[Labelled]) -> Task:
        """Return the task that follows from the training examples and their columns.

        Raises:
            UserError: a setting does not fit them.
        """
        return self

    def labels(self, train: Sequence[Labelled]) -> Labels:
        """Return what the head and the answers have to know of the training examples.

        These are, by task:

        - the classes, in the order of the outputs (`classify`, `tag`: `has_classes`);
        - what shapes the outputs: the least and the greatest number (`regress`), or the names of
          both outputs and whether some questions have no answer (`span`);
        - the answers that a model may write (`text_to_text`).

        By default (): the outputs have no names.

        Raises:
            UserError: the training examples are too few or of another sort.
        """
        return ()

    @abstractmethod
    def encode(
        self, examples: Sequence[Labelled], tokenizer: Tokenizer, template: InputTemplate
    ) -> Sequence[EncodedExample]:
        """Return each example as ids, in one input or several.

        Raises:
            UserError: an example does not fit the others or the model, or has no token.
        """

    @abstractmethod
    def targets(self, examples: Sequence[Labelled], labels: Labels, encoded: Inputs = ()) -> Any:
        """Return the target of each input, (inputs,), or of each of its outputs: (outputs,) each.

        The windows of a text that `is_continued` have one target. A target may be several numbers,
        (outputs, numbers) each. Scores get what this returns; a task whose scores need more returns
        `Targets` of its own.

        Raises:
            UserError: a label is not in `labels`.
        """

    def prepared(self, targets: Any, labels: Labels) -> Task:
        """Return the task with settings that follow from the targets of training.

        Raises:
            UserError: settings do not fit the labels.
        """
        return self

    @abstractmethod
    def head(self, d_model: int, labels: Labels) -> nn.Module | None:
        """Return the head, (outputs, d_model) -> (outputs, labels), not yet initialised.

        None if the task answers in text: the head is then the output layer of pretraining.
        """

    @abstractmethod
    def loss(self, outputs: Tensor, targets: Tensor, numbers: Tensor) -> Loss:
        """Return the loss, a sum and a count.

        Args:
            outputs: the head's, (outputs, labels); of a task that answers in text, the
                cross-entropy that the output layer of pretraining computed, in nats.
            targets: (outputs,).
            numbers: which of them belong together: the number of the input, or of the example if
                `Needs.loss_unit` says that it is not parted, (outputs,) int64, in ascending order.
        """


def require_score(task: Task, name: str, setting: str) -> None:
    """Raise ValueError unless a score that a setting names may be one of a task's."""
    names = task.judge.names
    if name and names and name not in names:
        raise ValueError(f"{setting}: '{name}' is not a score of this task: {', '.join(names)}")


def probability_columns(labels: Sequence[str]) -> list[str]:
    """Return the names of the columns of each label's probability."""
    return [f"{PROBABILITY}_{label}" for label in labels]


def share_columns(labels: Sequence[str], shares: Array) -> dict[str, float]:
    """Return the probability of each label, (labels,), by the name of its column."""
    return dict(zip(probability_columns(labels), map(shortest, shares), strict=True))


def shortest(number: Any) -> float:
    """Return a float32 as the float64 of fewest digits that it rounds from."""
    return float(str(np.float32(number)))
