"""Scores by an inner product that is learned."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor, nn

from foreword.nn.source_attention import SourceAttention


@dataclass(frozen=True)
class Bilinear:
    """score(x, s) = x . W s.

    Reference: Luong et al. 2015, section 3.1 ("general").
    """

    def build(self, d_model: int) -> SourceAttention:
        """The module with its matrix W."""
        return BilinearAttention(d_model)


class BilinearAttention(SourceAttention):
    """score(x, s) = x . W s."""

    def __init__(self, d_model: int) -> None:
        super().__init__()
        self.source = nn.Linear(d_model, d_model, bias=False)

    def prepare(self, source: Tensor) -> Tensor:
        """W s."""
        found: Tensor = self.source(source)
        return found

    def scores(self, x: Tensor, prepared: Tensor) -> Tensor:
        """(batch, length, source length)."""
        return x.to(prepared.dtype) @ prepared.transpose(1, 2)
