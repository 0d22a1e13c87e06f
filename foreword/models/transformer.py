"""One stack over one sequence: encoder, decoder or prefix decoder, depending on the layout."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, cast

import torch
from torch import Tensor, nn

from foreword.errors import UserError
from foreword.nn.bias_table import BiasTable
from foreword.nn.cache import (
    AttentionCache,
    GrowingCache,
    GrowingLayer,
    LayerCache,
    token_layer,
)
from foreword.nn.model import Backbone, MemoryBackbone
from foreword.nn.stack import QueryStream, Stack
from foreword.nn.stack_settings import StackSettings
from foreword.settings import kinds
from foreword.settings.ranges import CountOrZero
from foreword.types import Batch, Hidden, Queries, ReadPositions


@dataclass(frozen=True)
class Transformer(StackSettings):
    """One stack (BERT, GPT). Its mask, and so its direction, comes with the batch.

    Attributes:
        assumes_causal_mask: promise that the mask lets no position see later ones, so that
            position schemes can rely on it (`t5_bias`, `relative`, `shaw`).
        memory: positions of the row before, in each layer, that a row attends to; it requires
            packing `stream` and positions relative to the query.
        bigrams: rows of a table whose vectors are added to the embeddings, one for each pair of a
            token and the one before it, by a hash; 0 for none. It requires `assumes_causal_mask`.
        two_streams: add an initial vector for the query stream of layout `two_streams` (XLNet).

    Reference: Vaswani et al. 2017; Devlin et al. 2019; Radford et al. 2018; Dai et al. 2019; Yang
    et al. 2019.
    """

    assumes_causal_mask: bool = False
    memory: CountOrZero = 0
    two_streams: bool = False
    bigrams: CountOrZero = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("memory", "two_streams"):
            if getattr(self, name) and not self.attention.is_dense:
                raise ValueError(f"{name}: requires attention 'dense'")
        if self.bigrams and (self.memory or not self.assumes_causal_mask):
            raise ValueError(
                "bigrams: requires a decoder, assumes_causal_mask=true, without a memory"
            )
        if self.memory and self.position.is_absolute:
            raise ValueError(
                f"memory: position '{kinds.name_of(self.position)}' numbers each row from 0, so "
                "a memory has no positions before it; use 'relative', 'rotary' or a bias"
            )

    @property
    def has_memory(self) -> bool:
        """Whether rows attend to the row before."""
        return self.memory > 0

    def build(self, vocab: int) -> Backbone:
        return TransformerBackbone(self, vocab)


class TransformerBackbone(MemoryBackbone):
    """Embedding, then blocks."""

    selects_positions = True

    def __init__(self, settings: Transformer, vocab: int) -> None:
        super().__init__()
        self.settings = settings
        self.embedding = settings.build_embedding(vocab, bigrams=settings.bigrams)
        self.stack = Stack(
            settings,
            settings.layers,
            is_causal=settings.assumes_causal_mask,
            memory_length=settings.memory,
        )
        # The query stream's initial vector, the same for every token.
        width = settings.embedding_width
        self.unread = BiasTable(1, width) if settings.two_streams else None

    def forward(self, batch: Batch, cache: Any = None) -> Hidden:
        """Return states (batch, length, d_model); `cache` is the key-value cache."""
        return self._run(batch, cache, keeps_layers=False)

    def by_layer(self, batch: Batch, cache: Any = None) -> Hidden:
        return self._run(batch, cache, keeps_layers=True)

    def _run(self, batch: Batch, cache: Any, *, keeps_layers: bool) -> Hidden:
        x = self.embedding(batch, self.stack.position, before=self._last_tokens(cache))
        queries, read = batch.part(Queries), batch.part(ReadPositions)
        query_stream = None if queries is None else self._query_stream(batch, queries)
        output = self.stack(
            x,
            batch.mask,
            cache,
            batch.memory,
            query_stream=query_stream,
            segments=batch.segments,
            read_at=None if read is None else read.at,
            keeps_layers=keeps_layers,
        )
        states = output.states if output.query_stream is None else output.query_stream
        memory = output.memory if self.stack.memory_length else None
        new_cache = output.cache
        if self.embedding.bigrams is not None:
            new_cache = [*new_cache, _with_tokens(cache, batch.ids)]
        return Hidden(states, new_cache, memory, output.layers)

    def _last_tokens(self, cache: list[LayerCache] | GrowingCache | None) -> Tensor | None:
        """Return the tokens before a batch, (batch,), for pairs; the cache has them at its end."""
        if cache is None or self.embedding.bigrams is None:
            return None
        if isinstance(cache, GrowingCache):
            return cache.last_tokens()
        return cast(AttentionCache, cache[-1])[0][0][:, 0, -1, 0]

    def layer_modules(self) -> list[nn.Module]:
        return self.stack.layer_modules()

    def set_memory_length(self, length: int) -> None:
        """Keep `length` positions of a row as the memory of the next."""
        self.stack.memory_length = length

    def with_layer_gradients(self, batch: Batch) -> Hidden:
        return self.by_layer(batch)

    def _query_stream(self, batch: Batch, queries: Queries) -> QueryStream:
        """Return the initial query stream: the position of each query, without its token."""
        if self.unread is None:
            raise UserError("model.two_streams: layout 'two_streams' requires it to be true")
        at, segments = queries.at, batch.segments
        predicted = replace(
            batch,
            positions=batch.positions.gather(1, at),
            segments=None if segments is None else segments.gather(1, at),
        )
        vectors = self.unread(torch.zeros_like(at))
        x = self.embedding(predicted, self.stack.position, vectors)
        return QueryStream(x, at, queries.mask)


def _with_tokens(cache: list[LayerCache] | GrowingCache | None, ids: Tensor) -> LayerCache:
    """Return the layer of a cache that holds the tokens, with new ones, (batch, length)."""
    new = token_layer(ids)
    if isinstance(cache, GrowingCache):
        return cast(GrowingLayer, cache[-1]).append(*new[0]), None
    if not cache:
        return new
    old = cast(AttentionCache, cache[-1])
    return token_layer(torch.cat([old[0][0][:, 0, :, 0], ids], 1))
