"""The neural language model that sees a fixed number of words before: Bengio's."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from foreword.nn.dropout import Dropout
from foreword.nn.embedding import Embedding
from foreword.nn.model import Backbone
from foreword.nn.positions.none import None_
from foreword.nn.settings import ModelSettings
from foreword.ranges import Count
from foreword.types import Batch, Hidden


@dataclass(frozen=True)
class FixedWindow(ModelSettings):
    """The embeddings of the last words, side by side, through one hidden layer.

        y = b + W x + U tanh(d + H x),    x the `window` embeddings

    `d_model` is the width of the hidden layer, `d_embedding` of an embedding (as wide if unsaid).
    `layers` beyond 1 are hidden layers more. Before the first word of a document stand zeros.

    Attributes:
        window: words that are seen: n - 1 of the paper.
        direct: W, the connections from the embeddings to the output.

    Reference: Bengio et al. 2003, section 2.
    """

    reads_ahead: ClassVar[bool] = False

    layers: Count = 1
    tied: bool = False
    window: Count = 4
    direct: bool = False

    @property
    def state_width(self) -> int:
        """Of the hidden layer and, with direct connections, of the embeddings beside it."""
        return self.d_model + self.direct * self.window * self.embedding_width

    def build(self, vocab: int) -> Backbone:
        """The backbone for a vocabulary of `vocab` ids."""
        return FixedWindowBackbone(self, vocab)


class FixedWindowBackbone(Backbone):
    """Embeddings side by side, hidden layers."""

    def __init__(self, settings: FixedWindow, vocab: int) -> None:
        super().__init__()
        self.settings = settings
        self.embedding = Embedding(settings, vocab, widens=False)
        self.position = None_().build(0, 1, 0, layers=0, is_causal=True)
        widths = [settings.window * settings.embedding_width, *[settings.d_model] * settings.layers]
        self.hidden = nn.ModuleList(
            nn.Linear(widths[n], widths[n + 1]) for n in range(settings.layers)
        )
        self.dropout = Dropout(settings.dropout)

    def forward(self, batch: Batch, cache: Any = None) -> Hidden:
        """States (batch, length, state_width); `cache` is the embeddings of the last words."""
        return replace(self.by_layer(batch, cache), layers=None)

    def by_layer(self, batch: Batch, cache: Any = None) -> Hidden:
        """The same, with the states of each layer."""
        settings = self.settings
        assert isinstance(settings, FixedWindow)
        x = self.embedding(batch, self.position)
        kept = settings.window - 1
        if cache is None:
            cache = x.new_zeros(len(x), kept, x.shape[2])
        words = torch.cat([cache, x], dim=1)  # (batch, window - 1 + length, d_embedding)
        seen = words.unfold(1, settings.window, 1).transpose(2, 3)  # (batch, length, window, d)
        seen = self._apart(seen, batch.positions).flatten(2)
        h, layers = seen, [x]
        for layer in self.hidden:
            h = self.dropout(torch.tanh(layer(h)))
            layers.append(h)
        states = torch.cat([h, seen], dim=-1) if settings.direct else h
        return Hidden(states, words[:, words.shape[1] - kept :], layers=tuple(layers))

    def with_layer_gradients(self, batch: Batch) -> Hidden:
        """The same, for gradients."""
        return self.by_layer(batch)

    def _apart(self, seen: Tensor, positions: Tensor) -> Tensor:
        """Zeros in the place of words before a document's first one."""
        back = torch.arange(seen.shape[2] - 1, -1, -1, device=seen.device)
        is_before = back > positions[..., None]  # (batch, length, window)
        return seen.masked_fill(is_before[..., None], 0.0)
