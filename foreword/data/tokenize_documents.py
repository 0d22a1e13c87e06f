"""Texts to tokens on all cores, by worker processes, or on the machines of a Ray cluster.

On a cluster the calling process reads and writes; tasks only encode, so machines need no common
disk, and Ray runs a task again where a machine dies.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np

from foreword.disk import atomic
from foreword.process.children import Children
from foreword.process.cluster import Cluster
from foreword.text import sentences, utf8
from foreword.text.tokenizer import Tokenizer
from foreword.types import Array

Cut = Literal["documents", "sentences", "lines"]  # what a sequence is

_TEXTS, _CHARACTERS = 1024, 1 << 20  # encoded in one call, which bounds the memory that it takes
_PART = 1 << 18  # bytes; a longer document that is one sequence is encoded in parts
_LONG = 4 << 20  # bytes; a longer document is encoded in this process, by all cores at once


@dataclass(frozen=True)
class Encoded:
    """Tokenized documents.

    Attributes:
        tokens: the tokens of all documents, one after the other; (tokens,) int32.
        sequence_lengths: tokens in each sequence; (sequences,) int32.
        document_lengths: sequences in each document; (documents,) int32.
        unknown: the number of unknown tokens.
    """

    tokens: Array
    sequence_lengths: Array
    document_lengths: Array
    unknown: int


class DocumentEncoder:
    """An encoder of documents in this process.

    Args:
        tokenizer: text to ids.
        cut: what a sequence is: the whole document, a sentence or a line of it.
    """

    def __init__(self, tokenizer: Tokenizer, cut: Cut) -> None:
        self._tokenizer = tokenizer
        self._cut = cut
        self._unknown = tokenizer.vocab.unknown

    def encode(self, texts: Sequence[bytes]) -> Encoded:
        """Return the tokens of documents given as UTF-8."""
        counts: list[int] = []  # pieces of each document

        def pieces() -> Iterator[str]:
            for text in texts:
                counts.append(0)
                for piece in self._pieces(text):
                    counts[-1] += 1
                    yield piece

        # Growing buffers: arrays joined at the end would need the memory twice.
        tokens, lengths = bytearray(), bytearray()
        for batch in _batches(pieces()):
            ids = self._tokenizer.encode_batch(batch)
            sizes = np.fromiter(map(len, ids), np.int32, len(ids))
            joined = itertools.chain.from_iterable(ids)
            tokens += np.fromiter(joined, np.int32, int(sizes.sum())).data
            lengths += sizes.data
        joint, piece_lengths = (np.frombuffer(buffer, np.int32) for buffer in (tokens, lengths))
        if self._cut == "documents":
            ends = np.cumsum([0, *counts])
            starts = np.concatenate([[0], np.cumsum(piece_lengths, dtype=np.int64)])
            piece_lengths, counts = np.diff(starts[ends]).astype(np.int32), [1] * len(texts)
        return Encoded(
            tokens=joint,
            sequence_lengths=piece_lengths,
            document_lengths=np.asarray(counts, np.int32),
            unknown=int(np.count_nonzero(joint == self._unknown)),
        )

    def _pieces(self, text: bytes) -> Iterable[str]:
        """Return what is encoded piece by piece: sequences, or parts of a long one.

        Tokenizers trained here cut before every sentence, so they give the same ids for the parts.
        """
        match self._cut:
            case "sentences":
                return sentences.iterate(utf8.decode(text))
            case "lines":
                return text.decode().split("\n")
            case _ if len(text) > _PART and "kind" in self._tokenizer.kind:
                return map("".join, _batches(sentences.iterate(utf8.decode(text)), _PART // 4))
            case _:
                return [text.decode()]


def _batches(pieces: Iterable[str], characters: int = _CHARACTERS) -> Iterator[list[str]]:
    """Yield at most `_TEXTS` pieces at once, of about `characters` characters together."""
    batch, size = list[str](), 0
    for piece in pieces:
        batch.append(piece)
        size += len(piece)
        if size >= characters or len(batch) == _TEXTS:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


@contextmanager
def encoder_pool(
    local: DocumentEncoder, tokenizer: Path, workers: int, cut: Cut
) -> Iterator[Callable[[list[bytes]], Future[Encoded]]]:
    """Yield a function that submits batches of documents to be encoded.

    Args:
        local: encodes in this process.
        tokenizer: the folder that the workers load.
        workers: number of processes; 0 encodes everything in this process.
        cut: what a sequence is.
    """
    with ThreadPoolExecutor(1) as here, ExitStack() as stack:
        children = stack.enter_context(Children(workers, "--workers 1")) if workers else None

        def encode(texts: list[bytes]) -> Future[Encoded]:
            if children is None or max(map(len, texts)) > _LONG:
                return here.submit(local.encode, texts)
            return children.submit(encode_in_child, tokenizer, cut, texts)

        yield encode


def encode_in_child(tokenizer: Path, cut: Cut, texts: list[bytes]) -> Encoded:
    """Return the tokens of documents given as UTF-8; this process keeps the tokenizer."""
    key = (str(tokenizer), cut)
    if key not in _encoders:
        _encoders[key] = DocumentEncoder(Tokenizer.load(tokenizer), cut)
    return _encoders[key].encode(texts)


_encoders: dict[tuple[str, Cut], DocumentEncoder] = {}  # of this process, a task's


@contextmanager
def cluster_pool(
    cluster: Cluster, tokenizer: Path, fingerprint: str, cut: Cut
) -> Iterator[Callable[[list[bytes]], Future[Encoded]]]:
    """Yield a function that submits batches of documents to be encoded.

    Args:
        cluster: encodes.
        tokenizer: the folder of the tokenizer; its files are sent, so machines need not share it.
        fingerprint: its fingerprint.
        cut: what a sequence is.
    """
    files = {path.name: path.read_bytes() for path in tokenizer.iterdir() if path.is_file()}
    shared = cluster.put(files)
    yield lambda texts: cluster.submit(encode_on_cluster, shared, fingerprint, cut, texts)


def encode_on_cluster(
    files: Mapping[str, bytes], fingerprint: str, cut: Cut, texts: list[bytes]
) -> Encoded:
    """Return the tokens of documents given as UTF-8; this process keeps the tokenizer."""
    os.environ["TOKENIZERS_PARALLELISM"] = "false"  # a task has one core
    key = (fingerprint, cut)
    if key not in _encoders:
        with atomic.temporary_folder() as folder:
            for name, content in files.items():
                (folder / name).write_bytes(content)
            _encoders[key] = DocumentEncoder(Tokenizer.load(folder), cut)
    return _encoders[key].encode(texts)
