"""The stream of all documents, one after the other, each between special tokens."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from foreword.data.shards import Shards
from foreword.errors import UserError
from foreword.types import Array, Vocab


@dataclass(frozen=True)
class DocumentPieces:
    """The tokens of some spans of the stream; a piece is the part of one document in one span.

    Attributes:
        ids: the tokens of all spans, one after the other; (tokens,) int64.
        lengths: tokens in each piece, none of them empty; (pieces,) int64.
        spans: the number of each piece's span; (pieces,) int64.
    """

    ids: Array
    lengths: Array
    spans: Array


class DocumentStream:
    """The documents in their order, each between the special tokens `bos` and `eos`.

        document 0: 7 8 9,  document 1: 4    ->    7 8 9 </s> 4 </s>

    Args:
        shards: the documents.
        vocab: to look up the special tokens.
        bos: the special token before each document, or "" for none.
        eos: the special token after each document, or "" for none.

    Attributes:
        bounds: the index in the stream at which each document begins, and the end;
            (documents + 1,) int64.
    """

    def __init__(self, shards: Shards, vocab: Vocab, bos: str, eos: str) -> None:
        self._bos = vocab.id(bos) if bos else None
        self._eos = vocab.id(eos) if eos else None
        self._shards = shards
        self._size = vocab.size
        self._extra = (self._bos is not None) + (self._eos is not None)
        self.bounds = shards.document_starts
        self.bounds += self._extra * np.arange(len(shards) + 1)

    def __len__(self) -> int:
        """Return the number of tokens in the stream."""
        return int(self.bounds[-1])

    def require_tokens(self, tokens: int, purpose: str) -> None:
        """Check that the stream has at least `tokens` tokens.

        Raises:
            UserError: there are fewer; the message names their `purpose`.
        """
        if len(self) < tokens:
            raise UserError(
                f"{self._shards.prefix}: only {len(self):,} tokens, but {purpose} needs "
                f"{tokens:,}; give more text, or set a smaller packing.length"
            )

    def documents_at(self, indices: Array) -> Array:
        """Return the document of each index of the stream, special tokens included; int64."""
        return np.searchsorted(self.bounds, indices, side="right") - 1

    def read(self, starts: Array, lengths: Array) -> DocumentPieces:
        """Return the tokens of some spans, each within the stream.

        Args:
            starts: the first index of each; (spans,) int64.
            lengths: tokens in each; (spans,) int64.

        Raises:
            UserError: the shards hold ids that the vocabulary does not have.
        """
        # The pieces: each overlap of a span with a document.
        ends = starts + lengths
        first = np.searchsorted(self.bounds, starts, side="right") - 1
        last = np.searchsorted(self.bounds, ends, side="left")  # the first document after the span
        documents, spans = ranges(first, np.maximum(last - first, 0))
        piece_starts = np.maximum(self.bounds[documents], starts[spans])
        stops = np.minimum(self.bounds[documents + 1], ends[spans])
        has_tokens = stops > piece_starts  # a document may be empty
        documents, spans = documents[has_tokens], spans[has_tokens]
        piece_starts, stops = piece_starts[has_tokens], stops[has_tokens]
        sizes = stops - piece_starts

        # The tokens: an index in the shard is that in the stream less the special tokens before it.
        shift = self._extra * documents + (self._bos is not None)
        indices, _ = ranges(piece_starts - shift, sizes)
        ids = np.take(self._shards.tokens, indices, mode="clip").astype(np.int64)
        # The special tokens, where a piece has the beginning or the end of its document.
        stop = np.cumsum(sizes)
        if self._bos is not None:
            ids[(stop - sizes)[piece_starts == self.bounds[documents]]] = self._bos
        if self._eos is not None:
            ids[(stop - 1)[stops == self.bounds[documents + 1]]] = self._eos
        if len(ids) and ids.max() >= self._size:
            raise UserError(
                f"{self._shards.prefix}: holds token {ids.max():,}, but the tokenizer has only "
                f"{self._size:,}; the shards were made with another one"
            )
        return DocumentPieces(ids, sizes, spans)


def ranges(starts: Array, lengths: Array) -> tuple[Array, Array]:
    """Return `lengths` consecutive numbers from each start in one array, and each one's range.

    starts [5 9], lengths [2 3]  ->  [5 6 9 10 11], [0 0 1 1 1]
    """
    which = np.repeat(np.arange(len(lengths)), lengths)
    before = np.cumsum(lengths) - lengths
    return (starts - before)[which] + np.arange(len(which)), which
