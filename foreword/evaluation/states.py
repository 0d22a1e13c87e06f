"""Contextual vectors: the states of texts and of words in their sentences, layer by layer."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

import numpy as np
import torch

from foreword.errors import UserError
from foreword.evaluation.scorer import padded
from foreword.nn.model import neural
from foreword.runs.trained_model import NEURAL, TrainedModel
from foreword.train.device import autocast
from foreword.types import Array

AT_ONCE = 32  # texts in a batch


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


@dataclass(frozen=True)
class TextStates:
    """The vectors of a text's tokens, without the special tokens around it.

    Attributes:
        ids: (length,) int64.
        offsets: first character of each token and the one after its last, (length, 2) int64.
        alone: their embeddings, without context; (length, d_embedding) float32.
        layers: the input of the first layer and the output of each, (length, width) float32 each;
            empty for a model without layers.
    """

    ids: Array
    offsets: Array
    alone: Array
    layers: tuple[Array, ...]

    def tokens_of(self, start: int, stop: int) -> Array:
        """Return the indices of the tokens of characters `start` to `stop` - 1, (tokens,) int64."""
        return np.flatnonzero((self.offsets[:, 0] < stop) & (self.offsets[:, 1] > start))


def vectors(prompted: TrainedModel, words: Sequence[WordInText]) -> Iterator[WordStates | None]:
    """Yield the vectors of each word; None where a piece of it is unknown to the tokenizer.

    Raises:
        UserError: a sentence is longer than the model can read, or the model embeds no tokens.
    """
    unknown = prompted.vocab.unknown
    states = text_states(prompted, (word.text for word in words))
    for word, of_text in zip(words, states, strict=True):
        where = of_text.tokens_of(word.start, word.stop)
        pieces = of_text.ids[where]
        if not len(pieces) or (pieces == unknown).any():
            yield None
            continue
        means = tuple(layer[where].mean(0) for layer in of_text.layers)
        yield WordStates(pieces, of_text.alone[where].mean(0), means)


def text_states(
    prompted: TrainedModel, texts: Iterable[str], *, splits: bool = False
) -> Iterator[TextStates]:
    """Yield the vectors of each text's tokens.

    Args:
        prompted: the model.
        texts: the texts.
        splits: read a text longer than the model's positions in parts, each without the context of
            the others.

    Raises:
        UserError: a text is longer than the model can read, or the model embeds no tokens.
    """
    try:
        table = neural(prompted.model.backbone).embedding.token
    except UserError as error:
        raise prompted.unable("has no vectors for tokens", NEURAL) from error
    around = len(prompted.with_special_tokens(np.empty(0, dtype=np.int64)))
    size = (prompted.limit or 0) - around if splits else 0
    iterator = iter(texts)
    while batch := list(islice(iterator, AT_ONCE)):
        encoded = [prompted.tokenizer.encode_with_offsets(text) for text in batch]
        parts = [_parts(ids, size) for ids, _ in encoded]
        rows = [prompted.with_special_tokens(part) for of_text in parts for part in of_text]
        layers = [
            layer
            for n in range(0, len(rows), AT_ONCE)
            for layer in _by_row(prompted, rows[n : n + AT_ONCE])
        ]
        row = 0
        for (ids, offsets), of_text in zip(encoded, parts, strict=True):
            # Join the parts again, without the special tokens.
            inner = [
                [layer[len(prompted.prefix) :][: len(part)] for layer in layers[row + n]]
                for n, part in enumerate(of_text)
            ]
            row += len(of_text)
            with torch.no_grad():
                alone = table(torch.from_numpy(ids).to(prompted.device)).float().cpu().numpy()
            joined = tuple(np.concatenate(pieces) for pieces in zip(*inner, strict=True))
            yield TextStates(ids, offsets, alone, joined)


def _parts(ids: Array, size: int) -> list[Array]:
    """Return ids in parts of at most `size` tokens; whole with size 0."""
    if not 0 < size < len(ids):
        return [ids]
    return [ids[n : n + size] for n in range(0, len(ids), size)]


def _by_row(prompted: TrainedModel, rows: Sequence[Array]) -> list[list[Array]]:
    """Return the states of each row by layer, (length, width) float32 each, padding included."""
    batch = prompted.encoding_batch(padded(rows)).to(prompted.device)
    with torch.no_grad(), autocast(prompted.device, prompted.dtype):
        hidden = neural(prompted.model.backbone).by_layer(batch)
    layers = [layer.float().cpu().numpy() for layer in hidden.layers or ()]
    return [[layer[n] for layer in layers] for n in range(len(rows))]
