"""The input of the stack: token, pair, position and segment embeddings."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, cast

import torch
from torch import Tensor, nn

from foreword.nn.dropout import Dropout
from foreword.nn.positions._contract import PositionScheme
from foreword.types import Batch


class Bigrams(nn.Module):
    """Embeddings of pairs of a token and the one before it: rows of a table by a hash of the pair.

    Pairs may share a row. The first token of a document, or of its piece in a row, has a row of its
    own, the last. Rows begin at 0.

    Args:
        rows: rows for pairs.
        width: width of the embeddings.

    Reference: modded-nanogpt 2026, whose hash this is; its pairs cross documents.
    """

    def __init__(self, rows: int, width: int) -> None:
        super().__init__()
        self.rows = rows
        self.weight = nn.Parameter(torch.zeros(rows + 1, width))

    def forward(self, ids: Tensor, positions: Tensor, before: Tensor | None = None) -> Tensor:
        """Return the embeddings, (batch, length, width).

        Args:
            ids: (batch, length) int64.
            positions: of the tokens in their documents, (batch, length) int64.
            before: the tokens before the first column, (batch,) int64; None if there are none.
        """
        first = torch.full_like(ids[:, :1], -1) if before is None else before[:, None]
        previous = torch.cat([first, ids[:, :-1]], dim=1)
        is_first = (positions == 0) | (previous < 0)
        rows = ((ids * 36_313) ^ (previous * 27_191)) % self.rows
        return nn.functional.embedding(rows.masked_fill(is_first, self.rows), self.weight)


class Embedding(nn.Module):
    """The sum of token, position and segment embeddings, normalised, dropped out and projected.

    Args:
        token: embeds tokens, a table or a module like one: with `num_embeddings` (the vocabulary's
            size) and `embedding_dim`.
        segments: number of segment embeddings, 0 for none.
        norm: applied to the sum; None for none.
        dropout: rate.
        project_to: width of the output, by a linear map; None for that of the embeddings.
        bigrams: rows for pairs of tokens, see `Bigrams`; 0 for none.
    """

    def __init__(
        self,
        token: nn.Module,
        *,
        segments: int = 0,
        norm: nn.Module | None = None,
        dropout: float = 0.0,
        project_to: int | None = None,
        bigrams: int = 0,
    ) -> None:
        super().__init__()
        self.token: Any = token
        width = cast(int, token.embedding_dim)
        self.bigrams = Bigrams(bigrams, width) if bigrams else None
        self.segment = nn.Embedding(segments, width) if segments else None
        self.norm = norm or nn.Identity()
        self.dropout = Dropout(dropout)
        self.projection = nn.Linear(width, project_to) if project_to else nn.Identity()

    def forward(
        self,
        batch: Batch,
        position: PositionScheme,
        vectors: Tensor | None = None,
        before: Tensor | None = None,
    ) -> Tensor:
        """Return the embedded batch, (batch, length, d_model), in the compute dtype.

        Args:
            batch: ids, positions and segments.
            position: position scheme of the stack.
            vectors: in place of the embeddings of the ids, (batch, length, d_embedding).
            before: the tokens read before the batch, (batch,) int64, for pairs; or None.
        """
        x = self.token(batch.ids) if vectors is None else vectors
        if self.bigrams is not None:
            x = x + self.bigrams(batch.ids, batch.positions, before)
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
