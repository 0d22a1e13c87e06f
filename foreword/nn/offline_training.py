"""Offline training, on the whole text at once: its contract, its inputs and its result."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from foreword.nn.model import Architecture
from foreword.types import Vocab

if TYPE_CHECKING:
    from foreword.data.shards import Shards


@dataclass(frozen=True)
class OfflineInputs:
    """The inputs of offline training.

    Attributes:
        shards: the text.
        vocab: the tokenizer's vocabulary.
        bos: the special token that packing puts before each document, or "" for none.
        eos: the special token that packing puts after each document, or "" for none.
        epochs: number of passes over the text.
        lr: learning rate, by the fraction of all epochs that is done.
        seed: the seed of all random numbers.
        threads: number of processor cores.
        folder: place for what does not fit into memory; it exists until the model has been saved.
        progress: called with the work done and the total.
    """

    shards: Shards
    vocab: Vocab
    bos: str
    eos: str
    epochs: int
    lr: Callable[[float], float]
    seed: int
    threads: int
    folder: Path
    progress: Callable[[float, float], None]


@dataclass(frozen=True)
class FitResult:
    """The result of offline training.

    Attributes:
        tokens: number read, over all epochs.
        notes: facts worth reporting, a line each.
    """

    tokens: int
    notes: tuple[str, ...]


@dataclass(frozen=True)
class OfflineArchitecture(Architecture):
    """The contract of kinds in `models/` that are trained offline, outside the loop.

    Their backbone is an `OfflineBackbone`.
    """

    trains_offline: ClassVar[bool] = True

    @abstractmethod
    def offline_epochs(self, unit: str, amount: float) -> int:
        """Return how often the model reads the text within a budget.

        Args:
            unit: unit of the budget: steps, epochs, tokens, flops or hours.
            amount: in that unit.

        Raises:
            UserError: it does not support such a budget.
        """


class OfflineBackbone(ABC):
    """A backbone that learns from the whole text at once."""

    @abstractmethod
    def fit(self, inputs: OfflineInputs) -> FitResult:
        """Learn from the whole text, from scratch.

        Raises:
            UserError: nothing can be learned from this text.
        """
