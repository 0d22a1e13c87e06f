"""A uniform sample of a stream of texts, in bounded memory: a tokenizer's training text.

Every piece of text gets a hash of its index in the stream; the sample is the pieces whose hash is
below a threshold, which sinks whenever the sample exceeds its bytes. So each piece has the same
probability wherever it stands, and the same stream gives the same sample.

Training takes memory for each different word, and some text has little else: text without spaces,
lists of keys. So the threshold sinks further until their bytes are bounded too. And merging takes
time for the length of a word at each merge, so a sample says whether some are to be cut before.
"""

from __future__ import annotations

import heapq
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from hashlib import blake2b

import numpy as np

from foreword.errors import UserError
from foreword.text import utf8, words
from foreword.types import Array

_PIECE = 1 << 20  # characters; a whole book must not be all of the sample, nor be lost
_BLOCK = 1 << 15  # characters; the engine takes a hundred times as much of each thread's text
_WORDS = 1 << 24  # bytes of different words; training takes about 130 times as much
LONGEST = 1000  # characters of a word; longer ones, of text without spaces, are cut to be merged

_BETWEEN = re.compile(rf"(?<=[\w{words.MARKS}])(?<!_)[ ](?=[^\W_])")

_Entry = tuple[int, int, int, bytes]  # hash, negated; number of the piece; its document; the piece


@dataclass(frozen=True)
class TrainingSample:
    """The amount of text that a tokenizer was trained on; bytes are those of UTF-8.

    Attributes:
        documents_seen: documents of the text.
        documents_kept: documents of which a part was sampled.
        bytes_seen: bytes of the text.
        bytes_kept: bytes of the sample.
        characters_left_out: different characters that were too rare for the vocabulary.
        share_left_out: their share of the sample's characters.
        is_cut_by_words: whether the sample is smaller than allowed, for its different words.
        has_long_words: whether words longer than `LONGEST` are cut, where training merges.
    """

    documents_seen: int
    documents_kept: int
    bytes_seen: int
    bytes_kept: int
    characters_left_out: int = 0
    share_left_out: float = 0.0
    is_cut_by_words: bool = False
    has_long_words: bool = False

    def __str__(self) -> str:
        """Return a summary: `60 of 60 documents, 0.3 of 0.3 MB`."""
        unit, name = (1e6, "MB") if self.bytes_seen >= 1e5 else (1e3, "kB")
        cut = f"; no more, as training has memory for {_WORDS / 1e6:.0f} MB of different words"
        long = f"; words longer than {LONGEST:,} characters were cut in training"
        left_out = (
            f"; {self.characters_left_out:,} rare characters ({self.share_left_out:.2g} of the "
            "text) are [UNK]"
        )
        return (
            f"{self.documents_kept:,} of {self.documents_seen:,} documents, "
            f"{self.bytes_kept / unit:,.1f} of {self.bytes_seen / unit:,.1f} {name}"
            f"{cut if self.is_cut_by_words else ''}"
            f"{long if self.has_long_words else ''}"
            f"{left_out if self.characters_left_out else ''}"
        )


@dataclass(frozen=True)
class Sample:
    """The sampled pieces in the order of the stream, as UTF-8, and their counts."""

    pieces: list[bytes]
    counts: TrainingSample

    def texts(self) -> Iterator[str]:
        """Yield the pieces as text, cut between words so that little is tokenized at once."""
        for piece in self.pieces:
            yield from _between_words(piece.decode(), _BLOCK)

    @property
    def is_mostly_unspaced(self) -> bool:
        """Whether words longer than `LONGEST` stand in most of it."""
        if not self.counts.has_long_words:
            return False
        texts = [(len(text), _has_long_word(text)) for text in self.texts()]
        return 2 * sum(size for size, is_long in texts if is_long) > sum(size for size, _ in texts)

    def within(self, limit_bytes: int) -> Sample:
        """Return a sample of this one, of at most `limit_bytes`."""
        if self.counts.bytes_kept <= limit_bytes:
            return self
        fewer = draw_sample(self.texts(), limit_bytes, merges=True)
        kept = replace(self.counts, bytes_kept=fewer.counts.bytes_kept)
        return Sample(fewer.pieces, kept)

    def texts_within(self, coverage: float) -> Iterator[str]:
        """Yield the pieces with their rarest characters as spaces, to spend no vocabulary on them.

        The most frequent characters that make up the share `coverage` of the sample are kept
        (character coverage: Kudo & Richardson 2018, SentencePiece).
        """
        rare = self.rare(coverage)
        if not rare:
            return self.texts()
        pattern = re.compile("[" + re.escape("".join(rare)) + "]")
        return (pattern.sub(" ", text) for text in self.texts())

    def frequent(self, coverage: float) -> list[str]:
        """Return the most frequent characters, which make up the share `coverage` of the sample."""
        points, is_frequent = self._by_frequency(coverage)
        return [chr(c) for c in points[is_frequent]]

    def rare(self, coverage: float) -> list[str]:
        """Return the other characters."""
        points, is_frequent = self._by_frequency(coverage)
        return [chr(c) for c in points[~is_frequent]]

    def covering(self, coverage: float) -> TrainingSample:
        """Return the counts, with those of the characters left out."""
        rare = [ord(c) for c in self.rare(coverage)]
        return replace(
            self.counts,
            characters_left_out=len(rare),
            share_left_out=float(self._characters[rare].sum() / self._characters.sum()),
        )

    def _by_frequency(self, coverage: float) -> tuple[Array, Array]:
        """Return the characters' code points, most frequent first, and which are frequent."""
        points = np.flatnonzero(self._characters)
        points = points[np.argsort(-self._characters[points], kind="stable")]
        counts = self._characters[points]
        return points, np.cumsum(counts) - counts < coverage * counts.sum()

    @cached_property
    def _characters(self) -> Array:
        return count_characters(piece.decode() for piece in self.pieces)


