"""Losses over classes, with their weights, and over outputs that belong together."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from foreword.errors import UserError
from foreword.settings.ranges import Ranged
from foreword.tables.examples import Labelled
from foreword.types import Array, Loss

UNLABELLED = -1  # the target of an output that is not trained and not scored

# Weights of classes in the loss: `balanced` for weights in inverse proportion to how frequent they
# are, or `label=weight` each ("spam=5"), 1 for the others.
Weights = Literal["balanced"] | tuple[str, ...]


@dataclass(frozen=True)
class Weighted(Ranged):
    """A task whose labels may have weights in the loss.

    Attributes:
        weights: `balanced`, or `label=weight` each.
    """

    weights: Weights = ()

    def __post_init__(self) -> None:
        super().__post_init__()
        for entry in () if self.weights == "balanced" else self.weights:
            label, _, weight = entry.rpartition("=")
            if not label or not _is_positive(weight):
                raise ValueError(f"weights: must be label=weight each, above 0, got {entry!r}")


def weights_of(weights: Weights, classes: Array, labels: Sequence[str]) -> tuple[str, ...]:
    """Return the weight of each class, `label=weight`, in the order of the labels; () for none.

    Args:
        classes: the class of each output in training, by number, or UNLABELLED.

    Raises:
        UserError: a weight is of no label.
    """
    if not weights:
        return ()
    if weights == "balanced":
        by_label = dict(zip(labels, balanced(classes, len(labels)), strict=True))
    else:
        by_label = dict.fromkeys(labels, 1.0)
        for label, _, weight in (entry.rpartition("=") for entry in weights):
            if label not in by_label:
                raise UserError(
                    f"task.weights: no label '{label}'; training has: {short(', '.join(labels))}"
                )
            by_label[label] = float(weight)
    return tuple(f"{label}={weight!r}" for label, weight in by_label.items())


def balanced(classes: Array, count: int) -> list[float]:
    """Return the weights in inverse proportion to how frequent classes are, as in scikit-learn.

    Args:
        classes: the class of each output, by number, or UNLABELLED.
        count: the number of classes; one that does not occur has the weight of one that does once.
    """
    known = classes[classes != UNLABELLED]
    frequencies = np.maximum(np.bincount(known, minlength=count), 1)
    return [float(weight) for weight in len(known) / (count * frequencies)]


def weighted_cross_entropy(outputs: Tensor, targets: Tensor, weights: Weights) -> Loss:
    """Return the cross-entropy of the outputs that have a label, in nats.

    With weights each counts by that of its class, so that the mean is torch's.
    """
    has_label = targets != UNLABELLED
    if not weights:
        total = F.cross_entropy(outputs, targets, reduction="sum", ignore_index=UNLABELLED)
        return Loss(total, has_label.sum().to(total.dtype))
    losses = F.cross_entropy(outputs, targets, reduction="none", ignore_index=UNLABELLED)
    by_class = losses.new_tensor([float(entry.rpartition("=")[2]) for entry in weights])
    weight = by_class[targets.clamp(min=0)] * has_label
    return Loss((losses * weight).sum(), weight.sum())


def require_known(
    examples: Sequence[Labelled],
    labels: Sequence[str],
    labels_of: Callable[[str], Sequence[str]],
) -> None:
    """Raise UserError unless training has all labels of examples; the first other is named.

    Args:
        labels_of: returns the labels of an example, given its label as written.
    """
    known, unseen, source = set(labels), Counter[str](), ""
    for example in examples:
        if missing := [label for label in labels_of(example.label) if label not in known]:
            source = source or example.source
            unseen.update(missing)
    if unseen:
        names = ", ".join(f"'{label}' ({count:,})" for label, count in sorted(unseen.items()))
        raise UserError(
            f"{source}: labels that no training example has: {short(names)}; training has: "
            f"{short(', '.join(labels))}"
        )


def short(names: str, limit: int = 200) -> str:
    """Return a list of names, cut after a comma if it is long."""
    return names if len(names) <= limit else names[:limit].rsplit(",", 1)[0] + ", ..."


def _is_positive(text: str) -> bool:
    try:
        return 0 < float(text) < math.inf
    except ValueError:
        return False


def cross_entropy_over_groups(outputs: Tensor, targets: Tensor, numbers: Tensor) -> Loss:
    """Return the cross-entropy of the right output of each group, a mean over columns, in nats.

    Args:
        outputs: scores, (outputs, columns); each column has a softmax of its own.
        targets: 1 for the right output of its group and 0 for others, (outputs, columns) float32.
        numbers: the group of each output, (outputs,) int64, in ascending order.

    Returns:
        The sum over groups, and their number.
    """
    groups, index = torch.unique_consecutive(numbers, return_inverse=True)
    index = index[:, None].expand_as(outputs)
    greatest = outputs.new_full((len(groups), outputs.shape[1]), -torch.inf)
    greatest = greatest.scatter_reduce(0, index, outputs.detach(), "amax")
    shifted = outputs - greatest.gather(0, index)
    sums = torch.zeros_like(greatest).scatter_add(0, index, shifted.exp())
    total = (sums.log().sum() - (shifted * targets).sum()) / outputs.shape[1]
    return Loss(total, total.new_tensor(float(len(groups))))
