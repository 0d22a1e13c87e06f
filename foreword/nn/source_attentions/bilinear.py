"""Scores by a learned inner product."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor, nn

from foreword.nn.source_attentions._contract import SourceAttention


@dataclass(frozen=True)
class Bilinear:
    """score(x, s) = x . W s.

    Also called: general, multiplicative.
    Reference: Luong et al. 2015, section 3.1 ("general").
    """

    def build(self, d_model: int) -> SourceAttention:
        """Return the module with its matrix W."""
        return BilinearAttention(d_model)


class BilinearAttention(SourceAttention):
    """score(x, s) = x . W s."""

    def __init__(self, d_model: int) -> None:
        super().__init__()
        self.source = nn.Linear(d_model, d_model, bias=False)

    def prepare(self, source: Tensor) -> Tensor:
        """Return W s."""
        prepared: Tensor = self.source(source)
        return prepared

    def scores(self, x: Tensor, prepared: Tensor) -> Tensor:
        """Return (batch, length, source length)."""
        return x.to(prepared.dtype) @ prepared.transpose(1, 2)
