"""Counting n-grams by sorting, in bounded memory: each order is built on the one below.

An n-gram is a number: the place of its key in the sorted list of its order, and its key is the
number of its first n - 1 words times the vocabulary plus its last word. So a key has 64 bits at
any order, equal n-grams are neighbours after a sort, and what is known of a prefix or a suffix is
one look-up away.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from foreword.ngrams.scratch import Scratch
from foreword.types import Array

ABSENT = -1  # no n-gram of this order ends here
NONE = -2  # where ABSENT means one never seen: the text begins less than n words before


@dataclass(frozen=True)
class Level:
    """The n-grams of one order.

    Attributes:
        keys: sorted, (n-grams,) int64; at order 1 the words themselves.
        counts: how often each stands in the text, (n-grams,) int64.
        suffixes: number of each n-gram without its first word, at the order below, (n-grams,)
            int64; at order 1 empty.
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
    """All n-grams up to `order` that lie within one text.

    Args:
        stream: texts one after the other, each beginning with `start`; (tokens,), may be mapped.
        order: the greatest n.
        vocab: number of ids.
        start: the id that begins each text and stands nowhere else.
        scratch: for what does not fit into memory; a place of the text that is worked on takes
            about 80 bytes.
        progress: is told how many orders are done, and of how many.

    Returns:
        The levels, order 1 first; their arrays are mapped from the scratch folder.
    """
    tokens = len(stream)
    bounds = scratch.parts(tokens)
    counts = np.zeros(vocab, dtype=np.int64)
    for part in bounds:
        counts += np.bincount(stream[part], minlength=vocab)
    words = np.arange(vocab, dtype=np.int64)
    levels = [Level(words, counts, np.empty(0, np.int64), words == start)]
    ends = stream  # the number of the n-gram that ends at each place
    for n in range(2, order + 1):
        progress(n - 1, order)
        keys_of = _Keys(stream, ends, vocab, start)
        keys, counts = _unique(keys_of, bounds, scratch, n)
        ends, suffixes = _numbered(keys, keys_of, bounds, scratch, n)
        is_initial = _initial(keys, levels[-1], vocab, scratch, n)
        levels.append(Level(keys, counts, suffixes, is_initial))
    progress(order, order)
    return levels


@dataclass(frozen=True)
class _Keys:
    """The keys of the n-grams that end in a part of the stream; ABSENT where there is none."""

    stream: Array
    ends: Array  # of the order below
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
    """The keys that occur, sorted, and how often each does."""

    def run(part: slice) -> tuple[Array, Array]:
        keys = np.sort(keys_of(part))
        keys = keys[np.searchsorted(keys, 0) :]
        first = np.flatnonzero(np.diff(keys, prepend=ABSENT))
        return keys[first], np.diff(first, append=len(keys))

    if bounds[-1].stop <= scratch.chunk:
        return _joined(scratch.each(run, bounds))

    def spill(part: slice) -> tuple[Array, Array]:
        keys, counts = run(part)
        name = f"run-{n}-{part.start}"
        return scratch.keep(f"{name}-keys", keys), scratch.keep(f"{name}-counts", counts)

    runs = scratch.each(spill, bounds)
    keys_file, counts_file = (scratch.file(f"{name}-{n}.bin") for name in ("keys", "counts"))
    return _merge(runs, keys_file, counts_file, scratch.chunk)


def _numbered(
    keys: Array, keys_of: _Keys, bounds: list[slice], scratch: Scratch, n: int
) -> tuple[Array, Array]:
    """The number of the n-gram that ends at each place, and those of the n-grams' suffixes."""
    ends = scratch.create(f"ends-{n}", len(keys_of.stream), np.int64)
    suffixes = scratch.create(f"suffixes-{n}", len(keys), np.int64)

    def number(part: slice) -> None:
        wanted = keys_of(part)
        is_there = wanted >= 0
        found = np.searchsorted(keys, wanted)
        ends[part] = np.where(is_there, found, ABSENT)
        # Every place where an n-gram ends says the same of its suffix.
        suffixes[found[is_there]] = keys_of.ends[part][is_there]

    scratch.each(number, bounds)
    return ends, suffixes


def _initial(keys: Array, below: Level, vocab: int, scratch: Scratch, n: int) -> Array:
    """Whether n-grams begin with what begins a text: whether their prefixes do."""
    is_initial = scratch.create(f"is-initial-{n}", len(keys), np.bool_)

    def look(part: slice) -> None:
        is_initial[part] = below.is_initial[keys[part] // vocab]

    scratch.each(look, scratch.parts(len(keys)))
    return is_initial


def _merge(
    runs: list[tuple[Array, Array]], keys_file: Path, counts_file: Path, size: int
) -> tuple[Array, Array]:
    """Sorted runs as one, a range of keys at a time."""
    samples = np.sort(np.concatenate([keys[:: max(1, len(keys) // 64)] for keys, _ in runs]))
    total = sum(len(keys) for keys, _ in runs)
    if not total:  # no text is so long
        return samples, samples
    edges = samples[np.linspace(0, len(samples) - 1, total // size + 2).astype(int)]
    edges[0], edges[-1] = 0, np.iinfo(np.int64).max
    with keys_file.open("wb") as keys_out, counts_file.open("wb") as counts_out:
        for low, high in itertools.pairwise(edges):
            cuts = [slice(*np.searchsorted(keys, [low, high])) for keys, _ in runs]
            pairs = zip(runs, cuts, strict=True)
            keys, counts = _joined([(keys[cut], counts[cut]) for (keys, counts), cut in pairs])
            keys.tofile(keys_out)
            counts.tofile(counts_out)
    return np.memmap(keys_file, np.int64, "r"), np.memmap(counts_file, np.int64, "r")


def _joined(runs: list[tuple[Array, Array]]) -> tuple[Array, Array]:
    """Sorted runs as one, in memory."""
    if len(runs) == 1:
        return runs[0]
    keys, counts = (np.concatenate(sides) for sides in zip(*runs, strict=True))
    order = np.argsort(keys, kind="stable")  # which merges what is sorted already
    keys, counts = keys[order], counts[order]
    first = np.flatnonzero(np.diff(keys, prepend=ABSENT))
    return keys[first], np.add.reduceat(counts, first) if len(first) else counts[:0]
