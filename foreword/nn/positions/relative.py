"""Relative positions by waves of the distance: Transformer-XL's, and with segments XLNet's."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import cast

import torch
from torch import Tensor, nn

from foreword.nn.bias_table import BiasTable
from foreword.nn.position import AttentionPositions, PositionKind, PositionScheme
from foreword.nn.precision import at_least_float32
from foreword.ranges import CountOrZero, Wavelength


@dataclass(frozen=True)
class Relative(PositionKind):
    """Each score is a sum of four terms (and of two more where segments are compared).

        (a) q_i k_j    content and content: plain attention
        (b) q_i r_d    content and distance d = i - j, r_d = W_r waves(d), W_r of each layer
        (c) u k_j      content, whatever the query
        (d) v r_d      distance, whatever the query
        (e) (q_i + s) g, g one vector where i and j are of one segment, another where not

    Attributes:
        shared: u and v are the same in all layers (Transformer-XL), else each layer has its own
            (XLNet).
        segments: term (e), XLNet's relative segments, without segment embeddings.
        clamp: greater distances count as this one; 0 for none. For memories longer than in
            training.
        base: the longest wavelength is 2 pi times this.

    Reference: Dai et al. 2019, section 3.3; Yang et al. 2019, section 2.5, for segments.
    Differs from the paper: as in XLNet's code, segment terms have biases by head and their g is
    g_same or g_other. The waves are as wide as the embeddings and, unlike in their code, get no
    dropout.
    """

    shared: bool = True
    segments: bool = False
    clamp: CountOrZero = 0
    base: Wavelength = 10_000.0

    def build(
        self, width: int, heads: int, d_head: int, *, layers: int, is_causal: bool
    ) -> PositionScheme:
        """The module, with W_r for each layer."""
        if width % 2:
            raise ValueError(f"d_model: relative positions need an even number, got {width}")
        return RelativePositions(self, width, heads, d_head, layers, is_causal=is_causal)


class RelativePositions(PositionScheme):
    """Adds all but q_i k_j to the scores."""

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
        inner, own = heads * d_head, 1 if settings.shared else layers
        self.maps = nn.ModuleList(nn.Linear(width, inner, bias=False) for _ in range(layers))
        self.u, self.v = BiasTable(own, inner), BiasTable(own, inner)
        self.s = BiasTable(own, inner) if settings.segments else None
        # Of each layer: g_same, g_other.
        self.segment = nn.Embedding(2 * layers, inner) if settings.segments else None

    def scores(self, q: Tensor, k: Tensor, places: AttentionPositions, layer: int) -> Tensor | None:
        """(b) + (c) + (d) + (e), (batch, heads, queries, keys)."""
        heads, d_head = q.shape[1], q.shape[3]
        own = 0 if self.settings.shared else layer

        def vector(table: nn.Embedding, row: int) -> Tensor:
            return table.weight[row].view(heads, 1, d_head).to(q.dtype)

        # Shifted to where each key stands, the scores of distances take no more memory than these.
        distances = self._distances(places, q.device)
        waves = self._waves(distances, at_least_float32(q.dtype)).to(q.dtype)
        r = cast(Tensor, self.maps[layer](waves)).view(-1, heads, d_head).transpose(0, 1)
        by_distance = (q + vector(self.v, own)) @ r.transpose(-2, -1)
        added = self._shift(by_distance, places) + vector(self.u, own) @ k.transpose(-2, -1)
        if self.s is None or self.segment is None or places.segments is None:
            return added  # keys of one segment all get the same: the softmax does not see it
        g = torch.cat([vector(self.segment, 2 * layer), vector(self.segment, 2 * layer + 1)], 1)
        same, other = ((q + vector(self.s, own)) @ g.transpose(-2, -1)).unbind(-1)
        is_same = places.compare(places.segments)  # (batch, 1, queries, keys)
        return added + torch.where(is_same, same[..., None], other[..., None])

    def _distances(self, places: AttentionPositions, device: torch.device) -> Tensor:
        """The distances that occur, from the greatest down by one, (distances,)."""
        queries, keys = places.queries.shape[-1], places.keys
        if places.queries.ndim == 2:
            return torch.arange(keys - 1, -keys, -1, device=device)
        # One more than is wanted where all keys stand before, so that rows shift by a view.
        count = keys + 1 if self.is_causal else max(queries + keys - 1, keys + 1)
        return torch.arange(keys - 1, keys - 1 - count, -1, device=device)

    def _shift(self, x: Tensor, places: AttentionPositions) -> Tensor:
        """From scores by distance to scores by key.

        Args:
            x: (batch, heads, queries, distances), distances falling by one.
            places: of the queries.

        Returns:
            (batch, heads, queries, keys).
        """
        if places.queries.ndim == 2:
            back = torch.arange(places.keys, device=x.device) + places.keys - 1
            at = back - places.queries[:, :, None]  # (batch, queries, keys)
            return x.gather(3, at[:, None].expand(-1, x.shape[1], -1, -1))
        # Query i's row begins queries - 1 - i further on: one step less than a row from row to row.
        queries, distances = x.shape[-2:]
        flat = x.flatten(-2)[..., queries - 1 : queries * distances - 1]
        return flat.view(*x.shape[:2], queries, distances - 1)[..., : places.keys]

    def _waves(self, distances: Tensor, dtype: torch.dtype) -> Tensor:
        """Sines, then cosines, (distances, width)."""
        if self.settings.clamp:
            distances = distances.clamp(-self.settings.clamp, self.settings.clamp)
        half = self.width // 2
        steps = torch.arange(half, device=distances.device, dtype=dtype)
        angles = distances[:, None] * torch.exp(-math.log(self.settings.base) / half * steps)
        return torch.cat([angles.sin(), angles.cos()], dim=-1)
