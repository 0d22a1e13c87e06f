"""Counting n-grams by sorting, in bounded memory: each order is built on the one below.

An n-gram is represented by a number: the index of its key in the sorted keys of its order. Its key
is the number of its first n - 1 words times the vocabulary size, plus its last word. So a key has
64 bits at any order, equal n-grams are neighbours after a sort, and the data of a prefix or suffix
take one look-up.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from foreword.ngrams.scratch import Scratch
from foreword.types import Array

ABSENT = -1  # instead of a number: an unseen n-gram, or in counting none that ends here
NONE = -2  # in a table: none ends here, since the text begins less than n words before


@dataclass(frozen=True)
class Level:
    """The counted n-grams of one order.

    Attributes:
        keys: their keys, sorted; (n-grams,) int64; at order 1 the words themselves.
        counts: how often each occurs in the text, (n-grams,) int64.
        suffixes: the number, at the order below, of each n-gram without its first word; (n-grams,)
            int64; empty at order 1.
        is_initial: whether it begins with the token that begins a text, (n-grams,) bool.
    """

    keys: Array
    counts: Array
    suffixes: Array
    is_initial: Array

    def __len__(self) -> int:
        return len(self.keys)


def count(
    stream: Array,
    order: int,
    vocab: int,
    start: int,
    scratch: Scratch,
    progress: Callable[[float, float], None] = lambda done, total: None,
) -> list[Level]:
    """Count all n-grams up to `order` that lie within one text.

    Args:
        stream: concatenated texts, each beginning with `start`; (tokens,), may be memory-mapped.
        order: the greatest n.
        vocab: number of ids.
        start: the id that begins each text and occurs nowhere else.
        scratch: holds arrays that may not fit into memory; each token that is processed takes about
            80 bytes of memory.
        progress: called with the number of orders that are done, and of all.

    Returns:
        The levels, order 1 first; their arrays are memory-mapped from the scratch folder.
    """
    # Order 1: every id is a unigram, counted or not.
    bounds = scratch.parts(len(stream))
    counts = np.zeros(vocab, dtype=np.int64)
    for part in bounds:
        counts += np.bincount(stream[part], minlength=vocab)
    words = np.arange(vocab, dtype=np.int64)
    levels = [Level(words, counts, np.empty(0, np.int64), words == start)]
    # Higher orders: an n-gram is the (n - 1)-gram that ends at the token before, and a token.
    ends = stream  # the number of the n-gram that ends at each token
    for n in range(2, order + 1):
        progress(n - 1, order)
        keys_of = _Keys(stream, ends, vocab, start)
        keys, counts = _unique(keys_of, bounds, scratch, n)
        ends, suffixes = _look_up(keys, keys_of, bounds, scratch, n)
        is_initial = _initial(keys, levels[-1], vocab, scratch, n)
        levels.append(Level(keys, counts, suffixes, is_initial))
    progress(order, order)
    return levels


@dataclass(frozen=True)
class _Keys:
    """Returns, called with a part of the stream, the key of the n-gram at each token, or ABSENT."""

    stream: Array
    ends: Array  # the number of the (n - 1)-gram that ends at each token
    vocab: int
    start: int

    def __call__(self, part: slice) -> Array:
        words = np.asarray(self.stream[part], dtype=np.int64)
        before = np.empty(len(words), dtype=np.int64)
        before[1:] = self.ends[part][:-1]
        before[0] = self.ends[part.start - 1] if part.start else ABSENT
        has_prefix = (before != ABSENT) & (words != self.start)
        return np.where(has_prefix, before * self.vocab + words, ABSENT)


def _unique(keys_of: _Keys, bounds: list[slice], scratch: Scratch, n: int) -> tuple[Array, Array]:
    """Return the keys that occur, sorted, and the count of each."""

    def sorted_run(part: slice) -> tuple[Array, Array]:
        keys = np.sort(keys_of(part))
        keys = keys[np.searchsorted(keys, 0) :]
        first = np.flatnonzero(np.diff(keys, prepend=ABSENT))
        return keys[first], np.diff(first, append=len(keys))

    if bounds[-1].stop <= scratch.chunk:
        return _merge_in_memory(scratch.map(sorted_run, bounds))

    def stored_run(part: slice) -> tuple[Array, Array]:
        keys, counts = sorted_run(part)
        name = f"run-{n}-{part.start}"
        return scratch.store(f"{name}-keys", keys), scratch.store(f"{name}-counts", counts)

    runs = scratch.map(stored_run, bounds)
    keys_file, counts_file = (scratch.file(f"{name}-{n}.bin") for name in ("keys", "counts"))
    return _merge_files(runs, keys_file, counts_file, scratch.chunk)


def _look_up(
    keys: Array, keys_of: _Keys, bounds: list[slice], scratch: Scratch, n: int
) -> tuple[Array, Array]:
    """Return the number of the n-gram that ends at each token, and the suffixes of the n-grams."""
    ends = scratch.create(f"ends-{n}", len(keys_of.stream), np.int64)
    suffixes = scratch.create(f"suffixes-{n}", len(keys), np.int64)

    def number(part: slice) -> None:
        part_keys = keys_of(part)
        has_ngram = part_keys >= 0
        numbers = np.searchsorted(keys, part_keys)
        ends[part] = np.where(has_ngram, numbers, ABSENT)
        # All occurrences of an n-gram write the same suffix.
        suffixes[numbers[has_ngram]] = keys_of.ends[part][has_ngram]

    scratch.map(number, bounds)
    return ends, suffixes


def _initial(keys: Array, below: Level, vocab: int, scratch: Scratch, n: int) -> Array:
    """Return whether each n-gram begins a text: whether its prefix does; (n-grams,) bool."""
    is_initial = scratch.create(f"is-initial-{n}", len(keys), np.bool_)

    def look_up_prefixes(part: slice) -> None:
        is_initial[part] = below.is_initial[keys[part] // vocab]

    scratch.map(look_up_prefixes, scratch.parts(len(keys)))
    return is_initial


def _merge_files(
    runs: list[tuple[Array, Array]], keys_file: Path, counts_file: Path, size: int
) -> tuple[Array, Array]:
    """Merge sorted runs into files, one range of keys at a time."""
    samples = np.sort(np.concatenate([keys[:: max(1, len(keys) // 64)] for keys, _ in runs]))
    total = sum(len(keys) for keys, _ in runs)
    if not total:  # no text is long enough
        return samples, samples
    edges = samples[np.linspace(0, len(samples) - 1, total // size + 2).astype(int)]
    edges[0], edges[-1] = 0, np.iinfo(np.int64).max
    with keys_file.open("wb") as keys_out, counts_file.open("wb") as counts_out:
        for low, high in itertools.pairwise(edges):
            cuts = [slice(*np.searchsorted(keys, [low, high])) for keys, _ in runs]
            pairs = zip(runs, cuts, strict=True)
            keys, counts = _merge_in_memory(
                [(keys[cut], counts[cut]) for (keys, counts), cut in pairs]
            )
            keys.tofile(keys_out)
            counts.tofile(counts_out)
    return np.memmap(keys_file, np.int64, "r"), np.memmap(counts_file, np.int64, "r")


def _merge_in_memory(runs: list[tuple[Array, Array]]) -> tuple[Array, Array]:
    """Merge sorted runs in memory."""
    if len(runs) == 1:
        return runs[0]
    keys, counts = (np.concatenate(sides) for sides in zip(*runs, strict=True))
    order = np.argsort(keys, kind="stable")  # a stable sort merges sorted runs
    keys, counts = keys[order], counts[order]
    first = np.flatnonzero(np.diff(keys, prepend=ABSENT))
    return keys[first], np.add.reduceat(counts, first) if len(first) else counts[:0]
