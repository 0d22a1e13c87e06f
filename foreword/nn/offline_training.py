"""Offline training, on the whole text at once: its inputs and its result."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from foreword.types import Vocab

if TYPE_CHECKING:
    from foreword.data.shards import Shards


@dataclass(frozen=True)
class OfflineInputs:
    """The inputs of offline training.

    Attributes:
        shards: the text.
        vocab: of the tokenizer.
        bos: the special token that packing puts before each document, or "" for none.
        eos: the special token that packing puts after each document, or "" for none.
        epochs: number of passes over the text.
        lr: learning rate, by the fraction of all epochs that is done.
        seed: of all random numbers.
        threads: number of processor cores.
        folder: for what does not fit into memory; it exists until the model has been saved.
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