def draw_sample(
    texts: Iterable[str], limit_bytes: int, *, has_words: bool = True, merges: bool = False
) -> Sample:
    """Draw a sample of at most `limit_bytes` from the whole of `texts`, read once.

    Args:
        texts: the documents.
        limit_bytes: the most bytes.
        has_words: whether training takes memory for different words, which are then bounded too.
        merges: whether training merges the characters of words, so that long ones are cut.

    Raises:
        UserError: there is no text, or a text is not valid Unicode.
    """
    sampled: list[_Entry] = []  # a heap, the highest hash first
    threshold = 1 << 64
    documents = seen = size = index = 0
    for text in texts:
        documents += 1
        for piece in _cut(text, max(1, min(_PIECE, limit_bytes // 4))):
            data = utf8.encode(piece, f"document {documents}")
            seen += len(data)
            index += 1
            number = int.from_bytes(blake2b(index.to_bytes(8), digest_size=8).digest())
            if number >= threshold:
                continue
            heapq.heappush(sampled, (-number, index, documents, data))
            size += len(data)
            while size > limit_bytes:
                highest = heapq.heappop(sampled)
                threshold = -highest[0]
                size -= len(highest[3])
    if not seen:
        raise UserError("there is no text to train a tokenizer on")
    entries = _within_words(sampled) if has_words and size > _WORDS else sampled
    entries.sort(key=lambda entry: entry[1])
    pieces = [entry[3] for entry in entries]
    counts = TrainingSample(
        documents,
        len({entry[2] for entry in entries}),
        seen,
        sum(map(len, pieces)),
        is_cut_by_words=len(entries) < len(sampled),
        has_long_words=merges and any(_has_long_word(p.decode()) for p in pieces),
    )
    return Sample(pieces, counts)


def _within_words(sampled: list[_Entry]) -> list[_Entry]:
    """Return the entries of the lowest hashes whose different words have at most `_WORDS` bytes.

    Words are cut at spaces; those of each kind of tokenizer are these or parts of them.
    """
    words, size = set[bytes](), 0
    lowest_first = sorted(sampled, reverse=True)
    for number, entry in enumerate(lowest_first):
        new = set(entry[3].split()) - words
        size += sum(map(len, new))
        if size > _WORDS:
            return lowest_first[:number]
        words |= new
    return lowest_first


def _has_long_word(text: str) -> bool:
    """Return whether more than `LONGEST` characters are without whitespace, or nothing else."""
    at = 0
    while at + LONGEST < len(text):
        window = text[at : at + LONGEST + 1]
        last = window.rsplit(None, 1)[-1:]
        if not last or len(last[0]) > LONGEST:
            return True
        at += len(window) - len(last[0])
    return False


def count_characters(texts: Iterable[str]) -> Array:
    """Return the frequency of each character by code point, (1,114,112) int64."""
    counts = np.zeros(0x110000, dtype=np.int64)
    for text in texts:
        points = np.frombuffer(text.encode("utf-32-le"), dtype=np.uint32)
        if len(points) < 4096:  # a histogram of all of Unicode costs more than a short text
            np.add.at(counts, points, 1)
        else:
            histogram = np.bincount(points)
            counts[: len(histogram)] += histogram
    return counts


def _cut(text: str, length: int) -> Iterator[str]:
    """Yield pieces of at most `length` characters, cut before a space if possible."""
    start = 0
    while len(text) - start > length:
        end = text.rfind(" ", start + 1, start + length)
        end = end if end > start else start + length
        yield text[start:end]
        start = end
    yield text[start:]


def _between_words(text: str, length: int) -> Iterator[str]:
    """Yield blocks of at least `length` characters, whose words are those of the whole.

    They are cut before single spaces between letters or digits, where every kind of tokenizer cuts.
    """
    start = 0
    while match := _BETWEEN.search(text, start + length):
        yield text[start : match.start()]
        start = match.start()
    yield text[start:]
