"""The contract of fine-tuning tasks, the kinds in `tuning/tasks/`."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor, nn

from foreword.ranges import Ranged
from foreword.text.tokenizer import Tokenizer
from foreword.tuning.input_template import InputTemplate
from foreword.tuning.labelled import Labelled
from foreword.types import Array, Loss


@dataclass(frozen=True)
class EncodedExample:
    """One example as token ids.

    Attributes:
        ids: special tokens included, (length,) int64.
        segments: 0, and 1 for the second text of a pair, (length,) int64.
        pooled_positions: positions whose states the head reads, (pooled,) int64; positions in the
            decoder for an encoder-decoder.
        was_cut: whether the text was cut to the template's length.
        is_pooled: the head reads the mean of these states, not each of them.
        answer: the tokens to be generated, (tokens,) int64, with `ids` as the source, both without
            special tokens; None if a head reads pooled positions.
    """

    ids: Array
    segments: Array
    pooled_positions: Array
    was_cut: bool
    is_pooled: bool = False
    answer: Array | None = None


class Task(Ranged, ABC):
    """A task learned from labelled texts: a kind in `tuning/tasks/`.

    Attributes:
        has_classes: whether its labels are classes, and its outputs a score for each.
    """

    has_classes: ClassVar[bool] = False

    @property
    def auxiliary(self) -> float:
        """Weight of a decoder's language-model loss on the same texts, beside the task's loss."""
        return 0.0

    @property
    def mix_layers(self) -> bool:
        """Whether the head reads a scalar mix of all layers."""
        return False

    @abstractmethod
    def labels(self, train: Sequence[Labelled]) -> tuple[str, ...]:
        """Return the labels of the training examples, in the order of the outputs."""

    @abstractmethod
    def encode(
        self, examples: Sequence[Labelled], tokenizer: Tokenizer, template: InputTemplate
    ) -> Sequence[EncodedExample]:
        """Return each example as ids."""

    @abstractmethod
    def targets(self, examples: Sequence[Labelled], labels: tuple[str, ...]) -> Array:
        """Return the target of each example, (examples,)."""

    @abstractmethod
    def head(self, d_model: int, labels: tuple[str, ...]) -> nn.Module | None:
        """Return the head, (outputs, d_model) -> (outputs, labels), not yet initialised.

        None if the task answers in text: the head is then the output layer of pretraining.
        """

    @abstractmethod
    def loss(self, outputs: Tensor, targets: Tensor) -> Loss:
        """Return the loss, a sum and a count.

        Args:
            outputs: the head's, (outputs, labels); of a task that answers in text, the
                cross-entropy that the output layer of pretraining computed, in nats.
            targets: (outputs,).
        """

    @abstractmethod
    def scores(self, outputs: Array, targets: Array) -> dict[str, float]:
        """Return metrics by name, the most telling first."""

    @abstractmethod
    def baseline(self, targets: Array, labels: tuple[str, ...]) -> tuple[str, Array]:
        """Return the best outputs possible without reading the texts, from the training targets.

        Returns:
            The baseline's name, and its outputs for every example, (labels,).
        """
