"""Texts to tokens on all cores, by worker processes, or on the machines of a Ray cluster.

Each worker is a plain child process, which needs no `if __name__ == "__main__"` in the caller's
script and ends by itself when the caller does. `-P` keeps the current folder off its path, so a
`numpy.py` beside the texts is not imported.

On a cluster the calling process reads and writes; tasks only encode, so machines need no common
disk, and Ray runs a task again where a machine dies.
"""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection, Pipe
from pathlib import Path
from queue import SimpleQueue
from typing import Literal

import numpy as np

from foreword.disk import atomic
from foreword.errors import UserError, WorkerError
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


class Worker:
    """A child process that encodes.

    Args:
        tokenizer: the folder it loads.
        cut: what a sequence is.
    """

    def __init__(self, tokenizer: Path, cut: Cut) -> None:
        code = f"from {__name__} import serve; serve(*__import__('sys').argv[1:])"
        self._connection, remote = Pipe()
        number = str(remote.fileno())
        command = [sys.executable, "-P", "-c", code, number, str(tokenizer), cut]
        root = str(Path(__file__).parents[2])  # the caller may have found it in its current folder
        environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join([*filter(None, sys.path), root]),
            "TOKENIZERS_PARALLELISM": "false",
        }
        self._output = tempfile.TemporaryFile()  # noqa: SIM115  (not the user's screen)
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=self._output,
            stderr=subprocess.STDOUT,
            env=environment,
            pass_fds=(remote.fileno(),),
            process_group=0,  # the caller alone decides what a signal to all of its group means
        )
        remote.close()

    def encode(self, texts: Sequence[bytes]) -> Encoded:
        """Return the tokens of documents given as UTF-8.

        Raises:
            UserError: the process was killed, usually for lack of memory.
            WorkerError: it failed.
        """
        try:
            self._connection.send(texts)
            encoded: Encoded = self._connection.recv()
        except (EOFError, ConnectionError):
            raise self._failure() from None
        return encoded

    def _failure(self) -> Exception:
        """Return the error that ended the process."""
        status = self._process.wait()
        self._output.seek(0)
        output = self._output.read().decode(errors="replace").strip()
        last = output.rpartition("\n")[2]
        if status > 0 and output and "MemoryError" not in last:
            return WorkerError(f"a worker process failed: {last}", output)
        number = status if status >= 0 else 128 - status
        return UserError(
            f"a worker process died (status {number}), probably out of memory; "
            "use fewer: --workers 1"
        )

    def close(self) -> None:
        """End the process."""
        self._process.kill()
        self._process.wait()
        self._connection.close()
        self._output.close()


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
    with ExitStack() as stack:
        free: SimpleQueue[Worker] = SimpleQueue()
        for _ in range(workers):
            worker = Worker(tokenizer, cut)
            stack.callback(worker.close)
            free.put(worker)
        # Made last, so that these threads end before the processes that they wait for.
        threads = ThreadPoolExecutor(max(1, workers))
        stack.callback(threads.shutdown, cancel_futures=True)

        def encode(texts: list[bytes]) -> Encoded:
            if not workers or max(map(len, texts)) > _LONG:
                return local.encode(texts)
            worker = free.get()
            try:
                return worker.encode(texts)
            finally:
                free.put(worker)

        yield lambda texts: threads.submit(encode, texts)


def serve(number: str, tokenizer: str, cut: Cut) -> None:
    """Encode what comes over the connection with this file descriptor, until it is closed."""
    connection = Connection(int(number))
    encoder = DocumentEncoder(Tokenizer.load(tokenizer), cut)
    with suppress(EOFError, ConnectionError):
        while True:
            connection.send(encoder.encode(connection.recv()))


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
