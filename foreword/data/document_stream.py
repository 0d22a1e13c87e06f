"""The stream of all documents, one after the other, each wrapped in special tokens."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from foreword.data.shards import Shards
from foreword.errors import UserError
from foreword.types import Array, Vocab


@dataclass(frozen=True)
class Pieces:
    """What some spans of the stream hold; a piece is the part of one document in one span.

    Attributes:
        ids: of all spans, one after the other; (tokens,) int64.
        lengths: tokens in each piece, none of them empty; (pieces,) int64.
        spans: the span that each piece is in; (pieces,) int64.
    """

    ids: Array
    lengths: Array
    spans: Array


class DocumentStream:
    """Documents in their order, with `before` and `after` around each.

        document 0: 7 8 9,  document 1: 4    ->    7 8 9 </s> 4 </s>

    Args:
        shards: the documents.
        vocab: to look up the special tokens.
        before: the name of a special token, or "" for none.
        after: the name of a special token, or "" for none.
    """

    def __init__(self, shards: Shards, vocab: Vocab, before: str, after: str) -> None:
        self._before = vocab.id(before) if before else None
        self._after = vocab.id(after) if after else None
        self._shards = shards
        self._size = vocab.size
        self._extra = (self._before is not None) + (self._after is not None)
        # The place in the stream where each document begins, and the end: (documents + 1,)
        self._starts = shards.document_starts + self._extra * np.arange(len(shards) + 1)

    def __len__(self) -> int:
        """Tokens in the stream."""
        return int(self._starts[-1])

    def need(self, tokens: int, why: str) -> None:
        """Makes sure that there are so many tokens.

        Raises:
            UserError: there are fewer; `why` says what they are for.
        """
        if len(self) < tokens:
            raise UserError(
                f"{self._shards.prefix}: only {len(self):,} tokens, but {why} needs {tokens:,}; "
                "give more text, or set a smaller packing.length"
            )

    def documents_at(self, places: Array) -> Array:
        """The document that each place of the stream is of, wrapping included; both int64."""
        return np.searchsorted(self._starts, places, side="right") - 1

    def read(self, starts: Array, lengths: Array) -> Pieces:
        """The tokens of some spans, each within the stream.

        Args:
            starts: the first place of each; (spans,) int64.
            lengths: tokens in each; (spans,) int64.

        Raises:
            UserError: the shards hold ids that the vocabulary does not have.
        """
        ends = starts + lengths
        first = np.searchsorted(self._starts, starts, side="right") - 1
        last = np.searchsorted(self._starts, ends, side="left")  # the first document after it
        documents, spans = ranges(first, np.maximum(last - first, 0))
        begins = np.maximum(self._starts[documents], starts[spans])
        stops = np.minimum(self._starts[documents + 1], ends[spans])
        is_there = stops > begins  # a document may be empty
        documents, spans = documents[is_there], spans[is_there]
        begins, stops = begins[is_there], stops[is_there]
        sizes = stops - begins

        # Places in the stream become places in the shard: less what was wrapped round up to here.
        shift = self._extra * documents + (self._before is not None)
        places, _ = ranges(begins - shift, sizes)
        ids = np.take(self._shards.tokens, places, mode="clip").astype(np.int64)
        stop = np.cumsum(sizes)
        if self._before is not None:
            ids[(stop - sizes)[begins == self._starts[documents]]] = self._before
        if self._after is not None:
            ids[(stop - 1)[stops == self._starts[documents + 1]]] = self._after
        if len(ids) and ids.max() >= self._size:
            raise UserError(
                f"{self._shards.prefix}: holds token {ids.max():,}, but the tokenizer has only "
                f"{self._size:,}; the shards were made with another one"
            )
        return Pieces(ids, sizes, spans)


def ranges(starts: Array, lengths: Array) -> tuple[Array, Array]:
    """The numbers from each start on, so many, in one array; and which range each is of.

    starts [5 9], lengths [2 3]  ->  [5 6 9 10 11], [0 0 1 1 1]
    """
    which = np.repeat(np.arange(len(lengths)), lengths)
    before = np.cumsum(lengths) - lengths
    return (starts - before)[which] + np.arange(len(which)), which
