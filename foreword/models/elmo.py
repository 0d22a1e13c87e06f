"""Two stacks of LSTMs that read apart, one from the left and one from the right: ELMo."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, cast

import torch
from torch import Tensor, nn

from foreword.nn.characters import Characters, Spelling
from foreword.nn.dropout import Dropout
from foreword.nn.embedding import Embedding
from foreword.nn.model import Backbone
from foreword.nn.positions.none import None_
from foreword.nn.precision import upcast
from foreword.nn.recurrent import State, recur
from foreword.nn.settings import ModelSettings
from foreword.nn.unrolled import unroll
from foreword.ranges import Count
from foreword.types import Batch, Hidden, Vocab

# A word on which kernel computes, once a process, and nothing to be done about it.
warnings.filterwarnings("ignore", "LSTM with projections is not supported with oneDNN")


@dataclass(frozen=True)
class ELMo(ModelSettings):
    """Forward and backward LSTMs over one embedding; neither sees what the other has read.

    `d_model` is the width of either direction. The states of a place are those of the forward
    stack, which has read up to it, and behind them those of the backward stack, which has read
    from the end of the document down to it. Each document begins from zeros.

    Attributes:
        d_cell: width of the LSTMs' cells, which a linear map takes down to d_model; d_model and no
            map if unsaid.
        residual: what enters a layer, but the first, is added to what leaves it.
        characters: tokens enter by their characters; else by a table of embeddings.
        spelling: how the characters are read.

    Reference: Peters et al. 2018, section 3; Jozefowicz et al. 2016; Kim et al. 2016.
    Differs from the paper: as in cuDNN there are two biases a gate, of which one would do; cells
    and projections are not clipped; no state is carried over from row to row; of a word outside
    the vocabulary no characters are seen, for it is [UNK] by then.
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
            raise ValueError(
                f"d_cell: must not be narrower than d_model, {self.d_model}, got {self.d_cell}"
            )
        if self.characters and self.tied:
            raise ValueError("tied: with characters there is no table of embeddings to be tied to")

    @property
    def state_width(self) -> int:
        """Of both directions."""
        return 2 * self.d_model

    @property
    def token_width(self) -> int:
        """Of one direction; that from the left stands first."""
        return self.d_model

    @property
    def depth(self) -> int:
        """Layers of both directions."""
        return 2 * self.layers

    def build(self, vocab: int) -> Backbone:
        """The backbone for a vocabulary of `vocab` ids."""
        return ElmoBackbone(self, vocab)


class ElmoBackbone(Backbone):
    """Embedding, then LSTMs of both directions."""

    first_state: ClassVar[int] = 1

    def __init__(self, settings: ELMo, vocab: int) -> None:
        super().__init__()
        self.settings = settings
        self.residual = settings.residual
        token = None
        if settings.characters:
            token = Characters(settings.spelling, vocab, settings.embedding_width)
        self.embedding = Embedding(settings, vocab, token=token)
        self.position = None_().build(0, 1, 0, layers=0, is_causal=False)
        self.ahead = nn.ModuleList(_lstm(settings) for _ in range(settings.layers))
        self.back = nn.ModuleList(_lstm(settings) for _ in range(settings.layers))
        self.dropout = Dropout(settings.dropout)

    def set_spellings(self, vocab: Vocab) -> None:
        """Tells the characters of each token, where tokens enter by them."""
        if isinstance(self.embedding.token, Characters):
            self.embedding.token.set_spellings(vocab)

    def forward(self, batch: Batch, cache: Any = None) -> Hidden:
        """States (batch, length, 2 d_model), the forward stack's first.

        `cache` is the state of the forward stack. With it the backward stack knows only what this
        batch has: a text that is being written has no end to begin from.
        """
        return replace(self.by_layer(batch, cache), layers=None)

    def by_layer(self, batch: Batch, cache: Any = None) -> Hidden:
        """The same, with the states of each layer; the embedding twice, as wide as the others."""
        x = self.embedding(batch, self.position)
        low, places = x.dtype, mirror(batch.positions)[..., None].expand(-1, -1, x.shape[2])
        # Products within a recurrence are small, and errors would add up from step to step.
        with torch.autocast(x.device.type, enabled=False):
            ahead, after = self._read(self.ahead, upcast(x), batch.positions, cache)
            # Each document turned round where it stands, read, and turned back.
            turned = upcast(x).gather(1, places)
            back, _ = self._read(self.back, turned, batch.positions, None)
        layers = [torch.cat([x, x], dim=-1)]
        layers += [
            torch.cat([a, b.gather(1, places)], dim=-1).to(low)
            for a, b in zip(ahead, back, strict=True)
        ]
        return Hidden(self.dropout(layers[-1]), after, layers=tuple(layers))

    def with_layer_gradients(self, batch: Batch) -> Hidden:
        """The same, step after step; `layers` are zeros added to the states of the forward stack.

        No later place reads the backward stack, and what is predicted from the left does not
        depend on it.
        """
        x = self.embedding(batch, self.position)
        ahead = cast(Sequence[nn.LSTM], self.ahead)
        is_new = batch.positions == 0
        states, nudges = unroll(ahead, x, is_new, None, residual=self.residual)
        places = mirror(batch.positions)[..., None].expand(-1, -1, x.shape[2])
        back, _ = self._read(self.back, x.gather(1, places), batch.positions, None)
        both = torch.cat([states, back[-1].gather(1, places)], dim=-1)
        return Hidden(self.dropout(both), layers=nudges)

    def _read(
        self, stack: nn.ModuleList, x: Tensor, positions: Tensor, before: State | None
    ) -> tuple[list[Tensor], State]:
        """The states of each layer of one direction, and where its LSTMs stand in the end."""
        found: list[Tensor] = []
        ends: list[Tensor] = []
        for n, lstm in enumerate(stack):
            begin = None if before is None else before[2 * n : 2 * n + 2]
            states, end = recur(cast(nn.LSTM, lstm), x, positions, begin)
            found.append(states + x if n and self.residual else states)
            ends += end
            x = self.dropout(found[-1])
        return found, tuple(ends)


def _lstm(settings: ELMo) -> nn.LSTM:
    cell = settings.d_cell or settings.d_model
    projected = settings.d_model if cell > settings.d_model else 0
    return nn.LSTM(
        settings.d_model, cell, bias=settings.bias, batch_first=True, proj_size=projected
    )


def mirror(positions: Tensor) -> Tensor:
    """For each place the one that takes its turn when its document is read from the end.

    [0 1 2 | 0 1] -> [2 1 0 | 4 3]

    Args:
        positions: (batch, length) int64, of places in their documents.

    Returns:
        (batch, length) int64.
    """
    length = positions.shape[1]
    place = torch.arange(length, device=positions.device)
    is_first = (positions == 0) | (place == 0)
    is_last = is_first.roll(-1, 1) | (place == length - 1)
    start = torch.where(is_first, place, 0).cummax(1).values
    end = torch.where(is_last, place, length - 1).flip(1).cummin(1).values.flip(1)
    return start + end - place
