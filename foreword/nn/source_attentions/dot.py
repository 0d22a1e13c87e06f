"""Scores by the inner product of two states."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from foreword.nn.source_attentions._contract import SourceAttention


@dataclass(frozen=True)
class Dot:
    """score(x, s) = x . s: no parameters; both states have the same width.

    Also called: dot product.
    Reference: Luong et al. 2015, section 3.1.
    """

    def build(self, d_model: int) -> SourceAttention:
        """Return the module, without parameters."""
        return DotAttention()


class DotAttention(SourceAttention):
    """score(x, s) = x . s."""

    def prepare(self, source: Tensor) -> Tensor:
        """Return the source unchanged."""
        return source

    def scores(self, x: Tensor, prepared: Tensor) -> Tensor:
        """Return (batch, length, source length)."""
        return x @ prepared.transpose(1, 2)
