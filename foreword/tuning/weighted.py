"""The base of tasks whose outputs are scores of classes, each with its weight in the loss."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, Literal, Self

import numpy as np
from torch import Tensor
from torch.nn import functional as F

from foreword.errors import UserError
from foreword.tuning.headed import HeadedTask
from foreword.types import Array, Loss

UNLABELLED = -1  # the target of an output that is not trained and not scored


@dataclass(frozen=True)
class WeightedTask(HeadedTask):
    """A task of classes, trained by cross-entropy.

    Attributes:
        weights: of the classes in the loss: `balanced` for weights in inverse proportion to how
            frequent they are, or `label=weight` each ("spam=5"), 1 for the others.
    """

    weights: Literal["balanced"] | tuple[str, ...] = ()

    def __post_init__(self) -> None:
        super().__post_init__()
        for entry in () if self.weights == "balanced" else self.weights:
            label, _, weight = entry.rpartition("=")
            if not label or not _is_positive(weight):
                raise ValueError(f"weights: must be label=weight each, above 0, got {entry!r}")

    def prepared(self, targets: Any, labels: tuple[str, ...]) -> Self:
        """Return the task with the weight of each class, in the order of the labels.

        Raises:
            UserError: a weight is of no label.
        """
        if not self.weights:
            return self
        if self.weights == "balanced":
            by_label = dict(zip(labels, balanced(self.classes(targets), len(labels)), strict=True))
        else:
            by_label = dict.fromkeys(labels, 1.0)
            for label, _, weight in (entry.rpartition("=") for entry in self.weights):
                if label not in by_label:
                    raise UserError(
                        f"task.weights: no label '{label}'; training has: "
                        f"{short(', '.join(labels))}"
                    )
                by_label[label] = float(weight)
        weights = tuple(f"{label}={weight!r}" for label, weight in by_label.items())
        return replace(self, weights=weights)

    def classes(self, targets: Any) -> Array:
        """Return the class of each output, by number; by default the targets are just that."""
        classes: Array = targets
        return classes

    def loss(self, outputs: Tensor, targets: Tensor, numbers: Tensor) -> Loss:
        """Return the cross-entropy of the outputs that have a label, in nats.

        With weights each counts by that of its class, so that the mean is torch's.
        """
        del numbers
        has_label = targets != UNLABELLED
        if not self.weights:
            total = F.cross_entropy(outputs, targets, reduction="sum", ignore_index=UNLABELLED)
            return Loss(total, has_label.sum().to(total.dtype))
        losses = F.cross_entropy(outputs, targets, reduction="none", ignore_index=UNLABELLED)
        by_class = losses.new_tensor([float(entry.rpartition("=")[2]) for entry in self.weights])
        weights = by_class[targets.clamp(min=0)] * has_label
        return Loss((losses * weights).sum(), weights.sum())


def balanced(classes: Array, count: int) -> list[float]:
    """Return the weights in inverse proportion to how frequent classes are, as in scikit-learn.

    Args:
        classes: the class of each output, by number, or UNLABELLED.
        count: the number of classes; one that does not occur has the weight of one that does once.
    """
    known = classes[classes != UNLABELLED]
    frequencies = np.maximum(np.bincount(known, minlength=count), 1)
    return [float(weight) for weight in len(known) / (count * frequencies)]


def short(names: str, limit: int = 200) -> str:
    """Return a list of names, cut after a comma if it is long."""
    return names if len(names) <= limit else names[:limit].rsplit(",", 1)[0] + ", ..."


def _is_positive(text: str) -> bool:
    try:
        return 0 < float(text) < math.inf
    except ValueError:
        return False
