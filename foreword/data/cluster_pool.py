"""Texts to tokens on a Ray cluster: the pool of `tokenize_documents`, with its machines.

The calling process reads and writes; tasks only encode, so machines need no common disk, and Ray
runs a task again where a machine dies.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path

from foreword.data.tokenize_documents import Cut, DocumentEncoder, Encoded
from foreword.disk import atomic
from foreword.process.cluster import Cluster
from foreword.text.tokenizer import Tokenizer

_encoders: dict[tuple[str, Cut], DocumentEncoder] = {}  # of this process, a worker


@contextmanager
def cluster_pool(
    cluster: Cluster, tokenizer: Path, fingerprint: str, cut: Cut
) -> Iterator[Callable[[list[bytes]], Future[Encoded]]]:
    """Yield a function that submits batches of documents to be encoded.

    Args:
        cluster: encodes.
        tokenizer: the folder of the tokenizer; its files are sent, so machines need not share it.
        fingerprint: of the tokenizer.
        cut: what a sequence is.
    """
    files = {path.name: path.read_bytes() for path in tokenizer.iterdir() if path.is_file()}
    shared = cluster.put(files)
    yield lambda texts: cluster.submit(encode, shared, fingerprint, cut, texts)


def encode(files: Mapping[str, bytes], fingerprint: str, cut: Cut, texts: list[bytes]) -> Encoded:
    """Return the tokens of documents given as UTF-8; this process keeps the tokenizer."""
    os.environ["TOKENIZERS_PARALLELISM"] = "false"  # a task has one core
    key = (fingerprint, cut)
    if key not in _encoders:
        with atomic.temporary_folder() as folder:
            for name, content in files.items():
                (folder / name).write_bytes(content)
            _encoders[key] = DocumentEncoder(Tokenizer.load(folder), cut)
    return _encoders[key].encode(texts)
