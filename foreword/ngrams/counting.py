"""Counting n-grams by sorting, in bounded memory: each order is built on the one below.

An n-gram is a number: the place of its key in the sorted list of its order, and its key is the
number of its first n - 1 words times the vocabulary plus its last word. So a key has 64 bits at
any order, equal n-grams are neighbours after a sort, and what is known of a prefix or a suffix is
one look-up away.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import numpy as np

from foreword.types import Array

Result = TypeVar("Result")

CORES = os.cpu_count() or 1
CHUNK = 1 << 22  # places of the text that are sorted at once
LEAST = 1 << 16  # places that are worth a core of their own
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
    folder: Path,
    progress: Callable[[float, float], None] = lambda done, total: None,
    chunk: int | None = None,
) -> list[Level]:
    """All n-grams up to `order` that lie within one text.

    Args:
        stream: texts one after the other, each beginning with `start`; (tokens,), may be mapped.
        order: the greatest n.
        vocab: number of ids.
        start: the id that begins each text and stands nowhere else.
        folder: for what does not fit into memory; emptied by the caller.
        progress: is told how many orders are done, and of how many.
        chunk: places of the text that a core sorts at once, about 40 bytes each; CHUNK if unsaid.

    Returns:
        The levels, order 1 first; their arrays are mapped from `folder`.
    """
    tokens, size = len(stream), chunk or CHUNK
    step = min(size, max(LEAST, -(-tokens // CORES)))
    bounds = [slice(at, min(at + step, tokens)) for at in range(0, tokens, step)]
    counts = np.zeros(vocab, dtype=np.int64)
    for part in bounds:
        counts += np.bincount(stream[part], minlength=vocab)
    words = np.arange(vocab, dtype=np.int64)
    levels = [Level(words, counts, np.empty(0, np.int64), words == start)]
    ends = stream  # the number of the n-gram that ends at each place
    for n in range(2, order + 1):
        progress(n - 1, order)
        keys_of = _Keys(stream, ends, vocab, start)
        keys, counts = _unique(keys_of, bounds, folder, n, size)
        new_ends = _create(folder / f"ends-{n}.npy", (tokens,))
        suffixes = _create(folder / f"suffixes-{n}.npy", (len(keys),))

        def number(
            part: slice,
            *,
            keys: Array = keys,
            keys_of: _Keys = keys_of,
            ends: Array = ends,
            new: Array = new_ends,
            suffixes: Array = suffixes,
        ) -> None:
            wanted = keys_of(part)
            is_there = wanted >= 0
            found = np.searchsorted(keys, wanted)
            new[part] = np.where(is_there, found, ABSENT)
            # Every place where an n-gram ends says the same of its suffix.
            suffixes[found[is_there]] = ends[part][is_there]

        _each(number, bounds)
        is_initial = levels[-1].is_initial[keys // vocab]
        levels.append(Level(keys, counts, suffixes, is_initial))
        ends = new_ends
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


def _unique(
    keys_of: _Keys, bounds: list[slice], folder: Path, n: int, size: int
) -> tuple[Array, Array]:
    """The keys that occur, sorted, and how often each does."""

    def run(part: slice) -> tuple[Array, Array]:
        keys = np.sort(keys_of(part))
        keys = keys[np.searchsorted(keys, 0) :]
        first = np.flatnonzero(np.diff(keys, prepend=ABSENT))
        return keys[first], np.diff(first, append=len(keys))

    if bounds[-1].stop <= size:
        return _joined(_each(run, bounds))

    def spill(part: slice) -> tuple[Array, Array]:
        name = f"run-{n}-{part.start}"
        keys, counts = run(part)
        return _stored(folder / f"{name}-keys.npy", keys), _stored(
            folder / f"{name}-counts.npy", counts
        )

    runs = _each(spill, bounds)
    return _merge(runs, folder / f"keys-{n}.bin", folder / f"counts-{n}.bin", size)


def _merge(
    runs: list[tuple[Array, Array]], keys_file: Path, counts_file: Path, size: int
) -> tuple[Array, Array]:
    """Sorted runs as one, a range of keys at a time."""
    samples = np.sort(np.concatenate([keys[:: max(1, len(keys) // 256)] for keys, _ in runs]))
    total = sum(len(keys) for keys, _ in runs)
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


def _each(work: Callable[[slice], Result], parts: list[slice]) -> list[Result]:
    """`work` on every part, on all cores: numpy's sorts and look-ups run beside each other."""
    with ThreadPoolExecutor(CORES) as pool:
        return list(pool.map(work, parts))


def _create(file: Path, shape: tuple[int, ...]) -> Array:
    return np.lib.format.open_memmap(file, "w+", np.int64, shape)


def _stored(file: Path, values: Array) -> Array:
    np.save(file, values, allow_pickle=False)
    stored: Array = np.load(file, mmap_mode="r", allow_pickle=False)
    return stored
