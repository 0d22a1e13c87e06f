"""ELMo: separate stacks of LSTMs from the left and from the right."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, cast

import torch
from torch import Tensor, nn

from foreword.nn.characters import Characters, Spelling
from foreword.nn.dropout import Dropout
from foreword.nn.model import Backbone, ModelSettings, NeuralBackbone
from foreword.nn.positions.none import None_
from foreword.nn.precision import upcast
from foreword.nn.recurrent import State, recur
from foreword.nn.unrolled import unroll
from foreword.settings.ranges import Count
from foreword.types import Batch, Hidden, Vocab

# It only names the kernel in use, and a user cannot act on it.
warnings.filterwarnings("ignore", "LSTM with projections is not supported with oneDNN")


@dataclass(frozen=True)
class ELMo(ModelSettings):
    """Forward and backward LSTMs over one embedding, independent of each other.

    `d_model` is the width of each direction. The states of a position are those of the forward
    stack, which has read up to it, followed by those of the backward stack, which has read from the
    end of the document down to it. Each document begins from zeros.

    Attributes:
        d_cell: width of the LSTMs' cells, projected to d_model; default d_model, without a
            projection.
        residual: add each layer's input, but the first's, to its output.
        characters: embed tokens by their characters, not by a table.
        spelling: settings of the character embedding.

    Also called: biLM.
    Reference: Peters et al. 2018, section 3; Jozefowicz et al. 2016; Kim et al. 2016.
    Differs from the paper: as in cuDNN each gate has two biases, one of them redundant; cells and
    projections are not clipped; no state is kept from row to row; characters of a word outside the
    vocabulary are not seen, since it is [UNK].
    """

    predicts_both_directions: ClassVar[bool] = True

    layers: Count = 2
    tied: bool = False
    d_cell: Count | None = None
    residual: bool = True
    characters: bool = False
    spelling: Spelling = field(default_factory=Spelling)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.d_cell is not None and self.d_cell < self.d_model:
            raise ValueError(f"d_cell: must be at least d_model, {self.d_model}, got {self.d_cell}")
        if self.characters and self.tied:
            raise ValueError(
                "tied: requires a table of embeddings, so it cannot be combined with characters"
            )

    @property
    def state_width(self) -> int:
        """Width of both directions."""
        return 2 * self.d_model

    @property
    def token_width(self) -> int:
        """Width of one direction; the forward one comes first."""
        return self.d_model

    @property
    def depth(self) -> int:
        """Number of layers of both directions together."""
        return 2 * self.layers

    def build(self, vocab: int) -> Backbone:
        return ElmoBackbone(self, vocab)


class ElmoBackbone(NeuralBackbone):
    """Embedding, then LSTMs of both directions."""

    first_contextual_layer: ClassVar[int] = 1

    def __init__(self, settings: ELMo, vocab: int) -> None:
        super().__init__()
        self.settings = settings
        self.residual = settings.residual
        token = None
        if settings.characters:
            token = Characters(settings.spelling, vocab, settings.embedding_width)
        self.embedding = settings.build_embedding(vocab, token=token)
        self.position = None_().build(0, 1, 0, layers=0, is_causal=False)
        self.ahead = nn.ModuleList(_lstm(settings) for _ in range(settings.layers))
        self.back = nn.ModuleList(_lstm(settings) for _ in range(settings.layers))
        self.dropout = Dropout(settings.dropout)

    def set_spellings(self, vocab: Vocab) -> None:
        """Set the characters of each token, if tokens are embedded by them."""
        if isinstance(self.embedding.token, Characters):
            self.embedding.token.set_spellings(vocab)

    def forward(self, batch: Batch, cache: Any = None) -> Hidden:
        """Return states (batch, length, 2 d_model), the forward stack's first.

        `cache` is the state of the forward stack. With it the backward stack reads this batch
        alone, since a text being written has no end to begin from.
        """
        return replace(self.by_layer(batch, cache), layers=None)

    def by_layer(self, batch: Batch, cache: Any = None) -> Hidden:
        """Like `forward`, with the states of each layer; the embedding is repeated twice."""
        x = self.embedding(batch, self.position)
        low, mirrored = x.dtype, mirror(batch.positions)[..., None].expand(-1, -1, x.shape[2])
        # In float32: products within a recurrence are small, and errors accumulate over steps.
        with torch.autocast(x.device.type, enabled=False):
            ahead, after = self._run(self.ahead, upcast(x), batch.positions, cache)
            # Each document is reversed in place, read, and reversed back.
            reversed_x = upcast(x).gather(1, mirrored)
            back, _ = self._run(self.back, reversed_x, batch.positions, None)
        layers = [torch.cat([x, x], dim=-1)]
        layers += [
            torch.cat([a, b.gather(1, mirrored)], dim=-1).to(low)
            for a, b in zip(ahead, back, strict=True)
        ]
        return Hidden(self.dropout(layers[-1]), after, layers=tuple(layers))

    def layer_modules(self) -> list[nn.Module]:
        """Return the LSTMs of each layer, those of both directions."""
        return [nn.ModuleList(pair) for pair in zip(self.ahead, self.back, strict=True)]

    def with_layer_gradients(self, batch: Batch) -> Hidden:
        """Like `forward`, step by step; `layers` are zeros added to the forward stack's states.

        No later position reads the backward stack, and predictions from the left do not depend on
        it.
        """
        x = self.embedding(batch, self.position)
        ahead = cast(Sequence[nn.LSTM], self.ahead)
        is_new = batch.positions == 0
        states, zeros = unroll(ahead, x, is_new, None, residual=self.residual)
        mirrored = mirror(batch.positions)[..., None].expand(-1, -1, x.shape[2])
        back, _ = self._run(self.back, x.gather(1, mirrored), batch.positions, None)
        both = torch.cat([states, back[-1].gather(1, mirrored)], dim=-1)
        return Hidden(self.dropout(both), layers=zeros)

    def _run(
        self, stack: nn.ModuleList, x: Tensor, positions: Tensor, before: State | None
    ) -> tuple[list[Tensor], State]:
        """Return the states of each layer of one direction, and its LSTMs' final states."""
        layers: list[Tensor] = []
        ends: list[Tensor] = []
        for n, lstm in enumerate(stack):
            initial = None if before is None else before[2 * n : 2 * n + 2]
            states, end = recur(cast(nn.LSTM, lstm), x, positions, initial)
            layers.append(states + x if n and self.residual else states)
            ends += end
            x = self.dropout(layers[-1])
        return layers, tuple(ends)


def _lstm(settings: ELMo) -> nn.LSTM:
    cell = settings.d_cell or settings.d_model
    projected = settings.d_model if cell > settings.d_model else 0
    return nn.LSTM(
        settings.d_model, cell, bias=settings.bias, batch_first=True, proj_size=projected
    )


def mirror(positions: Tensor) -> Tensor:
    """Return the index that takes each position's turn when documents are read from the end.

    [0 1 2 | 0 1] -> [2 1 0 | 4 3]

    Args:
        positions: within documents, (batch, length) int64.

    Returns:
        (batch, length) int64.
    """
    length = positions.shape[1]
    index = torch.arange(length, device=positions.device)
    is_first = (positions == 0) | (index == 0)
    is_last = is_first.roll(-1, 1) | (index == length - 1)
    start = torch.where(is_first, index, 0).cummax(1).values
    end = torch.where(is_last, index, length - 1).flip(1).cummin(1).values.flip(1)
    return start + end - index
