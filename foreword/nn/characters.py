"""Character embeddings of tokens, by convolutions and highway layers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from foreword.nn.sharded import set_values
from foreword.settings.ranges import Count, CountOrZero, Ranged
from foreword.types import Array, Vocab

# The first 256 characters are bytes, the others markers.
BEGIN, WITHIN, SPECIAL, END, PADDING = range(256, 261)
CHARACTERS = PADDING + 1


@dataclass(frozen=True)
class Spelling(Ranged):
    """The settings of character embeddings; the defaults are those of the published ELMo.

    Attributes:
        width: width of a character's embedding.
        filters: convolutions, (width in characters, number of filters) for each group.
        highways: number of highway layers after the convolutions.
        length: maximum characters of a token, begin and end included; the rest is truncated.
    """

    width: Count = 16
    filters: tuple[tuple[Count, Count], ...] = (
        (1, 32),
        (2, 32),
        (3, 64),
        (4, 128),
        (5, 256),
        (6, 512),
        (7, 1024),
    )
    highways: CountOrZero = 2
    length: Count = 50

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.filters:
            raise ValueError("filters: expected pairs [characters, filters], got none")
        widest = max(size for size, _ in self.filters)
        if self.length < max(3, widest):
            raise ValueError(
                f"length: must be at least {max(3, widest)}, for begin and end markers and the "
                f"widest filter, got {self.length}"
            )


class Highway(nn.Module):
    """Highway layer: y = g * relu(W x + b) + (1 - g) * x, with the gate g = sigmoid(W_g x + b_g).

    Reference: Srivastava et al. 2015.

    Args:
        width: width of x and y.
    """

    def __init__(self, width: int) -> None:
        super().__init__()
        self.both = nn.Linear(width, 2 * width)  # W and W_g

    def close_gates(self) -> None:
        """Nearly close the gates, so that at first the layer passes its input on."""
        bias = torch.zeros(len(self.both.bias))
        bias[len(bias) // 2 :] = -2.0
        set_values(self.both.bias, bias)

    def forward(self, x: Tensor) -> Tensor:
        """Return (..., width) -> (..., width)."""
        hidden, gate = self.both(x).chunk(2, dim=-1)
        return torch.lerp(x, F.relu(hidden), torch.sigmoid(gate))


class Characters(nn.Module):
    """An embedding of tokens by their spelling, in place of a table.

    Each token is its bytes between a begin and an end marker, then padding. The begin marker tells
    whether the token begins a word, continues one, or is special, so that `[PAD]` in a text is not
    the special token. The vectors of a batch's distinct tokens are computed, each once.

    Spellings come from the tokenizer, by `set_spellings`; before, token 12 is spelt `12`. They are
    not weights and not in checkpoints, since a run has its own tokenizer.

    Reference: Kim et al. 2016, section 2; Jozefowicz et al. 2016, section 3.

    Args:
        spelling: widths and filters.
        vocab: number of tokens.
        width: width of the vectors.
    """

    table: Tensor  # (vocab, length), the characters of each token

    def __init__(self, spelling: Spelling, vocab: int, width: int) -> None:
        super().__init__()
        self.num_embeddings, self.embedding_dim = vocab, width
        self.length = spelling.length
        self.character = nn.Embedding(CHARACTERS, spelling.width)
        self.filters = nn.ModuleList(
            nn.Conv1d(spelling.width, count, size) for size, count in spelling.filters
        )
        features = sum(count for _, count in spelling.filters)
        self.highways = nn.Sequential(*(Highway(features) for _ in range(spelling.highways)))
        self.project = nn.Linear(features, width)
        self.register_buffer(
            "table", torch.empty(vocab, spelling.length, dtype=torch.int16), persistent=False
        )
        self._fill((), np.full(vocab, BEGIN))

    def set_spellings(self, vocab: Vocab) -> None:
        """Set the spellings from a vocabulary of the same size."""
        begins = np.where(vocab.starts_word, BEGIN, WITHIN)
        self._fill(vocab.spellings, np.where(vocab.is_special, SPECIAL, begins))

    def _fill(self, spellings: tuple[bytes, ...], begins: Array) -> None:
        if not self.table.is_meta:
            numbers = range(len(spellings), len(self.table))
            complete = [*spellings, *(str(n).encode() for n in numbers)][: len(self.table)]
            self.table.copy_(torch.from_numpy(characters_of(complete, begins, self.length)))

    def forward(self, ids: Tensor) -> Tensor:
        """Return the vectors, (batch, length) -> (batch, length, width)."""
        distinct, where = torch.unique(ids, return_inverse=True)
        x = self.character(self.table[distinct].long()).transpose(1, 2)  # (tokens, width, length)
        features = torch.cat([F.relu(conv(x).amax(-1)) for conv in self.filters], dim=-1)
        vectors = cast(Tensor, self.project(self.highways(features)))
        return vectors[where]


def characters_of(spellings: list[bytes], begins: Array, length: int) -> Array:
    """Return the characters of each token, (tokens, length) int16.

    Args:
        spellings: in UTF-8.
        begins: begin marker of each, (tokens,).
        length: maximum characters, begin and end included.
    """
    cut = [spelling[: length - 2] for spelling in spellings]
    sizes = np.fromiter(map(len, cut), dtype=np.int64, count=len(cut))
    table = np.full((len(cut), length), PADDING, dtype=np.int16)
    table[:, 0] = begins
    table[np.arange(len(cut)), 1 + sizes] = END
    row = np.repeat(np.arange(len(cut)), sizes)
    column = 1 + np.arange(len(row)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    table[row, column] = np.frombuffer(b"".join(cut), dtype=np.uint8)
    return table
