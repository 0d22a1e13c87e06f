"""Embeddings of tokens that begin as random numbers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from foreword.text.tokenizer import Tokenizer
from foreword.train.embedding_init._contract import EmbeddingInit, Text


@dataclass(frozen=True)
class Random(EmbeddingInit):
    """The random numbers of the model's own initialisation (`model.init_std`)."""

    is_random: ClassVar[bool] = True

    def source(self, text: Text) -> dict[str, Any]:
        """Return {}: they come from nothing."""
        return {}

    def vectors(self, text: Text, tokenizer: Tokenizer, width: int, seed: int) -> None:
        """Return None: nothing replaces the random numbers."""

    def require_fit(self, widths: Sequence[int]) -> None:
        """Every model fits."""
