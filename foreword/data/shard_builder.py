"""Token shards while they are made: read, cut into training and held-out, encode, write."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from foreword.data import holdout
from foreword.data.prepared_text import HELDOUT, TRAIN, Split
from foreword.data.read_documents import read_documents
from foreword.data.shards import Shards, ShardWriter
from foreword.data.text_files import ReadCounts, ReadSettings
from foreword.data.tokenize_documents import Cut, Encoded, Encoder, encoder_on
from foreword.errors import UserError
from foreword.text.special import UNK
from foreword.text.tokenizer import Tokenizer
from foreword.types import Array

_BATCH = 1 << 18  # bytes of text that a worker encodes at once
_SMALL = 4 << 20  # bytes of files below which starting workers takes longer than the work

Progress = Callable[[int, int], None]


@dataclass
class ShardBuilder:
    """The shards while they are made.

    Attributes:
        part: the folder to make them in, which holds the tokenizer already.
        tokenizer: text to ids.
        cut: where sequences end.
        share: of the documents, to hold out by chance; 0 for none.
        workers: processes that encode; 0 for one per core.
        progress: called with the bytes of the files done and their total, now and then.
        total: bytes of the files.
        counts: how much went to each side so far.
        files: size and checksum of what was written, by name.
        lowest: the document to hold out where chance holds out none, or all.
    """

    part: Path
    tokenizer: Tokenizer
    cut: Cut
    share: float
    workers: int
    progress: Progress | None
    total: int
    counts: dict[str, Split] = field(default_factory=lambda: {TRAIN: Split(), HELDOUT: Split()})
    files: dict[str, dict[str, int | str]] = field(default_factory=dict)
    lowest: holdout.FallbackDocuments = field(default_factory=holdout.FallbackDocuments)

    def encode(
        self, files: Mapping[str, Sequence[Path]], read: ReadSettings, counts: ReadCounts
    ) -> None:
        """Reads, encodes and writes all documents, in their order.

        Args:
            files: to train on, by chance in part, and those that are to be held out.
            read: how files become documents.
            counts: what to count in.

        Raises:
            UserError: a file cannot be read, or there is no text in those to be held out.
        """
        workers = self.workers or _cores()
        under_way: deque[tuple[str, int, Future[Encoded]]] = deque()
        with ExitStack() as stack:
            writers = {name: stack.enter_context(self._writer(name)) for name in self.counts}
            submit = stack.enter_context(
                encoder_on(
                    Encoder(self.tokenizer, self.cut),
                    self.part / "tokenizer",
                    workers if self.total > _SMALL else 0,
                    self.cut,
                )
            )

            def write(at_most: int) -> None:
                """Writes what was submitted first, until so many batches are under way."""
                while len(under_way) > at_most:
                    name, size, future = under_way.popleft()
                    found = future.result()
                    writers[name].add(found.tokens, found.sequence_lengths, found.document_lengths)
                    self.counts[name].add(found, size)
                    if self.progress:
                        self.progress(counts.bytes_read, self.total)

            for name, batch in self._batches(files, read, counts):
                under_way.append((name, sum(map(len, batch)), submit(batch)))
                write(2 * workers)
            write(0)
        if files[HELDOUT] and not self.counts[HELDOUT].documents:
            raise UserError(f"{files[HELDOUT][0]}: there is no text in it to hold out")
        for writer in writers.values():
            self.files |= writer.files

    def ensure_split(self) -> None:
        """Holds one document out, where none was or all were."""
        train, heldout = (self.counts[name] for name in (TRAIN, HELDOUT))
        if not self.share or (train.documents and heldout.documents):
            return
        shards = Shards.open(self.part / (TRAIN if train.documents else HELDOUT))
        total = train.bytes + heldout.bytes
        pieces = self.lowest.cut(self.share, total, is_whole=self.cut == "lines")
        places = self.lowest.places
        if self.cut == "lines":
            parts = holdout.cut_sequences(shards, places[0], 0)
        elif self.cut == "sentences":
            parts = holdout.cut_sequences(shards, places[0], len(pieces[0]))
        else:
            encoder = Encoder(self.tokenizer, self.cut)
            kept, held = ([b"".join(side)] if side else [] for side in pieces)
            parts = encoder.encode(kept), encoder.encode(held)
        mended = self.part / "mended"
        mended.mkdir()
        with self._writer(f"mended/{TRAIN}") as one, self._writer(f"mended/{HELDOUT}") as other:
            holdout.hold_out(shards, places, parts, one, other)
        self.files = one.files | other.files
        for name in self.files:
            (mended / name).replace(self.part / name)
        size = len(places) * sum(map(len, pieces[1]))
        unknown = self.tokenizer.vocab.special.get(UNK, -1)
        for name, size_bytes in ((TRAIN, total - size), (HELDOUT, size)):
            self.counts[name] = _count(Shards.open(self.part / name), size_bytes, unknown)

    def _batches(
        self, files: Mapping[str, Sequence[Path]], read: ReadSettings, counts: ReadCounts
    ) -> Iterator[tuple[str, list[bytes]]]:
        """Documents as UTF-8, a few at a time, with the side that they belong to."""
        pending: dict[str, list[bytes]] = {name: [] for name in self.counts}
        sizes = dict.fromkeys(self.counts, 0)
        documents = (
            (side, document)
            for side, those in files.items()
            for document in (read_documents(those, read, counts) if those else ())
        )
        for place, (side, document) in enumerate(documents):
            text = document.text.encode()
            number = holdout.draw(text) if text else 2.0  # a blank line is never held out alone
            self.lowest.see(number, text, place)
            name = HELDOUT if number < self.share else side
            pending[name].append(text)
            sizes[name] += len(text)
            if sizes[name] >= _BATCH:
                yield name, pending[name]
                pending[name], sizes[name] = [], 0
        yield from ((name, batch) for name, batch in pending.items() if batch)

    def _writer(self, name: str) -> ShardWriter:
        return ShardWriter(self.part / name, self.tokenizer.vocab.size)


def _cores() -> int:
    """The cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _count(shards: Shards, size: int, unknown: int) -> Split:
    block = 1 << 24
    tokens: Array = shards.tokens
    found = sum(
        int(np.count_nonzero(tokens[at : at + block] == unknown))
        for at in range(0, len(tokens), block)
    )
    return Split(len(shards), len(shards.sequence_lengths), len(tokens), size, found)
