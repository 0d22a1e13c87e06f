"""The contract of fine-tuning tasks, the kinds in `tuning/tasks/`."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np
import pyarrow as pa
from scipy.special import softmax
from torch import Tensor, nn

from foreword.errors import UserError
from foreword.settings.ranges import Ranged
from foreword.tables.columns import PREDICTION, Columns, ReadExample, example_of
from foreword.tables.examples import Labelled
from foreword.text.tokenizer import Tokenizer
from foreword.tuning.input_template import InputTemplate
from foreword.types import Array, Loss

PROBABILITY = "probability"  # the column beside the prediction
Reduction = Literal["mean", "max"]
Whole = Literal["input", "example", "batch"]


@dataclass(frozen=True)
class EncodedExample:
    """One example as token ids, or one of its inputs, if it has several.

    Attributes:
        ids: special tokens included, (length,) int64.
        segments: 0, and 1 for the second text of a pair, (length,) int64.
        pooled_positions: positions whose states the head reads, (pooled,) int64; positions in the
            decoder for an encoder-decoder.
        was_cut: whether the text was cut to the template's length.
        is_pooled: the head reads the mean of these states, or their maximum (`Task.reduction`), not
            each of them.
        answer: the tokens to be generated, (tokens,) int64, with `ids` as the source, both without
            special tokens; None if a head reads pooled positions.
        is_further: a further input of the same example as the one before: a window of a long text,
            an option of a question.
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

    @property
    def written(self) -> Array:
        """The tokens that are to be written: the answer, or the one after each pooled position."""
        return self.ids[self.pooled_positions + 1] if self.answer is None else self.answer


class ExampleOutputs(NamedTuple):
    """What a network computed for an example.

    Attributes:
        example: the example.
        inputs: its inputs.
        outputs: those of its inputs, in their order, (outputs, labels).
    """

    example: Labelled
    inputs: Sequence[EncodedExample]
    outputs: Array


