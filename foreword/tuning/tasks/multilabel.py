"""Several labels per text, or per pair of texts, or none.

To users it is `classify`; in code the two share the pooled state and the head, and nothing else, so
one kind would ask in each method which of both it is.
"""

from __future__ import annotations

import ast
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
from scipy.special import expit, logit
from sklearn.metrics import multilabel_confusion_matrix
from torch import Tensor
from torch.nn import functional as F

from foreword.errors import UserError
from foreword.evaluation.calibration import (
    as_two_classes,
    best_threshold,
    calibration_error,
    fit_temperature,
)
from foreword.settings.ranges import OpenShare, Positive
from foreword.tables.columns import PREDICTION, label_of, labels_example
from foreword.tables.examples import Labelled
from foreword.tuning.tasks._contract import (
    PROBABILITY,
    Answers,
    Confusion,
    ExampleOutputs,
    Exports,
    Inputs,
    Judge,
    Labels,
    OutputForm,
    RowReader,
    probability_columns,
    share_columns,
    shortest,
)
from foreword.tuning.tasks._headed import PooledTask
from foreword.tuning.tasks._losses import Weighted, require_known, weights_of
from foreword.types import Array, Loss

BETWEEN = "|"  # labels of a cell of text
FEWEST = 5  # texts with a label whose threshold is its own


@lru_cache(maxsize=1 << 16)
def labels_of(label: str) -> Labels:
    """Return the labels in a cell: those of a list, in JSON or as Python writes it, or `a|b`."""
    items = list_of(label)
    parts = label.split(BETWEEN) if items is None else [label_of(item, label) for item in items]
    return tuple(dict.fromkeys(part.strip() for part in parts if part.strip()))


def list_of(label: str) -> list[Any] | None:
    """Return the list in a cell; None for another text."""
    if not label.startswith("["):
        return None
    for parse in (json.loads, ast.literal_eval):
        try:
            items = parse(label)
        except (ValueError, SyntaxError):
            continue
        return items if isinstance(items, list) else None
    return None


def are_sets(examples: Sequence[Labelled]) -> bool:
    """Return whether labels are lists: some by their form, or some parts of `a|b` occur again."""
    cells = {example.label for example in examples}
    if any(list_of(cell) is not None for cell in cells):
        return True
    parts = [part for cell in cells for part in cell.split(BETWEEN)]
    return len(parts) > len(cells) and len(set(parts)) < len(parts)


@dataclass(frozen=True)
class Multilabel(Weighted, PooledTask):
    """Multi-label classification: a yes or no for each label, on the pooled state of the text.

    `--task classify` is this task where labels are lists: of JSON or Parquet, as JSON or `a|b` in a
    cell of CSV or TSV, or of several columns with 0 and 1 (`--label a,b,c`). A text may have no
    label, `[]`. The head is that of `classify`, its loss the binary cross-entropy, a mean over
    labels.

    It is scored by micro F1 (of all answers together), macro F1 (the mean of each label's F1) and
    the share of texts whose labels are exactly right.

    Attributes:
        weights: weight of a text that has the label in its loss: `balanced` for the number of texts
            without it by those with it, or `label=weight` each, 1 for the others.
        thresholds: the probability from which a label is predicted, one for all or one each, in
            their order; default: those of the highest F1 on training examples held out, or 0.5. A
            label that few of them have, or of which the network knows no more than always
            answering yes, takes the one that is best for all together.
        temperature: divides the outputs before the sigmoid; default: fitted on training examples
            held out.

    Also called: multi-label classification, one-vs-rest.
    Reference: Fan & Lin 2007, "A Study on Threshold Selection for Multi-label Classification";
    Guo et al. 2017 for the temperature.
    """

    reader: ClassVar[RowReader] = RowReader(labels_example, labels_of=labels_of)
    exports: ClassVar[Exports] = Exports(
        "SequenceClassification",
        "pipeline(..., top_k=None) gives the probability of each label, of which transformers "
        "applies no threshold",
        problem_type="multi_label_classification",
    )
    output_form: ClassVar[OutputForm | None] = "sets"

    thresholds: tuple[OpenShare, ...] = ()
    temperature: Positive | None = None

    @property
    def judge(self) -> Judge:
        return SetJudge(self.answers)

    @property
    def answers(self) -> SetAnswers:
        return SetAnswers(self.temperature, self.thresholds)

    def labels(self, train: Sequence[Labelled]) -> Labels:
        """Return the labels of the training examples, sorted."""
        labels = tuple(sorted({label for e in train for label in labels_of(e.label)}))
        if not labels:
            raise UserError("the training examples need labels; no text has one")
        if len(self.thresholds) not in (0, 1, len(labels)):
            raise UserError(
                f"task.thresholds: expected one, or one for each of {len(labels):,} labels, got "
                f"{len(self.thresholds):,}"
            )
        return labels

    def targets(self, examples: Sequence[Labelled], labels: Labels, encoded: Inputs = ()) -> Array:
        """Return 1 for each label that an example has and 0 else, (examples, 1, labels) float32."""
        require_known(examples, labels, labels_of)
        number = {label: n for n, label in enumerate(labels)}
        targets = np.zeros((len(examples), 1, len(labels)), np.float32)
        for n, example in enumerate(examples):
            targets[n, 0, [number[label] for label in labels_of(example.label)]] = 1.0
        return targets

    def prepared(self, targets: Array, labels: Labels) -> Multilabel:
        """Return the task with the weight of each label."""
        if self.weights != "balanced":
            return replace(self, weights=weights_of(self.weights, targets, labels))
        present = np.maximum(targets.sum(axis=(0, 1)), 1)
        ratios = np.maximum(len(targets) - present, 1) / present
        named = zip(labels, ratios.tolist(), strict=True)
        return replace(self, weights=tuple(f"{label}={ratio!r}" for label, ratio in named))

    def loss(self, outputs: Tensor, targets: Tensor, numbers: Tensor) -> Loss:
        """Return the binary cross-entropy, a mean over labels, in nats."""
        weight = None
        if self.weights:
            weight = outputs.new_tensor([float(e.rpartition("=")[2]) for e in self.weights])
        losses = F.binary_cross_entropy_with_logits(
            outputs, targets, pos_weight=weight, reduction="none"
        )
        return Loss(losses.mean(dim=1).sum(), losses.new_tensor(float(len(losses))))


