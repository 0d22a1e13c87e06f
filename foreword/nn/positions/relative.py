"""Relative positions by sinusoids of the distance: Transformer-XL's and, with segments, XLNet's."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import cast

import torch
from torch import Tensor, nn

from foreword.nn.bias_table import BiasTable
from foreword.nn.positions._contract import AttentionPositions, PositionKind, PositionScheme
from foreword.nn.precision import at_least_float32
from foreword.settings.ranges import CountOrZero, Wavelength


@dataclass(frozen=True)
class Relative(PositionKind):
    """Relative positions: four terms in each score, or five where segments are compared.

        (a) q_i k_j    content and content: plain attention
        (b) q_i r_d    content and distance d = i - j, r_d = W_r sinusoid(d), W_r of each layer
        (c) u k_j      content, for any query
        (d) v r_d      distance, for any query
        (e) (q_i + s) g, g_same if i and j are of one segment, else g_other

    Attributes:
        shared: all layers share u and v (Transformer-XL); else each layer has its own (XLNet).
        segments: add term (e), XLNet's relative segments; there are no segment embeddings.
        clamp: maximum distance, to which greater ones are clipped, for memories longer than in
            training; 0 for none.
        base: the longest wavelength is 2 pi times this.

    Reference: Dai et al. 2019, section 3.3; Yang et al. 2019, section 2.5, for segments.
    Differs from the paper: as in XLNet's code, segment terms have biases by head and two vectors
    g. The sinusoids are as wide as the embeddings and, unlike in their code, get no
    dropout.
    """

    shared: bool = True
    segments: bool = False
    clamp: CountOrZero = 0
    base: Wavelength = 10_000.0

    def build(
        self, width: int, heads: int, d_head: int, *, layers: int, is_causal: bool
    ) -> PositionScheme:
        """Return the module, with W_r for each layer."""
        if width % 2:
            raise ValueError(f"d_model: relative positions require an even number, got {width}")
        return RelativePositions(self, width, heads, d_head, layers, is_causal=is_causal)


class RelativePositions(PositionScheme):
    """Terms (b) to (e), added to the scores."""

    adds_scores = True

    def __init__(
        self,
        settings: Relative,
        width: int,
        heads: int,
        d_head: int,
        layers: int,
        *,
        is_causal: bool,
    ) -> None:
        super().__init__()
        self.settings, self.width, self.is_causal = settings, width, is_causal
        inner, tables = heads * d_head, 1 if settings.shared else layers
        self.maps = nn.ModuleList(nn.Linear(width, inner, bias=False) for _ in range(layers))
        self.u, self.v = BiasTable(tables, inner), BiasTable(tables, inner)
        self.s = BiasTable(tables, inner) if settings.segments else None
        # Two rows a layer: g_same, g_other.
        self.segment = nn.Embedding(2 * layers, inner) if settings.segments else None

    def scores(
        self, q: Tensor, k: Tensor, positions: AttentionPositions, layer: int
    ) -> Tensor | None:
        """Return (b) + (c) + (d) + (e), (batch, heads, queries, keys)."""
        heads, d_head = q.shape[1], q.shape[3]
        table = 0 if self.settings.shared else layer

        def vector(vectors: nn.Embedding, row: int) -> Tensor:
            chosen: Tensor = vectors(positions.queries.new_full((1,), row))
            return chosen.view(heads, 1, d_head).to(q.dtype)

        # (b) + (d) for each distance, then shifted to the keys: no more memory than the scores.
        distances = self._distances(positions, q.device)
        sinusoids = self._sinusoids(distances, at_least_float32(q.dtype)).to(q.dtype)
        r = cast(Tensor, self.maps[layer](sinusoids)).view(-1, heads, d_head).transpose(0, 1)
        by_distance = (q + vector(self.v, table)) @ r.transpose(-2, -1)
        added = self._shift(by_distance, positions) + vector(self.u, table) @ k.transpose(-2, -1)
        if self.s is None or self.segment is None or positions.segments is None:
            return added  # in one segment (e) is the same for all keys: the softmax ignores it
        # (e)
        g = torch.cat([vector(self.segment, 2 * layer), vector(self.segment, 2 * layer + 1)], 1)
        same, other = ((q + vector(self.s, table)) @ g.transpose(-2, -1)).unbind(-1)
        is_same = positions.compare(positions.segments)  # (batch, 1, queries, keys)
        return added + torch.where(is_same, same[..., None], other[..., None])

    def _distances(self, positions: AttentionPositions, device: torch.device) -> Tensor:
        """Return the distances that occur, descending by one, (distances,)."""
        queries, keys = positions.queries.shape[-1], positions.keys
        if positions.queries.ndim == 2:
            return torch.arange(keys - 1, -keys, -1, device=device)
        # One more than needed where all keys come before, so that a view can shift the rows.
        count = keys + 1 if self.is_causal else max(queries + keys - 1, keys + 1)
        return torch.arange(keys - 1, keys - 1 - count, -1, device=device)

    def _shift(self, x: Tensor, positions: AttentionPositions) -> Tensor:
        """Turn scores by distance into scores by key.

        Args:
            x: (batch, heads, queries, distances), distances descending by one.
            positions: positions of queries and keys.

        Returns:
            (batch, heads, queries, keys).
        """
        if positions.queries.ndim == 2:
            last = torch.arange(positions.keys, device=x.device) + positions.keys - 1
            at = last - positions.queries[:, :, None]  # (batch, queries, keys)
            return x.gather(3, at[:, None].expand(-1, x.shape[1], -1, -1))
        # Query i's scores begin at queries - 1 - i: one less than a row's length from row to row.
        queries, distances = x.shape[-2:]
        flat = x.flatten(-2)[..., queries - 1 : queries * distances - 1]
        return flat.view(*x.shape[:2], queries, distances - 1)[..., : positions.keys]

    def _sinusoids(self, distances: Tensor, dtype: torch.dtype) -> Tensor:
        """Return sines, then cosines, (distances, width)."""
        if self.settings.clamp:
            distances = distances.clamp(-self.settings.clamp, self.settings.clamp)
        half = self.width // 2
        steps = torch.arange(half, device=distances.device, dtype=dtype)
        angles = distances[:, None] * torch.exp(-math.log(self.settings.base) / half * steps)
        return torch.cat([angles.sin(), angles.cos()], dim=-1)
