"""What fine-tuning asks of a task and of a strategy, and the records that pass between them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple, Protocol

import torch
from torch import Tensor, nn

from foreword.nn.heads import TokenHead
from foreword.nn.model import Backbone, ModelSettings
from foreword.ranges import Ranged
from foreword.text.tokenizer import Tokenizer
from foreword.tune.input_template import InputTemplate
from foreword.tune.scalar_mix import ScalarMix, require_layers
from foreword.types import Array, Batch, Hidden, Loss


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


class Network(nn.Module):
    """A pretrained body under the head of a task.

    Args:
        backbone: reads rows of tokens.
        head: turns states (spots, d_model) into outputs (spots, outputs).
        token_head: pretraining's own, for a loss of language modelling beside the task's; or None.
        scalar_mix: makes the states that the head reads of those of all layers; None for the last
            one's.
    """

    def __init__(
        self,
        backbone: Backbone,
        head: nn.Module,
        token_head: TokenHead | None = None,
        scalar_mix: ScalarMix | None = None,
    ) -> None:
        super().__init__()
        self.backbone = backbone
        self.head = head
        self.token_head = token_head
        self.scalar_mix = scalar_mix

    def run_backbone(self, batch: Batch) -> Hidden:
        """The body's states; with those of each layer, where these are mixed."""
        hidden: Hidden = (
            self.backbone(batch) if self.scalar_mix is None else self.backbone.by_layer(batch)
        )
        return hidden

    def features(
        self, hidden: Hidden, rows: Tensor, columns: Tensor, lengths: Tensor | None
    ) -> Tensor:
        """What the head reads for each output, (layers, outputs, width) float32.

        Of the last layer alone, or of all where they are mixed.

        Args:
            hidden: what the body says.
            rows: row of each spot, (spots,).
            columns: its place in the row, (spots,).
            lengths: how many spots are averaged for each output, (outputs,); None where none are.

        Raises:
            UserError: the layers are to be mixed and cannot be.
        """
        layers = [hidden.states] if self.scalar_mix is None else require_layers(hidden.layers)
        found = [states[rows, columns].float() for states in layers]
        if lengths is not None:
            found = [torch.segment_reduce(f, "mean", lengths=lengths) for f in found]
        return found[0][None] if len(found) == 1 else torch.stack(found)

    def outputs(self, features: Tensor) -> Tensor:
        """The head's, (outputs, labels) float32, whatever the body computes in."""
        with torch.autocast(features.device.type, enabled=False):
            states = features[0] if self.scalar_mix is None else self.scalar_mix(features)
            found: Tensor = self.head(states)
        return found


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


def scalar_mix(task: Task, settings: ModelSettings) -> ScalarMix | None:
    """What mixes the layers of such a body, where the task asks for it."""
    return ScalarMix(settings.layers + 1) if task.mix_layers else None


class Strategy(Protocol):
    """What of the network is trained, and how fast: a kind in `tune/strategies/`.

    Attributes:
        trains_backbone: whether any part of the body is.
    """

    trains_backbone: ClassVar[bool]

    def peak_lr(self, settings: ModelSettings) -> float:
        """The peak learning rate for a body of these settings."""

    def prepare(self, network: Network) -> None:
        """Says of each parameter whether it is trained."""

    def train(self, network: Network) -> None:
        """Sets the parts that are trained to training mode, the others to evaluation mode."""
