"""Attention of recurrent decoders to a source (Bahdanau et al. 2015; Luong et al. 2015)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Protocol

import torch
from torch import Tensor, nn

from foreword.nn.precision import upcast


class SourceAttention(nn.Module, ABC):
    """Single-head attention of recurrent models; its weights are an alignment."""

    @abstractmethod
    def prepare(self, source: Tensor) -> Tensor:
        """Return the part that does not depend on the target, (batch, source length, d_model)."""

    @abstractmethod
    def scores(self, x: Tensor, prepared: Tensor) -> Tensor:
        """Return how well each state of the target matches each state of the source.

        Args:
            x: states of the target, (batch, length, d_model).
            prepared: output of `prepare`, (batch, source length, d_model).

        Returns:
            (batch, length, source length).
        """

    def forward(
        self, x: Tensor, source: Tensor, prepared: Tensor, is_token: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Return the mean of the source's states, weighted by the softmax of the scores.

        Args:
            x: states of the target, (batch, length, d_model).
            source: states of the source, (batch, source length, d_model).
            prepared: output of `prepare` on them.
            is_token: which of them are not padding, (batch, source length) bool.

        Returns:
            The means, (batch, length, d_model), zeros where there is no source; and the weights,
            (batch, length, source length).
        """
        scores = self.scores(x, prepared)
        scores = upcast(scores)
        is_token = is_token[:, None]
        # Half the least number rather than -inf: an empty source must not give NaN.
        scores = scores.masked_fill(~is_token, torch.finfo(scores.dtype).min / 2)
        weights = torch.softmax(scores, -1) * is_token
        return weights.to(source.dtype) @ source, weights


class SourceAttentionKind(Protocol):
    """The settings of attention to a source: a kind in `nn/source_attentions/`."""

    @abstractmethod
    def build(self, d_model: int) -> SourceAttention | None:
        """Return the module for states of width `d_model`; None for no attention."""
