"""Texts as n-gram models read them: whole and concatenated, each after its start token."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from foreword.data.document_stream import DocumentStream
from foreword.data.shards import Shards
from foreword.errors import UserError
from foreword.ngrams.counting import NONE
from foreword.ngrams.scratch import CHUNK, Scratch
from foreword.ngrams.table import NgramTable
from foreword.text.special import UNK
from foreword.types import Array, Vocab


def predictable_words(vocab: Vocab, eos: str) -> Array:
    """Return which ids may be predicted, (vocab,) bool: words, [UNK] and `eos`.

    KenLM interpolates unigrams with the uniform distribution over these.
    """
    is_word = ~vocab.is_special
    is_word[[vocab.id(name) for name in (UNK, eos) if name in vocab.special]] = True
    return is_word


@dataclass(frozen=True)
class NgramTexts:
    """Concatenated documents, with bos and eos as in the packing.

    Attributes:
        stream: their tokens.
        start: the token before each document.
        is_word: which ids may be predicted; see `predictable_words`.
    """

    stream: DocumentStream
    start: int
    is_word: Array

    @classmethod
    def of(cls, shards: Shards, vocab: Vocab, bos: str, eos: str) -> NgramTexts:
        """Return the documents of shards.

        Args:
            shards: the documents.
            vocab: the vocabulary with the special tokens.
            bos: the name of the token before each, which is never predicted.
            eos: the name of the token after each, or "" for none.

        Raises:
            UserError: no token begins a document, or the token that ends it does.
        """
        if not bos or bos == eos:
            raise UserError(
                "packing.bos: an n-gram model requires a token that begins each text and occurs "
                'nowhere else; use packing.bos="<s>" with packing.kind=documents'
            )
        stream = DocumentStream(shards, vocab, bos, eos)
        return cls(stream, vocab.id(bos), predictable_words(vocab, eos))

    def __len__(self) -> int:
        """Return the number of tokens, with those that begin and end documents."""
        return len(self.stream)

    def read(self, first: int, stop: int) -> Array:
        """Return the tokens `first` to `stop` - 1, (tokens,) int64."""
        return self.stream.read(np.array([first]), np.array([stop - first])).ids

    def store(self, scratch: Scratch, dtype: np.dtype[np.generic]) -> Array:
        """Return all tokens, memory-mapped from a new file; (tokens,)."""
        stored = scratch.create("stream", len(self), dtype)
        for part in scratch.parts(len(self)):
            stored[part] = self.read(part.start, part.stop)
        return stored


@dataclass(frozen=True)
class NgramLoss:
    """The loss of an n-gram table on texts, and how many of their n-grams it has not seen.

    Attributes:
        nats: negative log-probability of all tokens but those that begin texts.
        tokens: the number of these tokens.
        ngrams: how many n-grams of each order the texts have; (order,) int64.
        unseen: how many of these the table does not have; (order,) int64.
    """

    nats: float
    tokens: int
    ngrams: Array
    unseen: Array

    @property
    def loss(self) -> float:
        """Nats per token."""
        return self.nats / max(1, self.tokens)


def measure(table: NgramTable, texts: NgramTexts, max_tokens: int | None = None) -> NgramLoss:
    """Return the loss of the table on the texts, or on their first `max_tokens` tokens.

    Every document is read whole: the rows of a packing would cut documents.
    """
    order, end = table.header.order, min(len(texts), max_tokens or len(texts))
    nats, tokens = 0.0, 0
    ngrams, unseen = np.zeros(order, dtype=np.int64), np.zeros(order, dtype=np.int64)
    is_known = table.seen_words()
    for at in range(0, end, CHUNK):
        overlap = min(at, order)  # tokens of the chunk before, as context
        ids = texts.read(at - overlap, min(at + CHUNK, end))
        by_order = table.find(ids)
        nats -= float(table.log_probs_of(ids, by_order)[overlap:].sum())
        is_text = ids[overlap:] != texts.start
        tokens += int(is_text.sum())
        for n, ends in enumerate(by_order):
            numbers = ends[overlap:][is_text]
            is_seen = numbers >= 0 if n else is_known[numbers]
            ngrams[n] += int((numbers != NONE).sum())
            unseen[n] += int((~is_seen & (numbers != NONE)).sum())
    return NgramLoss(nats, tokens, ngrams, unseen)
