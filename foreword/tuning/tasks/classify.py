"""One label per text, or per pair of texts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar

import numpy as np
from sklearn.metrics import accuracy_score, confusion_matrix, f1_score, matthews_corrcoef
from torch import Tensor

from foreword.errors import UserError
from foreword.settings.ranges import OpenShare, Positive
from foreword.tables.columns import Columns, labels_example
from foreword.tables.examples import Labelled
from foreword.tuning.tasks._contract import (
    Exports,
    Inputs,
    Judge,
    LabelAnswers,
    Labels,
    OutputForm,
    RowReader,
)
from foreword.tuning.tasks._headed import PooledTask
from foreword.tuning.tasks._losses import (
    Weighted,
    require_known,
    short,
    weighted_cross_entropy,
    weights_of,
)
from foreword.tuning.tasks.multilabel import Multilabel, are_sets
from foreword.types import Array, Loss


@dataclass(frozen=True)
class Classify(Weighted, PooledTask):
    """Classification: dropout and a linear layer on the pooled state of the text.

    With `foreword tune` the head is that of the family's class in transformers: in BERT a layer
    with tanh on the first state, in GPT the last state alone. A model without such a class, or in a
    comparison, has a linear layer on the mean of the text's states in an encoder, or on the state
    of [CLS] if pretraining trained it (next sentence, sentence order); on the state of the extract
    token in a decoder, of the start token in an encoder-decoder's decoder; see
    `foreword.tuning.input_template`.

    It is scored by accuracy, macro F1 (the mean of each label's F1, however frequent) and Matthews
    correlation. Where labels are lists, `foreword tune` takes the task `multilabel`.

    Attributes:
        weights: weight of each class in the loss: `balanced` for weights in inverse proportion to
            how frequent they are, or `label=weight` each ("spam=5"), 1 for the others.
        positive: the label whose own F1 is a score too, of two labels.
        threshold: the probability from which `positive`, by default the second of two labels, is
            predicted; default: where it is the likelier one.
        temperature: divides the outputs before the softmax, which predicts the same labels with
            other probabilities; default: fitted on training examples held out.

    Also called: classification.
    Reference: Devlin et al. 2019, section 4.1; Radford et al. 2018, sections 3.2 and 3.3; Peters
    et al. 2018, section 3.2; Guo et al. 2017 for the temperature.
    Differs from the paper: in comparisons without BERT's pooler, a dense layer that its
    next-sentence prediction trained; models without that objective have none. A pair is read in
    one order, where GPT-1 reads those without an order (similarity) in both and adds the states.
    """

    reader: ClassVar[RowReader] = RowReader(labels_example)
    exports: ClassVar[Exports] = Exports(
        "SequenceClassification", problem_type="single_label_classification"
    )
    output_form: ClassVar[OutputForm | None] = "classes"

    positive: str = ""
    threshold: OpenShare | None = None
    temperature: Positive | None = None

    @property
    def judge(self) -> Judge:
        return ClassJudge(self.positive, self.answers)

    @property
    def answers(self) -> LabelAnswers:
        return LabelAnswers(self.temperature, self.threshold)

    def for_examples(self, columns: Columns, train: Sequence[Labelled]) -> Classify | Multilabel:
        """Return `multilabel` with the same settings, if labels are lists."""
        if not are_sets(train):
            return self
        if self.positive:
            raise UserError("task.positive: is for one label a text, and here are lists of labels")
        names = [one.name for one in fields(PooledTask)]
        return Multilabel(
            **{name: getattr(self, name) for name in (*names, "weights", "temperature")},
            thresholds=() if self.threshold is None else (self.threshold,),
        )

    def labels(self, train: Sequence[Labelled]) -> Labels:
        """Return the labels of the training examples, sorted; a `positive` one is the last."""
        labels = tuple(sorted({example.label for example in train}))
        if len(labels) < 2:
            what = f"all {len(train):,} are '{labels[0]}'" if labels else "there are none"
            raise UserError(f"the training examples need at least two labels; {what}")
        if 2 * len(labels) > len(train) and _are_measurements(labels):
            raise UserError(
                f"the labels are numbers ({labels[0]}, {labels[1]}, ...), {len(labels):,} "
                f"different ones of {len(train):,}; use task 'regress', or give classes"
            )
        if self.threshold is not None:
            self.answers.at_threshold(self.threshold, labels)
        if not self.positive:
            return labels
        if len(labels) != 2 or self.positive not in labels:
            raise UserError(
                f"task.positive: '{self.positive}' must be one of two labels; the training "
                f"examples have {short(', '.join(labels))}"
            )
        return tuple(sorted(labels, key=self.positive.__eq__))

    def targets(self, examples: Sequence[Labelled], labels: Labels, encoded: Inputs = ()) -> Array:
        """Return the index of each example's label, (examples,) int64."""
        require_known(examples, labels, self.reader.labels_of)
        number = {label: n for n, label in enumerate(labels)}
        return np.asarray([number[example.label] for example in examples], dtype=np.int64)

    def prepared(self, targets: Any, labels: Labels) -> Classify:
        """Return the task with the weight of each class."""
        return replace(self, weights=weights_of(self.weights, targets, labels))

    def loss(self, outputs: Tensor, targets: Tensor, numbers: Tensor) -> Loss:
        """Return the cross-entropy, weighted by class, in nats."""
        return weighted_cross_entropy(outputs, targets, self.weights)


@dataclass(frozen=True)
class ClassJudge(Judge):
    """Accuracy, macro F1, Matthews correlation, and the F1 of the `positive` label, the last."""

    positive: str = ""
    answers: LabelAnswers = LabelAnswers()
    has_classes: ClassVar[bool] = True

    @property
    def names(self) -> tuple[str, ...]:
        return ("accuracy", "f1", "matthews", *(["positive_f1"] if self.positive else []))

    def scores(self, outputs: Array, targets: Array) -> dict[str, float]:
        predicted = self.answers.numbers(outputs)
        last = outputs.shape[1] - 1
        positive = f1_score(targets == last, predicted == last, zero_division=0)
        return {
            "accuracy": float(accuracy_score(targets, predicted)),
            "f1": float(f1_score(targets, predicted, average="macro", zero_division=0)),
            "matthews": _matthews(targets, predicted),
            **({"positive_f1": float(positive)} if self.positive else {}),
        }

    def confusion(self, outputs: Array, targets: Array) -> list[list[int]]:
        labels = np.arange(outputs.shape[1])
        counts: Array = confusion_matrix(targets, self.answers.numbers(outputs), labels=labels)
        return [[int(count) for count in row] for row in counts]

    def correct(self, outputs: Array, targets: Array) -> Array:
        return np.asarray(self.answers.numbers(outputs) == targets, np.float64)

    def baselines(self, train: Array, dev: Array, labels: Labels) -> Mapping[str, Array]:
        """Return the log share of each label for every example: the most frequent one wins."""
        shares = np.log(np.maximum(np.bincount(train, minlength=len(labels)), 1e-9) / len(train))
        return {"majority class": np.repeat(shares[None], len(dev), axis=0)}


def _are_measurements(labels: Sequence[str]) -> bool:
    """Return whether all labels are numbers, and some not whole."""
    try:
        numbers = [float(label) for label in labels]
    except ValueError:
        return False
    return not all(number.is_integer() for number in numbers)


def _matthews(targets: Array, predicted: Array) -> float:
    """Return the Matthews correlation, 0 if all targets and outputs are one label."""
    if (targets == targets[0]).all() and (predicted == targets[0]).all():
        return 0.0  # as scikit-learn returns, with a warning
    return float(matthews_corrcoef(targets, predicted))
