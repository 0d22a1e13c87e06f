"""Mean pooling of the source, independent of the target."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from foreword.nn.source_attentions._contract import SourceAttention


@dataclass(frozen=True)
class Mean:
    """Mean pooling: every score is 0. A baseline for attention."""

    def build(self, d_model: int) -> SourceAttention:
        """Return the module, without parameters."""
        return MeanAttention()


class MeanAttention(SourceAttention):
    """score(x, s) = 0."""

    def prepare(self, source: Tensor) -> Tensor:
        """Return the source unchanged."""
        return source

    def scores(self, x: Tensor, prepared: Tensor) -> Tensor:
        """Return zeros, (batch, length, source length)."""
        return x.new_zeros(*x.shape[:2], prepared.shape[1])