@dataclass(frozen=True)
class SetAnswers(Answers):
    """The labels of each example, and the probability of each of them, by a sigmoid."""

    temperature: float | None = 1.0
    thresholds: tuple[float, ...] = ()
    purpose: ClassVar[str] = "predict several labels a text"

    def shares(self, outputs: Array) -> Array:
        """Return the probability of each label, (examples, labels)."""
        return np.asarray(expit(outputs / (self.temperature or 1.0)))

    def sets(self, outputs: Array) -> Array:
        """Return whether each label is predicted, (examples, labels) bool."""
        return np.asarray(self.shares(outputs) >= np.array(self.thresholds or 0.5))

    def types(self, labels: Labels, *, probabilities: bool, is_pair: bool) -> dict[str, Any]:
        columns = probability_columns(labels) if probabilities else []
        lists = {PREDICTION: pa.list_(pa.string()), PROBABILITY: pa.list_(pa.float32())}
        return {**lists, **dict.fromkeys(columns, pa.float32())}

    def row(self, result: ExampleOutputs, labels: Labels, *, probabilities: bool) -> dict[str, Any]:
        """Return the labels of an example, the likeliest first."""
        (shares,), (is_in,) = self.shares(result.outputs), self.sets(result.outputs)
        chosen = [n for n in np.argsort(-shares, kind="stable") if is_in[n]]
        row = {
            PREDICTION: [labels[n] for n in chosen],
            PROBABILITY: [shortest(shares[n]) for n in chosen],
        }
        return row | (share_columns(labels, shares) if probabilities else {})

    @property
    def fits(self) -> bool:
        return self.temperature is None or not self.thresholds

    def fitted(self, outputs: Array, targets: Array) -> Mapping[str, Any]:
        """Return the temperature and the thresholds that are to be fitted."""
        right, found = _flat(targets) > 0, dict[str, Any]()
        if self.temperature is None:
            found["temperature"] = fit_temperature(*as_two_classes(outputs, right))
        if not self.thresholds:
            shares = replace(self, **found).shares(outputs)
            common = best_threshold(shares.ravel(), right.ravel())
            found["thresholds"] = tuple(
                own if is_in.sum() >= FEWEST and _tells(share >= own, is_in) else common
                for share, is_in in zip(shares.T, right.T, strict=True)
                for own in (best_threshold(share, is_in),)
            )
        return found

    def calibration_error(self, outputs: Array, targets: Array) -> float:
        """Return that of yes or no for each label of each example."""
        shares = self.shares(outputs).ravel()
        right = (_flat(targets) > 0).ravel().astype(np.int64)
        return calibration_error(np.stack([1 - shares, shares], axis=1), right)

    def at_threshold(self, threshold: float, labels: Labels) -> Mapping[str, Any]:
        """Return the one threshold of all labels."""
        return {"thresholds": (threshold,)}


@dataclass(frozen=True)
class SetJudge(Judge):
    """Micro F1, macro F1, and the share of examples whose labels are exactly right."""

    answers: SetAnswers
    has_classes: ClassVar[bool] = True
    names: ClassVar[tuple[str, ...]] = ("micro_f1", "macro_f1", "exact_match")

    def scores(self, outputs: Array, targets: Array) -> dict[str, float]:
        predicted, right = self.answers.sets(outputs), _flat(targets) > 0
        hits = 2 * (predicted & right).sum(axis=0)  # of each label, as are these:
        answers = predicted.sum(axis=0) + right.sum(axis=0)
        return {
            "micro_f1": float(hits.sum() / max(answers.sum(), 1)),
            "macro_f1": float((hits / np.maximum(answers, 1)).mean()),
            "exact_match": float((predicted == right).all(axis=1).mean()),
        }

    def confusion(self, outputs: Array, targets: Array) -> Confusion:
        counts: Array = multilabel_confusion_matrix(_flat(targets) > 0, self.answers.sets(outputs))
        return [matrix.tolist() for matrix in counts]

    def baselines(self, train: Array, dev: Array, labels: Labels) -> Mapping[str, Array]:
        """Return each label's frequency as its probability, and the most frequent set."""
        sets = Counter(tuple(row) for row in _flat(train).tolist())
        rows = {
            "frequency of each label": logit(np.clip(_flat(train).mean(axis=0), 1e-6, 1 - 1e-6)),
            "most frequent set": 1e3 * (2 * np.array(sets.most_common(1)[0][0]) - 1),
        }
        return {name: np.repeat(row[None], len(dev), axis=0) for name, row in rows.items()}


def _tells(predicted: Array, right: Array) -> bool:
    """Return whether predictions of a label have a better F1 than always answering yes.

    An F1 is highest there if probabilities tell nothing (Lipton et al. 2014), but for chance: the
    best of many thresholds is rarely beyond it by more than 4 / sqrt(right ones) of it.
    """
    always = 2 * right.mean() / (1 + right.mean())
    reached = 2 * (predicted & right).sum() / (predicted.sum() + right.sum())
    return bool(reached > (1 + 4 / np.sqrt(right.sum())) * always)


def _flat(targets: Array) -> Array:
    return targets.reshape(len(targets), -1)
