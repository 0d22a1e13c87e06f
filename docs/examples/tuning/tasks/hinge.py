"""Two classes told apart by a margin, as an example of a task in a plug-in."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from torch import Tensor, nn

from foreword.errors import UserError
from foreword.settings.ranges import Positive
from foreword.tables.examples import Labelled
from foreword.tuning.tasks._contract import Inputs, Judge, Labels
from foreword.tuning.tasks._headed import PooledTask
from foreword.types import Array, Loss


class SideJudge(Judge):
    """The share of examples on the right side; outputs are (examples, 1)."""

    def scores(self, outputs: Array, targets: Array) -> dict[str, float]:
        """Return the accuracy."""
        return {"accuracy": float(((outputs[:, 0] > 0) == (targets > 0)).mean())}

    def baselines(self, train: Array, dev: Array, labels: Labels) -> Mapping[str, Array]:
        """Return the side of the majority for every example."""
        return {"majority class": np.full((len(dev), 1), np.sign(train.sum() + 0.5))}


@dataclass(frozen=True)
class Hinge(PooledTask):
    """A linear layer with one output, trained by the hinge loss: a support vector machine.

    Attributes:
        margin: an example costs nothing if its output is beyond this, on its side of 0.

    Reference: Tang 2013, "Deep Learning using Linear Support Vector Machines", section 2.1.
    """

    judge: ClassVar[Judge] = SideJudge()

    margin: Positive = 1.0

    def labels(self, train: Sequence[Labelled]) -> Labels:
        """Return the two labels, sorted.

        Raises:
            UserError: there are not two.
        """
        found = tuple(sorted({example.label for example in train}))
        if len(found) != 2:
            raise UserError(f"task 'hinge' needs two labels, and the examples have {len(found)}")
        return found

    def targets(self, examples: Sequence[Labelled], labels: Labels, encoded: Inputs = ()) -> Array:
        """Return the side of each example, (examples,) float32: -1 or 1.

        Raises:
            UserError: a label is not one of the two.
        """
        for example in examples:
            if example.label not in labels:
                raise UserError(f"{example.source}: label '{example.label}' is not in training")
        return np.array([2.0 * labels.index(e.label) - 1 for e in examples], dtype=np.float32)

    def head(self, d_model: int, labels: Labels) -> nn.Module:
        """Return the linear layer, (outputs, d_model) -> (outputs, 1)."""
        return self.linear_head(d_model, 1)

    def loss(self, outputs: Tensor, targets: Tensor, numbers: Tensor) -> Loss:
        """Return the sum of what is missing to the margin, and the number of examples."""
        total = (self.margin - outputs[:, 0] * targets).relu().sum()
        return Loss(total, total.new_tensor(float(len(targets))))
