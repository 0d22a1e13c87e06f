"""Which documents are held out: those given for it, or by chance; and when that is none or all.

By chance, a document is held out if the hash of its text is low. So a text and its copies land on
the same side, whatever stands around them, and more text never moves what was held out before.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from itertools import pairwise
from pathlib import Path

import numpy as np

from foreword.data.read_documents import find_files
from foreword.data.shards import Shards, ShardWriter
from foreword.data.text_files import ReadCounts, ReadSettings
from foreword.data.tokenize_documents import Encoded
from foreword.errors import UserError
from foreword.text import sentences

_WHOLE = 0.1  # of the text: a longer document is not held out whole where it is the only one


def find_apart(
    inputs: Sequence[str | Path],
    trained: Sequence[Path],
    counts: ReadCounts | None = None,
    read: ReadSettings | None = None,
) -> list[Path]:
    """The files to hold out, if any are named.

    Args:
        inputs: files, folders and patterns.
        trained: the files to train on.
        counts: what to count files in that no reader reads.
        read: how files become documents.

    Raises:
        UserError: there is no such file, or it is one to train on.
    """
    if not inputs:
        return []
    found = find_files(inputs, counts, read)
    both = {file.resolve() for file in trained}
    for file in found:
        if file.resolve() in both:
            raise UserError(f"{file}: is both to train on and to hold out; name it once")
    return found


def draw(text: bytes) -> float:
    """A number in [0, 1) that depends on the text alone; below the share, it is held out."""
    return int.from_bytes(blake2b(text, digest_size=6).digest()) / 2**48


@dataclass
class FallbackDocuments:
    """The document of the lowest number so far, and where it and its copies stand."""

    number: float = 1.0
    text: bytes = b""
    places: list[int] = field(default_factory=list)

    def see(self, number: float, text: bytes, place: int) -> None:
        """Looks at the document at `place` in the order of all."""
        if number < self.number:
            self.number, self.text, self.places = number, text, []
        if number == self.number:
            self.places.append(place)

    def cut(
        self, share: float, total: int, *, is_whole: bool = False
    ) -> tuple[list[bytes], list[bytes]]:
        """The sentences of the text that are trained on, and those that are held out.

        The whole is held out where it is a small part of the `total` bytes, or cannot be cut; else
        its last sentences, about as many as make up `share` of the total.

        Args:
            share: of the total, wanted.
            total: bytes of all texts.
            is_whole: whether it cannot be cut, as a pair cannot.

        Raises:
            UserError: it is all there is, and a single sentence.
        """
        texts = [self.text.decode()] if is_whole else sentences.split(self.text.decode())
        pieces = [piece.encode() for piece in texts]
        is_all = len(self.text) * len(self.places) >= total
        if not is_all and (len(pieces) < 2 or len(self.text) <= _WHOLE * total):
            return [], pieces
        if len(pieces) < 2:
            raise UserError(
                "the text is a single sentence, of which nothing can be held out; give more text, "
                "or --heldout 0"
            )
        kept = len(pieces) - 1
        size = len(pieces[kept])
        while kept > 1 and size * len(self.places) < share * total:
            kept -= 1
            size += len(pieces[kept])
        return pieces[:kept], pieces[kept:]


def cut_sequences(shards: Shards, place: int, kept: int) -> tuple[Encoded, Encoded]:
    """The first `kept` sequences of a document, and its others."""
    first, end = shards.document_index[place : place + 2]
    middle = first + kept
    return _slice(shards, first, middle), _slice(shards, middle, end)


def _slice(shards: Shards, first: int, end: int) -> Encoded:
    """Some sequences, as one document; as none where there are none."""
    tokens = shards.tokens[shards.sequence_starts[first] : shards.sequence_starts[end]]
    count = end - first
    documents = np.full(1 if count else 0, count, np.int32)
    return Encoded(tokens, shards.sequence_lengths[first:end], documents, unknown=0)


def hold_out(
    shards: Shards,
    places: Sequence[int],
    parts: tuple[Encoded, Encoded],
    train: ShardWriter,
    heldout: ShardWriter,
) -> None:
    """Writes `shards` again, with one document (and its copies) cut in two.

    Args:
        shards: all documents.
        places: where the document and its copies stand among them, ascending.
        parts: what of it is trained on (may be nothing), and what is held out.
        train: gets all else, and the first part.
        heldout: gets the second part.
    """
    kept, held = parts
    for before, place in pairwise([-1, *places, len(shards)]):
        index = shards.document_index[before + 1 : place + 1]
        tokens = shards.tokens[slice(*shards.sequence_starts[index[[0, -1]]])]
        train.add(tokens, shards.sequence_lengths[index[0] : index[-1]], np.diff(index))
        if place < len(shards):
            train.add(kept.tokens, kept.sequence_lengths, kept.document_lengths)
            heldout.add(held.tokens, held.sequence_lengths, held.document_lengths)
