"""Training of a tokenizer on files, with progress."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from foreword import allocator
from foreword.data.read_documents import find_files, read_documents
from foreword.data.text_files import ReadCounts, ReadSettings
from foreword.text.tokenizer import Tokenizer
from foreword.text.tokenizers._contract import TokenizerKind


def train_tokenizer(
    trainer: TokenizerKind,
    inputs: Sequence[str | Path],
    read: ReadSettings,
    stage: Callable[[str], Callable[..., None]],
    counts: ReadCounts | None = None,
) -> Tokenizer:
    """Train a tokenizer on texts, which are read once.

    Args:
        trainer: a kind of tokenizer.
        inputs: files, folders and patterns.
        read: how files become documents.
        stage: called when reading and training begin; its result is called with the
            bytes read and their total, then with notes.
        counts: updated while reading.

    Raises:
        UserError: a file cannot be read, or there is too little text for such a tokenizer.
    """
    counts = counts if counts is not None else ReadCounts()
    files = find_files(inputs, None, read)
    total = sum(file.stat().st_size for file in files)
    advance = stage("reading text")

    def texts() -> Iterator[str]:
        nonlocal advance
        for document in read_documents(inputs, read, counts):
            advance(counts.bytes_read, total)
            yield document.text
        advance = stage("training the tokenizer")

    def note(text: str) -> None:
        advance(0, 0, text)

    with allocator.returning_freed():
        tokenizer: Tokenizer = trainer.train(texts(), note)
    return tokenizer