@dataclass(frozen=True)
class Task(Ranged, ABC):
    """A task learned from labelled texts: a kind in `tuning/tasks/`.

    Attributes:
        has_classes: whether its labels are classes, and its outputs a score for each.
        reads_texts: whether its examples are texts or pairs of texts as they stand in a table;
            others are read by its own `example`, and take no task prefix.
        cuts_texts: whether a text that is too long loses its end, as with `truncation=True` in
            transformers; others are read in windows (`span`, `tag`) or lose their context
            (`choice`).
        reads_tokens: whether its head reads the states of a text's tokens: in an encoder-decoder
            those of the encoder, and not of the decoder's first token.
        compares_texts: whether its two texts are inputs of their own, of which the second may be
            missing in some files; such a task needs no labels, and takes no task prefix.
        continues: whether it has a text continued, so that a model which reads both ways reads it
            causally.
        whole: what has one loss, so that no micro-batch parts it: each input, all inputs of an
            example, or all examples of a batch.
        has_reference: whether its loss compares the model with the one that it starts from: its
            targets take that one's outputs (`with_reference`).
        scores_untuned: whether a model has scores before it is tuned, since no head is new.
        auto_class: the class of `transformers` with such a head: AutoModelFor...; "" for none.
        export_note: what a user of that class has to know; "" for nothing.
        special_tokens: tokens that its inputs have beside the texts; a tokenizer that lacks one
            gets it.
        decoder_tokens: likewise, of a model that continues text alone.
        columns: the usual columns of its tables; the first that a table has count.
        formats: endings of files that it reads as another format: {".txt": ".conll"}.
        lower_is_better: its scores of which the lower one is better: `perplexity`, `rmse`.
        not_shares: its scores that are not shares of 1, nor correlations: tables in percent show
            them as they are, and have no average with others.
        purpose: what a model without classes was tuned for, for messages: "tuned to ...".
    """

    has_classes: ClassVar[bool] = False
    reads_texts: ClassVar[bool] = True
    cuts_texts: ClassVar[bool] = True
    reads_tokens: ClassVar[bool] = False
    compares_texts: ClassVar[bool] = False
    continues: ClassVar[bool] = False
    whole: ClassVar[Whole] = "input"
    has_reference: ClassVar[bool] = False
    scores_untuned: ClassVar[bool] = False
    auto_class: ClassVar[str] = ""
    export_note: ClassVar[str] = ""
    special_tokens: ClassVar[tuple[str, ...]] = ()
    decoder_tokens: ClassVar[tuple[str, ...]] = ()
    columns: ClassVar[tuple[Columns, ...]] = (Columns(),)
    formats: ClassVar[Mapping[str, str]] = {}
    lower_is_better: ClassVar[tuple[str, ...]] = ()
    not_shares: ClassVar[tuple[str, ...]] = ()
    purpose: ClassVar[str] = "predict numbers, not labels"

    @property
    def auxiliary(self) -> float:
        """Weight of a decoder's language-model loss on the same texts, beside the task's loss."""
        return 0.0

    @property
    def writes(self) -> bool:
        """Whether dev examples are answered by writing, not by each token after the right ones."""
        return False

    @property
    def mix_layers(self) -> bool:
        """Whether the head reads a scalar mix of all layers."""
        return False

    @property
    def reduction(self) -> Reduction:
        """What makes one state of several that the head reads together."""
        return "mean"

    # -- examples ----------------------------------------------------------------------------------

    @property
    def reader(self) -> ReadExample:
        """What makes an example of a row: `example`, or `example_of` for texts."""
        return example_of if self.reads_texts else self.example

    def example(self, row: Mapping[str, Any], columns: Columns, source: str) -> Labelled | None:
        """Return the example of a row, without a label if it has none; None if it has no text.

        Args:
            row: values by column.
            columns: which columns hold what.
            source: where the row came from, for messages.

        Raises:
            UserError: the row holds no such example.
        """
        return example_of(row, columns, source)

    def asked(self, columns: Columns) -> Columns:
        """Return the columns that prediction reads, given those of training.

        By default all but the label.
        """
        return replace(columns, label="")

    def for_columns(self, columns: Columns) -> Task:
        """Return the task with settings that follow from the columns of its examples.

        By default it stays as it is.
        """
        del columns
        return self

    def example_of_texts(self, text: str, pair: str | None) -> Labelled:
        """Return an example made of a text or a pair, to check an exported model with."""
        return Labelled(text, pair=pair)

    def plain_texts(self, example: Labelled) -> list[tuple[str, ...]]:
        """Return the text or the pair that `transformers` reads for each input of an example."""
        return [(example.text,) if example.pair is None else (example.text, example.pair)]

    def training_examples(
        self, train: Sequence[Labelled], *, has_dropout: bool
    ) -> Sequence[Labelled]:
        """Return the training examples as the network is to read them; by default as they are.

        Args:
            train: the examples.
            has_dropout: whether the backbone has dropout in training.
        """
        del has_dropout
        return train

    def notes(
        self, train: Sequence[Labelled], dev: Sequence[Labelled], tokenizer: Tokenizer
    ) -> list[str]:
        """Return what a reader of the scores has to know of the examples, a line each."""
        del train, dev, tokenizer
        return []

    @abstractmethod
    def labels(self, train: Sequence[Labelled]) -> tuple[str, ...]:
        """Return what the head and the answers have to know of the training examples.

        These are, by task:

        - the classes, in the order of the outputs (`classify`, `tag`: `has_classes`);
        - what shapes the outputs: the least and the greatest number (`regress`), or the names of
          both outputs and whether some questions have no answer (`span`);
        - the answers that a model may write (`text_to_text`).

        Others return (): their outputs have no names.
        """

    @abstractmethod
    def encode(
        self, examples: Sequence[Labelled], tokenizer: Tokenizer, template: InputTemplate
    ) -> Sequence[EncodedExample]:
        """Return each example as ids, in one input or several."""

    @abstractmethod
    def targets(self, examples: Sequence[Labelled], labels: tuple[str, ...]) -> Any:
        """Return the target of each example, (examples,), or what `place` makes targets of."""

    def place(self, targets: Any, encoded: Sequence[EncodedExample]) -> Any:
        """Return the target of each input, (inputs,), or of each of its outputs: (outputs,) each.

        By default an example has one input and one output.

        Args:
            targets: what `targets` returned.
            encoded: the inputs of the same examples.
        """
        del encoded
        return targets

    # -- learning ----------------------------------------------------------------------------------

    def prepared(self, targets: Any, labels: tuple[str, ...]) -> Task:
        """Return the task with settings that follow from the training examples; by default as is.

        Args:
            targets: their targets, as `place` returned them.
            labels: the labels.

        Raises:
            UserError: settings do not fit the labels.
        """
        del targets, labels
        return self

    @abstractmethod
    def head(self, d_model: int, labels: tuple[str, ...]) -> nn.Module | None:
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
                `whole` says that it is not parted, (outputs,) int64, in ascending order.
        """

    # -- answers -----------------------------------------------------------------------------------

    @property
    def score_names(self) -> tuple[str, ...]:
        """The names that `scores` may give, so that another is refused early; () if not known."""
        return ()

    def require_score(self, name: str, setting: str) -> None:
        """Check, before any work, that a score that a setting names may be one of the task's.

        Raises:
            ValueError: it is not; the message begins with the setting.
        """
        if name and self.score_names and name not in self.score_names:
            known = ", ".join(self.score_names)
            raise ValueError(f"{setting}: '{name}' is not a score of this task: {known}")

    @abstractmethod
    def scores(self, outputs: Array, targets: Any) -> dict[str, float]:
        """Return metrics by name, the most telling first.

        The greater, the better, but for those in `lower_is_better`.

        Args:
            outputs: of all inputs in their order, (outputs, labels).
            targets: what `place` returned.
        """

    @abstractmethod
    def baselines(self, train: Any, dev: Any, labels: tuple[str, ...]) -> Mapping[str, Array]:
        """Return by name the outputs for the dev examples that are best without a network.

        Args:
            train: the targets of training, as `place` returned them.
            dev: those of the dev examples, which are not to be read for an answer.
            labels: the labels.
        """

    def confusion(self, outputs: Array, targets: Any) -> list[list[int]] | None:
        """Return how often each label (row) got each answer (column); None without classes.

        Args:
            outputs: as in `scores`.
            targets: likewise.
        """
        del outputs, targets
        return None

    def correct(self, outputs: Array, targets: Any) -> Array | None:
        """Return how far each example is answered correctly, 0 to 1; None unless that is accuracy.

        Args:
            outputs: as in `scores`.
            targets: likewise.

        Returns:
            (examples,) float64, whose mean is the accuracy.
        """
        del outputs, targets
        return None

    def fitted(self, outputs: Array, targets: Any) -> Task:
        """Return the task with settings that are chosen on the outputs for the dev examples.

        Args:
            outputs: as in `scores`.
            targets: likewise.
        """
        del outputs, targets
        return self

    def answer_types(
        self, labels: tuple[str, ...], *, probabilities: bool, is_pair: bool = False
    ) -> dict[str, Any]:
        """Return the Arrow type of each column of its answers.

        Args:
            labels: the labels.
            probabilities: whether there is a column for the probability of each label.
            is_pair: whether the examples have second texts.

        Raises:
            UserError: the task has no probabilities.
        """
        if not self.has_classes:
            if probabilities:
                raise UserError(f"--probabilities: this model was tuned to {self.purpose}")
            return {PREDICTION: pa.float32()}
        columns = probability_columns(labels) if probabilities else []
        return {PREDICTION: pa.string(), **dict.fromkeys([PROBABILITY, *columns], pa.float32())}

    def answers(
        self, results: Sequence[ExampleOutputs], labels: tuple[str, ...], *, probabilities: bool
    ) -> list[dict[str, Any]]:
        """Return the answer to each example, by column.

        By default each has one output: a score for each label, or a number.
        """
        if not results:
            return []
        outputs = np.concatenate([result.outputs for result in results])
        if not self.has_classes:
            return [{PREDICTION: shortest(row[0])} for row in outputs]
        rows = []
        for shares in softmax(outputs, axis=1):
            best = int(shares.argmax())
            row = {PREDICTION: labels[best], PROBABILITY: shortest(shares[best])}
            if probabilities:
                row |= dict(zip(probability_columns(labels), map(shortest, shares), strict=True))
            rows.append(row)
        return rows


def probability_columns(labels: Sequence[str]) -> list[str]:
    """Return the names of the columns of each label's probability."""
    return [f"{PROBABILITY}_{label}" for label in labels]


def shortest(number: Any) -> float:
    """Return a float32 as the float64 of fewest digits that it rounds from."""
    return float(str(np.float32(number)))
