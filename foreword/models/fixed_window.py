"""Bengio's neural language model, with a fixed window of preceding words."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from foreword.nn.dropout import Dropout
from foreword.nn.model import Backbone, ModelSettings, NeuralBackbone
from foreword.nn.positions.none import None_
from foreword.settings.ranges import Count
from foreword.types import Batch, Hidden


@dataclass(frozen=True)
class FixedWindow(ModelSettings):
    """The concatenated embeddings of the last words through one hidden layer.

        y = b + W x + U tanh(d + H x),    x the `window` embeddings

    `d_model` is the width of the hidden layer, `d_embedding` of an embedding (default d_model).
    `layers` beyond 1 are further hidden layers. Words before the first of a document are zeros.

    Attributes:
        window: number of preceding words, n - 1 in the paper.
        direct: add W, the connections from the embeddings to the output.

    Also called: feedforward, NNLM.
    Reference: Bengio et al. 2003, section 2.
    """

    reads_ahead: ClassVar[bool] = False

    layers: Count = 1
    tied: bool = False
    window: Count = 4
    direct: bool = False

    @property
    def state_width(self) -> int:
        """Width of the hidden layer and, with direct connections, of the embeddings too."""
        return self.d_model + self.direct * self.window * self.embedding_width

    def build(self, vocab: int) -> Backbone:
        return FixedWindowBackbone(self, vocab)


class FixedWindowBackbone(NeuralBackbone):
    """Concatenated embeddings, then hidden layers."""

    def __init__(self, settings: FixedWindow, vocab: int) -> None:
        super().__init__()
        self.settings = settings
        self.embedding = settings.build_embedding(vocab, projects=False)
        self.position = None_().build(0, 1, 0, layers=0, is_causal=True)
        widths = [settings.window * settings.embedding_width, *[settings.d_model] * settings.layers]
        self.hidden = nn.ModuleList(
            nn.Linear(widths[n], widths[n + 1]) for n in range(settings.layers)
        )
        self.dropout = Dropout(settings.dropout)

    def forward(self, batch: Batch, cache: Any = None) -> Hidden:
        """Return states (batch, length, state_width); `cache` has the last embeddings."""
        return replace(self.by_layer(batch, cache), layers=None)

    def by_layer(self, batch: Batch, cache: Any = None) -> Hidden:
        settings = self.settings
        assert isinstance(settings, FixedWindow)
        x = self.embedding(batch, self.position)
        cached = settings.window - 1
        if cache is None:
            cache = x.new_zeros(x.shape[0], cached, x.shape[2])
        words = torch.cat([cache, x], dim=1)  # (batch, window - 1 + length, d_embedding)
        windows = words.unfold(1, settings.window, 1).transpose(2, 3)
        windows = self._mask_documents(windows, batch.positions).flatten(2)
        h, layers = windows, [x]
        for layer in self.hidden:
            h = self.dropout(torch.tanh(layer(h)))
            layers.append(h)
        states = torch.cat([h, windows], dim=-1) if settings.direct else h
        return Hidden(states, words[:, words.shape[1] - cached :], layers=tuple(layers))

    def layer_modules(self) -> list[nn.Module]:
        return list(self.hidden)

    def with_layer_gradients(self, batch: Batch) -> Hidden:
        return self.by_layer(batch)

    def _mask_documents(self, windows: Tensor, positions: Tensor) -> Tensor:
        """Return windows with zeros for words before the first of the document."""
        distance = torch.arange(windows.shape[2] - 1, -1, -1, device=windows.device)
        is_before = distance > positions[..., None]  # (batch, length, window)
        return windows.masked_fill(is_before[..., None], 0.0)
