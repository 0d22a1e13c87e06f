"""All of the source alike: the mean of its states, whatever is being written."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from foreword.nn.source_attention import SourceAttention


@dataclass(frozen=True)
class Mean:
    """Mean pooling: every score is 0. It is what attention has to beat."""

    def build(self, d_model: int) -> SourceAttention:
        """The module, without parameters."""
        return MeanAttention()


class MeanAttention(SourceAttention):
    """score(x, s) = 0."""

    def prepare(self, source: Tensor) -> Tensor:
        """The source as it is."""
        return source

    def scores(self, x: Tensor, prepared: Tensor) -> Tensor:
        """Zeros, (batch, length, source length)."""
        return x.new_zeros(*x.shape[:2], prepared.shape[1])
