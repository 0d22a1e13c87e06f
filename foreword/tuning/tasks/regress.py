"""One number per text, or per pair of texts."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from torch import Tensor, nn

from foreword.errors import UserError
from foreword.evaluation.statistics import correlations
from foreword.tables.columns import Columns, example_of
from foreword.tables.examples import Labelled
from foreword.text.tokenizer import Tokenizer
from foreword.tuning.tasks._contract import Exports, Inputs, Judge, Labels, OutputForm, RowReader
from foreword.tuning.tasks._headed import PooledTask
from foreword.types import Array, Loss

# The most that a number may be, either way: its gradient's square is still finite in float32.
LARGEST = 1e7


def read_number(row: Mapping[str, Any], columns: Columns, source: str) -> Labelled | None:
    """Return the example of a row, its number perhaps with a decimal comma."""
    example = example_of(row, columns, source)
    if example is not None and example.label:
        _number(example)
    return example


class NumberJudge(Judge):
    """Both correlations, nan if all outputs or all targets are equal, and both errors."""

    names: ClassVar[tuple[str, ...]] = ("pearson", "spearman", "rmse", "mae")
    lower_is_better: ClassVar[tuple[str, ...]] = ("rmse", "mae")
    not_shares: ClassVar[tuple[str, ...]] = ("rmse", "mae")

    def scores(self, outputs: Array, targets: Array) -> dict[str, float]:
        predicted = outputs[:, 0].astype(np.float64)
        pearson, spearman = correlations(predicted, targets)
        excess = predicted - targets
        return {
            "pearson": pearson,
            "spearman": spearman,
            "rmse": float(np.sqrt(np.mean(excess**2))),
            "mae": float(np.mean(np.abs(excess))),
        }

    def baselines(self, train: Array, dev: Array, labels: Labels) -> Mapping[str, Array]:
        return {"mean": np.full((len(dev), 1), train.mean())}

    def notes(
        self, train: Sequence[Labelled], dev: Sequence[Labelled], tokenizer: Tokenizer
    ) -> list[str]:
        comma = next((e.label for e in (*train, *dev) if "," in e.label), "")
        return [f"labels with a comma are decimals: '{comma}' is {_plain(comma)}"] if comma else []


@dataclass(frozen=True)
class Regress(PooledTask):
    """Regression: dropout and a linear layer with one output on the pooled state of the text.

    The layer's -1 and 1 are the least and the greatest number of the training examples, so that
    any scale is learned alike; outputs may lie beyond.

    It is scored by Pearson's and Spearman's correlation, then by the root of the mean squared error
    and the mean absolute error (`rmse`, `mae`), which are in the labels' unit. The mean of the
    training examples stands beside.

    Also called: regression.
    Reference: Devlin et al. 2019, section 4.1, for STS-B (Cer et al. 2017).
    """

    reader: ClassVar[RowReader] = RowReader(read_number)
    exports: ClassVar[Exports] = Exports("SequenceClassification", problem_type="regression")
    output_form: ClassVar[OutputForm | None] = "number"
    judge: ClassVar[Judge] = NumberJudge()

    def labels(self, train: Sequence[Labelled]) -> Labels:
        """Return the least and the greatest number of the training examples."""
        numbers = _numbers(train)
        if not numbers or np.float32(min(numbers)) == np.float32(max(numbers)):
            what = f"all {len(train):,} are {numbers[0]:g}" if numbers else "there are none"
            raise UserError(f"the training examples need at least two numbers; {what}")
        return repr(min(numbers)), repr(max(numbers))

    def targets(self, examples: Sequence[Labelled], labels: Labels, encoded: Inputs = ()) -> Array:
        """Return the number of each example, (examples,) float32."""
        return np.asarray(_numbers(examples), dtype=np.float32)

    def head(self, d_model: int, labels: Labels) -> nn.Module:
        """Return dropout, a linear layer and the scale, (outputs, d_model) -> (outputs, 1)."""
        low, high = map(float, labels)
        return nn.Sequential(self.linear_head(d_model, 1), Scale(low, high))

    def loss(self, outputs: Tensor, targets: Tensor, numbers: Tensor) -> Loss:
        """Return the squared error."""
        total = (outputs[:, 0] - targets).square().sum()
        return Loss(total, total.new_tensor(float(len(targets))))


class Scale(nn.Module):
    """A linear map that takes -1 to `low` and 1 to `high`."""

    def __init__(self, low: float, high: float) -> None:
        super().__init__()
        self.middle, self.reach = (low + high) / 2, (high - low) / 2

    def forward(self, x: Tensor) -> Tensor:
        """Return `x`, of any shape, on the new scale."""
        return self.middle + self.reach * x


def _plain(label: str) -> str:
    """Return a number with a decimal point in place of a comma."""
    return label.replace(",", ".") if re.fullmatch(r"[+-]?\d*,\d+", label) else label


def _numbers(examples: Sequence[Labelled]) -> list[float]:
    forms = [next((e for e in examples if mark in e.label), None) for mark in (",", ".")]
    comma, point = forms
    if comma is not None and point is not None:
        raise UserError(
            f"{comma.source}: '{comma.label}' has a comma, and '{point.label}' in {point.source} a "
            "point; write all decimals in one form"
        )
    return [_number(example) for example in examples]


def _number(example: Labelled) -> float:
    try:
        number = float(_plain(example.label))
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        raise UserError(
            f"{example.source}: '{example.label}' is not a number; use --task classify for words"
        )
    if abs(number) > LARGEST:
        raise UserError(
            f"{example.source}: {example.label} is too large to learn; scale the labels, at most "
            f"{LARGEST:,.0f} either way"
        )
    return number
