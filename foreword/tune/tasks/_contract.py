"""The contract of fine-tuning tasks, the kinds in `tune/tasks/`."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from torch import Tensor, nn

from foreword.ranges import Ranged
from foreword.text.tokenizer import Tokenizer
from foreword.tune.input_template import InputTemplate
from foreword.types import Array, Loss


class Labelled(NamedTuple):
    """One text, or two, and what is to be said of them.

    Attributes:
        text: the text.
        label: what it is, as written in the data; "" where it is to be found out.
        pair: the second text of a pair, or None.
        source: where it came from (`train.tsv:17`), for messages.
    """

    text: str
    label: str = ""
    pair: str | None = None
    source: str = ""


@dataclass(frozen=True)
class EncodedExample:
    """One example as a model reads it.

    Attributes:
        ids: special tokens included, (length,) int64.
        segments: 0, and 1 for the second text of a pair, (length,) int64.
        pooled_positions: positions whose states the head reads, (spots,) int64; of the decoder's
            tokens in an encoder-decoder.
        was_cut: whether the text was longer than the model may read.
        is_pooled: the head reads the mean of these states, and not each.
        answer: what is to be written in answer, (places,) int64, where `ids` are the source, both
            without special tokens; None where a head reads spots.
    """

    ids: Array
    segments: Array
    pooled_positions: Array
    was_cut: bool
    is_pooled: bool = False
    answer: Array | None = None


class Task(Ranged, ABC):
    """What is to be learned from labelled texts: a kind in `tune/tasks/`."""

    @property
    def auxiliary(self) -> float:
        """In decoders, weight of the language-model loss of the same texts beside the task's."""
        return 0.0

    @property
    def mix_layers(self) -> bool:
        """Whether the head reads a mean of the states of all layers, by weights it learns."""
        return False

    @abstractmethod
    def labels(self, train: Sequence[Labelled]) -> tuple[str, ...]:
        """The labels that the training examples know, in order."""

    @abstractmethod
    def encode(
        self, examples: Sequence[Labelled], tokenizer: Tokenizer, template: InputTemplate
    ) -> Sequence[EncodedExample]:
        """Each example as ids."""

    @abstractmethod
    def targets(self, examples: Sequence[Labelled], labels: tuple[str, ...]) -> Array:
        """What is right at each example's spots, (examples,)."""

    @abstractmethod
    def head(self, d_model: int, labels: tuple[str, ...]) -> nn.Module | None:
        """The module on top, (spots, d_model) -> (spots, outputs), not yet initialised.

        None where the task answers in text: then it is pretraining's output layer.
        """

    @abstractmethod
    def loss(self, outputs: Tensor, targets: Tensor) -> Loss:
        """A sum and a count."""

    @abstractmethod
    def scores(self, outputs: Array, targets: Array) -> dict[str, float]:
        """Metrics by name, the most telling first."""

    @abstractmethod
    def baseline(self, targets: Array, labels: tuple[str, ...]) -> tuple[str, Array]:
        """The best outputs (outputs,) of one who knows the training targets and reads nothing.

        Returns:
            What to call it, and the outputs for each spot.
        """
