"""The building of token shards: read, split into training and held-out, encode, write."""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from foreword.data import holdout
from foreword.data.prepared_text import HELDOUT, TRAIN, Split
from foreword.data.read_documents import read_documents
from foreword.data.shard_writer import ShardWriter
from foreword.data.shards import Shards
from foreword.data.text_files import ReadCounts, ReadSettings
from foreword.data.tokenize_documents import (
    Cut,
    DocumentEncoder,
    Encoded,
    cluster_pool,
    encoder_pool,
)
from foreword.errors import UserError
from foreword.process.cluster import Cluster, cores
from foreword.text.special import UNK
from foreword.text.tokenizer import Tokenizer
from foreword.types import Array

_BATCH = 1 << 18  # bytes of text that a worker encodes at once
_SMALL = 4 << 20  # bytes of files below which starting workers takes longer than the work

Progress = Callable[[int, int], None]


@dataclass
class ShardBuilder:
    """A builder of token shards.

    Attributes:
        part: the folder to build them in, which holds the tokenizer already.
        tokenizer: text to ids.
        cut: where sequences end.
        share: share of the documents to hold out by hash; 0 for none.
        train_share: share of the others to train on.
        repeated: share of these that is written 1 / `repeated` times.
        workers: processes that encode; 0 for one per core.
        progress: called from time to time with the bytes of the files done and their total.
        total: bytes of the files.
        cluster: encodes in place of processes of this machine; None for these.
        counts: the size of each side so far.
        files: size and checksum of the written files, by name.
        lowest: the document to hold out if the hashes hold out none or all.
        text: hash of the documents so far, as UTF-8 in their order, each with a zero byte after it.
    """

    part: Path
    tokenizer: Tokenizer
    cut: Cut
    share: float
    train_share: float
    repeated: float
    workers: int
    progress: Progress | None
    total: int
    cluster: Cluster | None = None
    counts: dict[str, Split] = field(default_factory=lambda: {TRAIN: Split(), HELDOUT: Split()})
    files: dict[str, dict[str, int | str]] = field(default_factory=dict)
    lowest: holdout.FallbackDocuments = field(default_factory=holdout.FallbackDocuments)
    text: Any = field(default_factory=lambda: hashlib.blake2b(digest_size=16))

    def encode(
        self, files: Mapping[str, Sequence[Path]], read: ReadSettings, counts: ReadCounts
    ) -> None:
        """Read, encode and write all documents, in their order.

        Args:
            files: files to train on (a share is held out by hash), and files to hold out.
            read: how files become documents.
            counts: updated while reading.

        Raises:
            UserError: a file cannot be read, or the files to hold out have no text.
        """
        # Writers for both sides, and the pool of encoders; starting processes pays for large text.
        cluster = self.cluster
        workers = max(1, cluster.total("CPU")) if cluster else self.workers or cores()
        under_way: deque[tuple[str, int, Future[Encoded]]] = deque()
        with ExitStack() as stack:
            writers = {name: stack.enter_context(self._writer(name)) for name in self.counts}
            submit = stack.enter_context(
                cluster_pool(cluster, self.part / "tokenizer", self.tokenizer.fingerprint, self.cut)
                if cluster
                else encoder_pool(
                    DocumentEncoder(self.tokenizer, self.cut),
                    self.part / "tokenizer",
                    workers if self.total > _SMALL else 0,
                    self.cut,
                )
            )

            def write(at_most: int) -> None:
                """Write the oldest batches until at most `at_most` are under way."""
                while len(under_way) > at_most:
                    name, size, future = under_way.popleft()
                    encoded = future.result()
                    writers[name].add(
                        encoded.tokens, encoded.sequence_lengths, encoded.document_lengths
                    )
                    self.counts[name].add(encoded, size)
                    if self.progress:
                        self.progress(counts.bytes_read, self.total)

            for name, batch in self._batches(files, read, counts):
                under_way.append((name, sum(map(len, batch)), submit(batch)))
                write(2 * workers)
            write(0)
        if files[HELDOUT] and not self.counts[HELDOUT].documents:
            raise UserError(f"{files[HELDOUT][0]}: contains no text to hold out")
        for writer in writers.values():
            self.files |= writer.files

    def ensure_split(self) -> None:
        """Hold out one document if the hashes held out none or all."""
        train, heldout = (self.counts[name] for name in (TRAIN, HELDOUT))
        if not self.share or (train.documents and heldout.documents):
            return
        # Cut the fallback document, by sequences or by encoding its sentences again.
        shards = Shards.open(self.part / (TRAIN if train.documents else HELDOUT))
        total = train.bytes + heldout.bytes
        count, end = self.lowest.cut(self.share, total, is_whole=self.cut == "lines")
        text, indices = self.lowest.text, self.lowest.indices
        if self.cut == "documents":
            encoder = DocumentEncoder(self.tokenizer, self.cut)
            sides = ([side] if side else [] for side in (text[:end], text[end:]))
            parts = encoder.encode(next(sides)), encoder.encode(next(sides))
        else:
            parts = holdout.cut_sequences(shards, indices[0], count)
        # Write both sides again, and replace the first ones.
        resplit = self.part / "resplit"
        resplit.mkdir()
        with (
            self._writer(f"resplit/{TRAIN}") as train_writer,
            self._writer(f"resplit/{HELDOUT}") as heldout_writer,
        ):
            holdout.hold_out(shards, dict.fromkeys(indices, parts), train_writer, heldout_writer)
        self.files = train_writer.files | heldout_writer.files
        for name in self.files:
            (resplit / name).replace(self.part / name)
        # Their sizes have changed.
        size = len(indices) * (len(text) - end)
        unknown = self.tokenizer.vocab.special.get(UNK, -1)
        for name, size_bytes in ((TRAIN, total - size), (HELDOUT, size)):
            self.counts[name] = _count(Shards.open(self.part / name), size_bytes, unknown)

    def _batches(
        self, files: Mapping[str, Sequence[Path]], read: ReadSettings, counts: ReadCounts
    ) -> Iterator[tuple[str, list[bytes]]]:
        """Yield batches of documents as UTF-8, each with its side of the split."""
        pending: dict[str, list[bytes]] = {name: [] for name in self.counts}
        sizes = dict.fromkeys(self.counts, 0)
        index = 0
        for side, paths in files.items():
            for document in read_documents(paths, read, counts) if paths else ():
                text = document.text.encode()
                del document  # perhaps a whole book
                self.text.update(text)
                self.text.update(b"\0")
                # A blank line is never held out alone.
                number = holdout.hash_to_unit(text) if text else 2.0
                name = HELDOUT if number < self.share else side
                trained = (1 - self.share) * self.train_share
                if name == TRAIN and number < 1 - trained:
                    counts.leave("of the share that is not trained on")
                    continue
                is_repeated = name == TRAIN and 1 - trained * self.repeated <= number < 1
                for _ in range(round(1 / self.repeated) if is_repeated else 1):
                    self.lowest.update(number, text, index)
                    index += 1
                    pending[name].append(text)
                    sizes[name] += len(text)
                    if sizes[name] >= _BATCH:
                        yield name, pending[name]
                        pending[name], sizes[name] = [], 0
        yield from ((name, batch) for name, batch in pending.items() if batch)

    def _writer(self, name: str) -> ShardWriter:
        return ShardWriter(self.part / name, self.tokenizer.vocab.size)


def _count(shards: Shards, size: int, unknown: int) -> Split:
    block = 1 << 24
    tokens: Array = shards.tokens
    unknown_tokens = sum(
        int(np.count_nonzero(tokens[at : at + block] == unknown))
        for at in range(0, len(tokens), block)
    )
    return Split(len(shards), len(shards.sequence_lengths), len(tokens), size, unknown_tokens)
