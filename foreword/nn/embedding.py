"""The input of the stack: token, position and segment embeddings."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, cast

import torch
from torch import Tensor, nn

from foreword.nn.dropout import Dropout
from foreword.nn.positions._contract import PositionScheme
from foreword.types import Batch


class Embedding(nn.Module):
    """The sum of token, position and segment embeddings, normalised, dropped out and projected.

    Args:
        token: embeds tokens, a table or a module like one: with `num_embeddings` (the vocabulary's
            size) and `embedding_dim`.
        segments: number of segment embeddings, 0 for none.
        norm: applied to the sum; None for none.
        dropout: rate.
        project_to: width of the output, by a linear map; None for that of the embeddings.
    """

    def __init__(
        self,
        token: nn.Module,
        *,
        segments: int = 0,
        norm: nn.Module | None = None,
        dropout: float = 0.0,
        project_to: int | None = None,
    ) -> None:
        super().__init__()
        self.token: Any = token
        width = cast(int, token.embedding_dim)
        self.segment = nn.Embedding(segments, width) if segments else None
        self.norm = norm or nn.Identity()
        self.dropout = Dropout(dropout)
        self.projection = nn.Linear(width, project_to) if project_to else nn.Identity()

    def forward(
        self, batch: Batch, position: PositionScheme, vectors: Tensor | None = None
    ) -> Tensor:
        """Return the embedded batch, (batch, length, d_model), in the compute dtype.

        Args:
            batch: ids, positions and segments.
            position: position scheme of the stack.
            vectors: in place of the embeddings of the ids, (batch, length, d_embedding).
        """
        x = self.token(batch.ids) if vectors is None else vectors
        # Token, position and segment; without segments all are of the first.
        added = position.embed(batch.positions)
        if added is not None:
            x = x + added
        if self.segment is not None:
            segments = batch.segments
            x = x + self.segment(batch.positions.new_zeros(1) if segments is None else segments)
        x = self.norm(x)
        # Under autocast the residual stream runs in the low precision too.
        kind = x.device.type
        if torch.is_autocast_enabled(kind):
            x = x.to(torch.get_autocast_dtype(kind))
        projected: Tensor = self.projection(self.dropout(x))
        return projected


def token_tables(model: nn.Module, vocab: int) -> Iterator[Tensor]:
    """Yield the embeddings of tokens in a model, (vocab, width) each, each once.

    Args:
        model: a model, of any family.
        vocab: the size of its vocabulary.
    """
    seen: set[int] = set()
    for module in model.modules():
        if isinstance(module, Embedding) and isinstance(module.token, nn.Embedding):
            table = module.token.weight
            if len(table) == vocab and id(table) not in seen:
                seen.add(id(table))
                yield table
