"""The held-out split: documents given for it, or chosen by hash; and one document as fallback.

A document is held out if the hash of its text is low. So a text and its copies land on the same
side, whatever surrounds them, and adding text never moves a held-out document.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from hashlib import blake2b
from itertools import islice, pairwise
from pathlib import Path

import numpy as np

from foreword.data.fingerprint import file_state, fingerprint_text
from foreword.data.read_documents import canonical_name, find_files
from foreword.data.shard_writer import ShardWriter
from foreword.data.shards import Shards
from foreword.data.text_files import ReadCounts, ReadSettings
from foreword.data.tokenize_documents import Encoded
from foreword.errors import UserError
from foreword.text import sentences, utf8
from foreword.types import Document

_BLOCK = 1 << 20  # bytes compared at once
SINGLE = "the text is a single sentence, so it cannot be split; give more text, or --heldout 0"
_WHOLE = 0.1  # of the text; a longer document is not held out whole


@dataclass(frozen=True)
class SplitFiles:
    """The files to train on and those to hold out.

    Attributes:
        train: the files to train on.
        heldout: the files to hold out; none if documents of `train` are.
        read: how files become documents.
        counts: counts of the files that no reader reads.
        states: size and time of each file when it was found.
    """

    train: list[Path]
    heldout: list[Path]
    read: ReadSettings
    counts: ReadCounts
    states: Mapping[Path, tuple[int, int]]

    @classmethod
    def find(
        cls,
        inputs: Sequence[str | Path],
        read: ReadSettings | None = None,
        heldout: Sequence[str | Path] = (),
    ) -> SplitFiles:
        """Find the files of both sides.

        Args:
            inputs: files, folders and patterns to train on.
            read: how files become documents.
            heldout: files, folders and patterns to hold out, if they are given apart.

        Raises:
            UserError: there is no such file, or one to hold out is one to train on, or a copy.
        """
        read, counts = read or ReadSettings(), ReadCounts()
        train = find_files(inputs, counts, read)
        apart = _find_apart(heldout, train, counts, read) if heldout else []
        return cls(train, apart, read, counts, {f: file_state(f) for f in [*train, *apart]})

    @cached_property
    def fingerprints(self) -> tuple[str, str]:
        """The fingerprints of both sides, "" of files to hold out if there are none."""
        heldout = fingerprint_text(self.heldout, self.read) if self.heldout else ""
        return fingerprint_text(self.train, self.read), heldout


def _find_apart(
    inputs: Sequence[str | Path], trained: Sequence[Path], counts: ReadCounts, read: ReadSettings
) -> list[Path]:
    """Return the files to hold out, none of which is one to train on or a copy of one."""
    files = find_files(inputs, counts, read)
    training_files = {canonical_name(file) for file in trained}
    sizes = defaultdict(list)
    for file in trained:
        sizes[file_state(file)[0]].append(file)
    for file in files:
        if canonical_name(file) in training_files:
            raise UserError(f"{file}: is in both --data and --heldout; name it once")
        size, _ = file_state(file)
        for same in sizes[size] if size else ():
            if _are_equal(same, file):
                raise UserError(f"{file}: has the same content as {same}, which is to train on")
    return files


def _are_equal(one: Path, other: Path) -> bool:
    """Return whether two files of one size hold the same, reading up to the first difference."""
    try:
        with one.open("rb") as a, other.open("rb") as b:
            while block := a.read(_BLOCK):
                if block != b.read(len(block)):
                    return False
    except OSError as error:
        raise UserError(f"{error.filename or other}: {error.strerror or error}") from None
    return True


def hash_to_unit(text: bytes) -> float:
    """Return a hash of the text in [0, 1); below the share, it is held out."""
    return int.from_bytes(blake2b(text, digest_size=6).digest()) / 2**48


def require_parts(documents: Iterable[Document], *, is_whole: bool) -> None:
    """Check that texts can be split, reading no more of them than that takes.

    Args:
        documents: the texts.
        is_whole: whether a text cannot be cut, as a pair cannot.

    Raises:
        UserError: all are one text, a single sentence; the first is named.
    """
    first: Document | None = None
    for document in documents:
        if first is None:
            first = document
            is_single = is_whole or len(list(islice(sentences.iterate([first.text]), 2))) < 2
        if not is_single or document.text != first.text:
            return
    if first is not None:
        raise UserError(f"{first.source}: {SINGLE}")


@dataclass
class FallbackDocuments:
    """The document with the lowest hash so far, and the indices of its copies."""

    number: float = 1.0
    text: bytes = b""
    indices: list[int] = field(default_factory=list)

    def update(self, number: float, text: bytes, index: int) -> None:
        """Consider the document at `index` in the order of all."""
        if number < self.number:
            self.number, self.text, self.indices = number, text, []
        if number == self.number:
            self.indices.append(index)

    def cut(self, share: float, total: int, *, is_whole: bool = False) -> tuple[int, int]:
        """Return where to cut the text: the sentences to train on, and their bytes.

        All of it is held out if it is a small part of the `total` bytes or cannot be cut; else its
        last sentences, about `share` of the total.

        Args:
            share: the share of the total to hold out.
            total: bytes of all texts.
            is_whole: whether it cannot be cut, as a pair cannot.

        Raises:
            UserError: it is the whole text, and a single sentence.
        """
        text = self.text
        cuts = [] if is_whole else sentences.iterate(utf8.decode(text))
        sizes = np.fromiter(map(utf8.size, cuts), np.int64)
        is_all = len(text) * len(self.indices) >= total
        if not is_all and (len(sizes) < 2 or len(text) <= _WHOLE * total):
            return 0, 0
        if len(sizes) < 2:
            raise UserError(SINGLE)
        trained = len(sizes) - 1
        size = int(sizes[trained])
        while trained > 1 and size * len(self.indices) < share * total:
            trained -= 1
            size += int(sizes[trained])
        return trained, len(text) - size


def cut_sequences(shards: Shards, index: int, count: int) -> tuple[Encoded, Encoded]:
    """Return the first `count` sequences of a document, and the others."""
    first, end = shards.document_index[index : index + 2]
    middle = first + count
    return _slice(shards, first, middle), _slice(shards, middle, end)


def _slice(shards: Shards, first: int, end: int) -> Encoded:
    """Return some sequences as one document; as no document if there are none."""
    tokens = shards.tokens[shards.sequence_starts[first] : shards.sequence_starts[end]]
    count = end - first
    documents = np.full(1 if count else 0, count, np.int32)
    return Encoded(tokens, shards.sequence_lengths[first:end], documents, unknown=0)


def hold_out(
    shards: Shards,
    parts: Mapping[int, tuple[Encoded, Encoded]],
    train: ShardWriter,
    heldout: ShardWriter,
) -> None:
    """Write `shards` again, with some documents cut in two.

    Args:
        shards: all documents.
        parts: the part to train on (may be empty) and the part to hold out of each such document,
            by its index.
        train: receives all other documents and the first parts.
        heldout: receives the second parts.
    """
    for previous, index in pairwise([-1, *sorted(parts), len(shards)]):
        sequences = shards.document_index[previous + 1 : index + 1]
        tokens = shards.tokens[slice(*shards.sequence_starts[sequences[[0, -1]]])]
        lengths = shards.sequence_lengths[sequences[0] : sequences[-1]]
        train.add(tokens, lengths, np.diff(sequences))
        for writer, part in zip((train, heldout), parts.get(index, ()), strict=False):
            writer.add(part.tokens, part.sequence_lengths, part.document_lengths)
