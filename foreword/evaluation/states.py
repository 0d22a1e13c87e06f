"""Contextual word vectors: the states of a word in its sentence, layer by layer."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from foreword.errors import UserError
from foreword.evaluation.prompting import PromptedModel
from foreword.evaluation.scorer import padded
from foreword.nn.model import neural
from foreword.train.device import autocast
from foreword.types import Array

AT_ONCE = 32  # sentences in a batch


@dataclass(frozen=True)
class WordInText:
    """A word in its sentence.

    Attributes:
        text: the sentence.
        start: the word's first character.
        stop: the character after its last.
    """

    text: str
    start: int
    stop: int

    @property
    def word(self) -> str:
        """The word itself."""
        return self.text[self.start : self.stop]


@dataclass(frozen=True)
class WordStates:
    """The vectors of a word in its sentence, each the mean over the word's pieces.

    Attributes:
        pieces: the ids of the word's tokens, (pieces,) int64.
        alone: the mean of their embeddings, without context; (d_embedding,) float32.
        layers: the means of the input of the first layer and of the output of each, (width,)
            float32 each; empty for a model without layers.
    """

    pieces: Array
    alone: Array
    layers: tuple[Array, ...]


def vectors(prompted: PromptedModel, words: Sequence[WordInText]) -> Iterator[WordStates | None]:
    """Yield the vectors of each word; None where a piece of it is unknown to the tokenizer.

    Raises:
        UserError: a sentence is longer than the model can read, or the model embeds no tokens.
    """
    try:
        table = neural(prompted.model.backbone).embedding.token
    except UserError as error:
        raise UserError(
            f"{prompted.name}: this {prompted.family} has no vectors for tokens"
        ) from error
    unknown = prompted.vocab.special.get("[UNK]", -1)
    for first in range(0, len(words), AT_ONCE):
        rows, positions = [], []
        for word in words[first : first + AT_ONCE]:
            ids, offsets = prompted.tokenizer.encode_with_offsets(word.text)
            is_piece = (offsets[:, 0] < word.stop) & (offsets[:, 1] > word.start)
            rows.append(prompted.with_special_tokens(ids))
            positions.append(len(prompted.prefix) + np.flatnonzero(is_piece))
        layers = _by_layer(prompted, rows)
        for n, (row, where) in enumerate(zip(rows, positions, strict=True)):
            pieces = row[where]
            if not len(pieces) or (pieces == unknown).any():
                yield None
                continue
            with torch.no_grad():
                alone = table(torch.from_numpy(pieces).to(prompted.device)).float().mean(0)
            means = tuple(layer[n, where].mean(0) for layer in layers)
            yield WordStates(pieces, alone.cpu().numpy(), means)


def _by_layer(prompted: PromptedModel, rows: Sequence[Array]) -> list[Array]:
    """Return the states of texts by layer, (texts, length, width) float32 each."""
    batch = prompted.encoding_batch(padded(rows)).to(prompted.device)
    with torch.no_grad(), autocast(prompted.device, prompted.dtype):
        hidden = neural(prompted.model.backbone).by_layer(batch)
    return [layer.float().cpu().numpy() for layer in hidden.layers or ()]
