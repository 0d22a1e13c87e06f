"""Scores by a small network over both states."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from foreword.nn.source_attentions._contract import SourceAttention


@dataclass(frozen=True)
class Additive:
    """score(x, s) = v . tanh(W x + U s).

    Also called: Bahdanau, concat, MLP.
    Reference: Bahdanau et al. 2015, section 3.1 and appendix A.1.2.
    """

    def build(self, d_model: int) -> SourceAttention:
        """Return the module with W, U and v."""
        return AdditiveAttention(d_model)


class AdditiveAttention(SourceAttention):
    """score(x, s) = v . tanh(W x + U s)."""

    def __init__(self, d_model: int) -> None:
        super().__init__()
        self.target = nn.Linear(d_model, d_model, bias=False)
        self.source = nn.Linear(d_model, d_model)
        self.score = nn.Linear(d_model, 1, bias=False)

    def prepare(self, source: Tensor) -> Tensor:
        """Return U s."""
        prepared: Tensor = self.source(source)
        return prepared

    def scores(self, x: Tensor, prepared: Tensor) -> Tensor:
        """Return (batch, length, source length)."""
        hidden = torch.tanh(self.target(x)[:, :, None] + prepared[:, None])
        scores: Tensor = self.score(hidden)[..., 0]
        return scores
