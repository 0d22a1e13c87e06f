"""Models that learn from the whole text at once: what they are given, and what they say of it."""

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
    """What a model is fitted to, and how.

    Attributes:
        shards: the text.
        vocab: of the tokenizer.
        bos: the special token that the packing puts before each document, or "" for none.
        eos: the one that it puts after each, or "" for none.
        epochs: how often the text is read.
        lr: learning rate by the share of all epochs that is read.
        seed: of all that is drawn.
        threads: processor cores.
        folder: for what does not fit into memory; there until the model has been saved.
        progress: is told how much is done, and of how much.
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
    """What a model was fitted to.

    Attributes:
        tokens: that it has read, over all epochs.
        notes: what is worth knowing, a line each.
    """

    tokens: int
    notes: tuple[str, ...]
