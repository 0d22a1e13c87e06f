"""Texts as models of counts read them: whole, one after the other, each with what begins it."""

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


def words_of(vocab: Vocab, after: str) -> Array:
    """What may be predicted: all but special tokens, with [UNK] and the token `after` a document.

    These are the words over which KenLM spreads what unigrams leave. Returns (vocab,) bool.
    """
    is_word = ~vocab.is_special
    is_word[[vocab.id(name) for name in (UNK, after) if name in vocab.special]] = True
    return is_word


@dataclass(frozen=True)
class NgramTexts:
    """Documents one after the other, wrapped as the packing does.

    Attributes:
        stream: of their tokens.
        start: the token before each document.
        is_word: see `words_of`.
    """

    stream: DocumentStream
    start: int
    is_word: Array

    @classmethod
    def of(cls, shards: Shards, vocab: Vocab, before: str, after: str) -> NgramTexts:
        """The documents of shards.

        Args:
            shards: the documents.
            vocab: to look up the special tokens.
            before: the name of the token that begins each, which is never predicted.
            after: the name of the token that ends each, or "" for none.

        Raises:
            UserError: nothing begins a document, or the same as ends it.
        """
        if not before or before == after:
            raise UserError(
                "packing.bos: a model of counts is given a token that begins each text, and "
                'nothing else; use packing.bos="<s>" with packing.kind=documents'
            )
        stream = DocumentStream(shards, vocab, before, after)
        return cls(stream, vocab.id(before), words_of(vocab, after))

    def __len__(self) -> int:
        """Tokens, with those that begin and end documents."""
        return len(self.stream)

    def read(self, first: int, stop: int) -> Array:
        """The tokens from `first` to `stop` - 1, (tokens,) int64."""
        return self.stream.read(np.array([first]), np.array([stop - first])).ids

    def store(self, scratch: Scratch, dtype: np.dtype[np.generic]) -> Array:
        """All tokens in a file, mapped; (tokens,)."""
        stored = scratch.create("stream", len(self), dtype)
        for part in scratch.parts(len(self)):
            stored[part] = self.read(part.start, part.stop)
        return stored


@dataclass(frozen=True)
class NgramLoss:
    """How likely a table finds texts, and how much of them it had seen.

    Attributes:
        nats: negative log-probability of all tokens but those that begin texts.
        tokens: how many.
        ngrams: by order, how many of that length the texts hold; (order,) int64.
        unseen: of these, how many the table does not have; (order,) int64.
    """

    nats: float
    tokens: int
    ngrams: Array
    unseen: Array

    @property
    def loss(self) -> float:
        """Nats per token."""
        return self.nats / max(1, self.tokens)


def measure(table: NgramTable, texts: NgramTexts, most: int | None = None) -> NgramLoss:
    """How likely the table finds the texts, or their first `most` tokens.

    Every document is read whole, wherever rows of a packing would be cut.
    """
    order, end = table.about.order, min(len(texts), most or len(texts))
    nats, tokens = 0.0, 0
    ngrams, unseen = np.zeros(order, dtype=np.int64), np.zeros(order, dtype=np.int64)
    is_known = table.seen_words()
    for at in range(0, end, CHUNK):
        before = min(at, order)  # enough to know the contexts of what follows
        ids = texts.read(at - before, min(at + CHUNK, end))
        found = table.find(ids)
        nats -= float(table.log_probs_of(ids, found)[before:].sum())
        is_text = ids[before:] != texts.start
        tokens += int(is_text.sum())
        for n, numbers in enumerate(found):
            there = numbers[before:][is_text]
            is_seen = there >= 0 if n else is_known[there]
            ngrams[n] += int((there != NONE).sum())
            unseen[n] += int((~is_seen & (there != NONE)).sum())
    return NgramLoss(nats, tokens, ngrams, unseen)
