"""Training of a tokenizer on files, with progress."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

from foreword.data.read_documents import find_files, read_documents
from foreword.data.text_files import ReadCounts, ReadSettings
from foreword.process import allocator
from foreword.text import utf8
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
        for document in read_documents(inputs, read, counts):
            advance(counts.bytes_read, total)
            yield document.text

    return _train(trainer, texts(), stage)


def train_on_sources(
    trainer: TokenizerKind,
    sources: Sequence[tuple[str | Path, float]],
    read: ReadSettings,
    stage: Callable[[str], Callable[..., None]],
) -> Tokenizer:
    """Train a tokenizer on a mixture: as many bytes as the sources have, each by its weight.

    A source that is too small for its weight is read again.

    Args:
        trainer: a kind of tokenizer.
        sources: the path and the weight of each.
        read: how files become documents.
        stage: see `train_tokenizer`.

    Raises:
        UserError: as `train_tokenizer`.
    """
    advance = stage("reading text")

    def show(done: float, total: float) -> None:
        advance(round(done), round(total))

    return _train(trainer, _mixed(sources, read, show), stage)


def _mixed(
    sources: Sequence[tuple[str | Path, float]],
    read: ReadSettings,
    advance: Callable[[float, float], None],
) -> Iterator[str]:
    """Yield the documents of sources, always from the one that lags most behind its weight."""
    weights = [weight for _, weight in sources]
    stored = [
        sum(file.stat().st_size for file in find_files([path], None, read)) for path, _ in sources
    ]
    counts = [ReadCounts() for _ in sources]  # of the first reading of each
    readings = [read_documents([path], read, counts[n]) for n, (path, _) in enumerate(sources)]
    yielded = [0] * len(sources)
    sizes: list[float] = [float(size) for size in stored]
    while sum(yielded) < sum(sizes):
        n = min(range(len(sources)), key=lambda n: yielded[n] / weights[n])
        document = next(readings[n], None)
        if document is None:  # its size is known now; read it again
            readings[n] = read_documents([sources[n][0]], read)
            document = next(readings[n])
        yielded[n] += max(1, utf8.size(document.text))
        sizes[n] = counts[n].total_bytes(stored[n])
        advance(sum(yielded), sum(sizes))
        yield document.text


def _train(
    trainer: TokenizerKind, texts: Iterable[str], stage: Callable[[str], Callable[..., None]]
) -> Tokenizer:
    """Train a tokenizer on texts, and announce the stage when they have been read."""
    advance: Callable[..., None] = lambda *_: None  # noqa: E731

    def announced() -> Iterator[str]:
        nonlocal advance
        yield from texts
        advance = stage("training the tokenizer")

    def note(text: str) -> None:
        advance(0, 0, text)

    with allocator.returning_freed():
        tokenizer: Tokenizer = trainer.train(announced(), note)
    return tokenizer
