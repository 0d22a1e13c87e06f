"""One label per text, or per pair of texts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from sklearn.metrics import accuracy_score, f1_score, matthews_corrcoef
from torch import Tensor, nn
from torch.nn import functional as F

from foreword.errors import UserError
from foreword.tuning.labelled import Labelled
from foreword.tuning.pooled import PooledTask
from foreword.types import Array, Loss


@dataclass(frozen=True)
class Classify(PooledTask):
    """Classification: dropout and a linear layer on the pooled state of the text.

    With `foreword tune` the head is that of the family's class in transformers: in BERT a layer
    with tanh on the first state, in GPT the last state alone. A model without such a class, or in a
    comparison, has a linear layer on the mean of the text's states in an encoder, or on the state
    of [CLS] if pretraining trained it (next sentence, sentence order); on the state of the extract
    token in a decoder, of the start token in an encoder-decoder's decoder; see
    `foreword.tuning.input_template`.

    It is scored by accuracy, macro F1 (the mean of each label's F1, however frequent) and Matthews
    correlation.

    Also called: classification.
    Reference: Devlin et al. 2019, section 4.1; Radford et al. 2018, sections 3.2 and 3.3; Peters
    et al. 2018, section 3.2.
    Differs from the paper: in comparisons without BERT's pooler, a dense layer that its
    next-sentence prediction trained; models without that objective have none. A pair is read in
    one order, where GPT-1 reads those without an order (similarity) in both and adds the states.
    """

    has_classes: ClassVar[bool] = True
    auto_class: ClassVar[str] = "SequenceClassification"

    def labels(self, train: Sequence[Labelled]) -> tuple[str, ...]:
        """Return the labels of the training examples, sorted.

        Raises:
            UserError: there are fewer than two, or they are measurements, not classes.
        """
        labels = tuple(sorted({example.label for example in train}))
        if len(labels) < 2:
            what = f"all {len(train):,} are '{labels[0]}'" if labels else "there are none"
            raise UserError(f"the training examples need at least two labels; {what}")
        if 2 * len(labels) > len(train) and _are_measurements(labels):
            raise UserError(
                f"the labels are numbers ({labels[0]}, {labels[1]}, ...), {len(labels):,} "
                f"different ones of {len(train):,}; use task 'regress', or give classes"
            )
        return labels

    def targets(self, examples: Sequence[Labelled], labels: tuple[str, ...]) -> Array:
        """Return the index of each example's label, (examples,) int64.

        Raises:
            UserError: a label is not in `labels`.
        """
        number = {label: n for n, label in enumerate(labels)}
        unseen = Counter(example.label for example in examples if example.label not in number)
        if unseen:
            first = next(example for example in examples if example.label in unseen)
            names = ", ".join(f"'{label}' ({count:,})" for label, count in sorted(unseen.items()))
            raise UserError(
                f"{first.source}: labels that no training example has: {_short(names)}; "
                f"training has: {_short(', '.join(labels))}"
            )
        return np.asarray([number[example.label] for example in examples], dtype=np.int64)

    def head(self, d_model: int, labels: tuple[str, ...]) -> nn.Module:
        """Return the head, (outputs, d_model) -> (outputs, labels)."""
        return self.linear_head(d_model, len(labels))

    def loss(self, outputs: Tensor, targets: Tensor, numbers: Tensor) -> Loss:
        """Return the cross-entropy, in nats."""
        total = F.cross_entropy(outputs, targets, reduction="sum")
        return Loss(total, total.new_tensor(float(len(targets))))

    def scores(self, outputs: Array, targets: Array) -> dict[str, float]:
        """Return accuracy, macro-averaged F1 and Matthews correlation.

        Args:
            outputs: (examples, labels).
            targets: (examples,) int64.
        """
        chosen = outputs.argmax(axis=1)
        return {
            "accuracy": float(accuracy_score(targets, chosen)),
            "f1": float(f1_score(targets, chosen, average="macro", zero_division=0)),
            "matthews": _matthews(targets, chosen),
        }

    def baselines(self, train: Array, dev: Array, labels: tuple[str, ...]) -> Mapping[str, Array]:
        """Return the share of each label for every example: the most frequent one wins."""
        shares = np.bincount(train, minlength=len(labels)) / len(train)
        return {"majority class": np.repeat(shares[None], len(dev), axis=0)}


def _are_measurements(labels: Sequence[str]) -> bool:
    """Return whether all labels are numbers, and some not whole."""
    try:
        numbers = [float(label) for label in labels]
    except ValueError:
        return False
    return not all(number.is_integer() for number in numbers)


def _matthews(targets: Array, chosen: Array) -> float:
    """Return the Matthews correlation, 0 if all targets and outputs are one label."""
    if (targets == targets[0]).all() and (chosen == targets[0]).all():
        return 0.0  # as scikit-learn returns, with a warning
    return float(matthews_corrcoef(targets, chosen))


def _short(text: str, limit: int = 200) -> str:
    return text if len(text) <= limit else text[:limit].rsplit(",", 1)[0] + ", ..."
