"""Attention of recurrent decoders to a source (Bahdanau et al. 2015; Luong et al. 2015)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Protocol

import torch
from torch import Tensor, nn

from foreword.nn.precision import upcast


class SourceAttention(nn.Module, ABC):
    """Attention of one head, as recurrent models have it: its weights are an alignment."""

    @abstractmethod
    def prepare(self, source: Tensor) -> Tensor:
        """What of the source does not depend on the target, (batch, source length, d_model)."""

    @abstractmethod
    def scores(self, x: Tensor, prepared: Tensor) -> Tensor:
        """How well each state of the target goes with each of the source.

        Args:
            x: states of the target, (batch, length, d_model).
            prepared: what `prepare` gave, (batch, source length, d_model).

        Returns:
            (batch, length, source length).
        """

    def forward(
        self, x: Tensor, source: Tensor, prepared: Tensor, is_there: Tensor
    ) -> tuple[Tensor, Tensor]:
        """The mean of the source's states, weighted by the softmax of the scores.

        Args:
            x: states of the target, (batch, length, d_model).
            source: states of the source, (batch, source length, d_model).
            prepared: what `prepare` made of them.
            is_there: which of them are no padding, (batch, source length) bool.

        Returns:
            The means, (batch, length, d_model), zeros where there is no source; and the weights,
            (batch, length, source length).
        """
        scores = self.scores(x, prepared)
        scores = upcast(scores)
        is_there = is_there[:, None]
        # Half the least number rather than -inf: without a source there must be no NaN.
        scores = scores.masked_fill(~is_there, torch.finfo(scores.dtype).min / 2)
        weights = torch.softmax(scores, -1) * is_there
        return weights.to(source.dtype) @ source, weights


class SourceAttentionKind(Protocol):
    """The settings of a way to align: a kind in `nn/source_attentions/`."""

    @abstractmethod
    def build(self, d_model: int) -> SourceAttention | None:
        """The module for states of width `d_model`; None looks at no source."""
