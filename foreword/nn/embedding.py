"""The input of the stack: token, position and segment embeddings."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from foreword.nn.dropout import Dropout
from foreword.nn.norm import build_norm
from foreword.nn.position import PositionScheme
from foreword.nn.settings import ModelSettings
from foreword.types import Batch


class Embedding(nn.Module):
    """The sum of token, position and segment embeddings, normalised, dropped out and projected.

    Args:
        settings: widths and choices.
        vocab: number of tokens.
        widens: whether embeddings narrower than d_model are projected to it.
        token: embeds tokens in place of a table.
    """

    def __init__(
        self,
        settings: ModelSettings,
        vocab: int,
        *,
        widens: bool = True,
        token: nn.Module | None = None,
    ) -> None:
        super().__init__()
        width = settings.embedding_width
        self.token: Any = token or nn.Embedding(vocab, width)
        self.segment = nn.Embedding(settings.segments, width) if settings.segments else None
        self.norm = (
            build_norm(settings.norm, width, settings.norm_eps, bias=settings.bias)
            if settings.normalise_embedding
            else nn.Identity()
        )
        self.dropout = Dropout(settings.dropout)
        self.projection = (
            nn.Linear(width, settings.d_model) if widens and settings.d_embedding else nn.Identity()
        )

    def forward(self, batch: Batch, position: PositionScheme) -> Tensor:
        """Return the embedded batch, (batch, length, d_model), in the compute dtype."""
        return self.enter(self.token(batch.ids), batch.positions, batch.segments, position)

    def enter(
        self, x: Tensor, positions: Tensor, segments: Tensor | None, position: PositionScheme
    ) -> Tensor:
        """Return the embedded batch, given its token vectors.

        Args:
            x: token vectors, (batch, length, d_embedding).
            positions: of each, (batch, length) int64.
            segments: of each, (batch, length) int64; None means all 0.
            position: position scheme of the stack.
        """
        vectors = position.embed(positions)
        if vectors is not None:
            x = x + vectors
        if self.segment is not None:
            x = x + (self.segment.weight[0] if segments is None else self.segment(segments))
        x = self.norm(x)
        kind = x.device.type
        # Under autocast the residual stream runs in the low precision too.
        if torch.is_autocast_enabled(kind):
            x = x.to(torch.get_autocast_dtype(kind))
        projected: Tensor = self.projection(self.dropout(x))
        return projected
