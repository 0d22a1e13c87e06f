"""An n-gram model on disk: sorted keys, probabilities and back-offs, mapped when it is read.

table.json      order, vocabulary, smoothing, sizes
keys-N.npy      (n-grams,) int64, from order 2 on; see `foreword.ngrams.counting`
probs-N.npy     nats, (n-grams,) float32
backoffs-N.npy  nats, (n-grams,) float32, below the greatest order
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from foreword import atomic
from foreword.errors import UserError
from foreword.ngrams.counting import ABSENT, Level
from foreword.ngrams.smooth import Estimate, Smoothing
from foreword.types import Array

VERSION = 1


@dataclass(frozen=True)
class About:
    """What a table says of itself.

    Attributes:
        order: the greatest n.
        vocab: number of ids, `start` among them.
        start: the id that begins each text.
        unseen: what a context never seen leaves; see `Smoothing.unseen`.
        is_normalised: whether it is a distribution.
        sizes: number of n-grams of each order.
        version: of the format.
    """

    order: int
    vocab: int
    start: int
    unseen: float
    is_normalised: bool
    sizes: tuple[int, ...]
    version: int = VERSION


@dataclass(frozen=True)
class Table:
    """An n-gram model ready to be asked.

    Attributes:
        about: its sizes and conventions.
        keys: of each order, order 1 first (there the words); (n-grams,) int64 each.
        log_probs: of each order, (n-grams,) float32.
        log_backoffs: of each order but the greatest, (n-grams,) float32.
    """

    about: About
    keys: tuple[Array, ...]
    log_probs: tuple[Array, ...]
    log_backoffs: tuple[Array, ...]

    @classmethod
    def of(cls, levels: Sequence[Level], vocab: int, start: int, smoothing: Smoothing) -> Table:
        """The table of counts under a smoothing."""
        estimates: list[Estimate] = smoothing.estimate(levels, vocab, start)
        about = About(
            order=len(levels),
            vocab=vocab,
            start=start,
            unseen=smoothing.unseen,
            is_normalised=smoothing.is_normalised,
            sizes=tuple(map(len, levels)),
        )
        return cls(
            about,
            tuple(level.keys for level in levels),
            tuple(estimate.log_probs for estimate in estimates),
            tuple(estimate.log_backoffs for estimate in estimates[:-1]),
        )

    @property
    def bytes(self) -> int:
        """Size of its arrays."""
        arrays = (*self.keys[1:], *self.log_probs, *self.log_backoffs)
        return sum(array.nbytes for array in arrays)

    def save(self, folder: Path) -> None:
        """Writes the table into a folder that is there."""
        for n in range(1, self.about.order + 1):
            arrays = {"probs": self.log_probs[n - 1]}
            if n > 1:
                arrays["keys"] = self.keys[n - 1]
            if n < self.about.order:
                arrays["backoffs"] = self.log_backoffs[n - 1]
            for name, array in arrays.items():
                np.save(folder / f"{name}-{n}.npy", array, allow_pickle=False)
        atomic.write_text(folder / "table.json", json.dumps(asdict(self.about), indent=1) + "\n")

    @classmethod
    def load(cls, folder: Path) -> Table:
        """A table that `save` wrote; its arrays are mapped, not read.

        Raises:
            UserError: it is not there, damaged, or of another version.
        """
        try:
            values = json.loads((folder / "table.json").read_text(encoding="utf-8"))
            if values.get("version") != VERSION:
                raise UserError(
                    f"{folder}: a table of version {values.get('version')}; this Foreword reads "
                    f"version {VERSION}"
                )
            about = About(**{**values, "sizes": tuple(values["sizes"])})
            orders = range(1, about.order + 1)
            keys = [np.arange(about.vocab), *(_mapped(folder, "keys", n) for n in orders[1:])]
            probs = [_mapped(folder, "probs", n) for n in orders]
            backoffs = [_mapped(folder, "backoffs", n) for n in orders[:-1]]
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise UserError(f"{folder}: a damaged n-gram table: {error}") from error
        for array, size in zip([*probs, *backoffs], [*about.sizes, *about.sizes], strict=False):
            if len(array) != size:
                raise UserError(f"{folder}: a damaged n-gram table: it has not {size} n-grams")
        return cls(about, tuple(keys), tuple(probs), tuple(backoffs))

    def find(self, stream: Array) -> list[Array]:
        """Which n-gram ends at each place of texts, by order, order 1 first.

        Args:
            stream: texts one after the other, each beginning with the start token, (tokens,).

        Returns:
            Of each order, the n-gram's number, ABSENT where there is none or it was never seen;
            (tokens,) int64 each.
        """
        words = np.asarray(stream, dtype=np.int64)
        found = [words]
        for keys in self.keys[1:]:
            found.append(self._longer(keys, _moved(found[-1]), words))
        return found

    def _longer(self, keys: Array, before: Array, words: Array) -> Array:
        """The number of each `before` word, ABSENT where that was never seen."""
        wanted = before * self.about.vocab + words
        at = np.minimum(np.searchsorted(keys, wanted), max(len(keys) - 1, 0))
        is_there = (before != ABSENT) & (words != self.about.start)
        is_there &= keys[at] == wanted if len(keys) else False
        return np.where(is_there, at, ABSENT)

    def log_probs_of(self, stream: Array, found: Sequence[Array] | None = None) -> Array:
        """Of each token under those before it in its text, (tokens,) float64 nats.

        Args:
            stream: as in `find`; the start tokens themselves get 0.
            found: what `find` gave, if it is known already.
        """
        words = np.asarray(stream, dtype=np.int64)
        found = self.find(words) if found is None else found
        depth = _depth(words, self.about.start)
        total = self.log_probs[0][words].astype(np.float64)
        unseen = math.log(self.about.unseen)
        for n in range(2, self.about.order + 1):
            context = _moved(found[n - 2])
            backoff = self.log_backoffs[n - 2][np.maximum(context, 0)]
            backoff = np.where(context == ABSENT, unseen, backoff)
            is_asked = depth >= n - 1  # so many words stand before it
            is_seen = found[n - 1] != ABSENT
            own = self.log_probs[n - 1][np.maximum(found[n - 1], 0)]
            total = np.where(is_seen, own, np.where(is_asked, total + backoff, total))
        return np.where(words == self.about.start, 0.0, total)

    def distribution(self, contexts: Array) -> Array:
        """The log-probability of every word after each context.

        Args:
            contexts: the last words, (contexts, words) int64; what stands before a start token
                counts for nothing.

        Returns:
            (contexts, vocab) float64 nats.
        """
        rows, length = contexts.shape
        columns = [self._suffix(contexts[:, length - n :]) for n in range(1, self.about.order)]
        out = np.tile(self.log_probs[0].astype(np.float64), (rows, 1))
        for n, context in enumerate(columns, start=2):
            if n - 1 > length:
                break
            ids, is_asked = context
            seen = ids != ABSENT
            left = np.where(
                seen, self.log_backoffs[n - 2][np.maximum(ids, 0)], math.log(self.about.unseen)
            )
            out += np.where(is_asked, left, 0.0)[:, None]
            for row in np.flatnonzero(seen):
                low, high = np.searchsorted(
                    self.keys[n - 1],
                    [ids[row] * self.about.vocab, (ids[row] + 1) * self.about.vocab],
                )
                words = self.keys[n - 1][low:high] - ids[row] * self.about.vocab
                out[row, words] = self.log_probs[n - 1][low:high]
        return out

    def _suffix(self, words: Array) -> tuple[Array, Array]:
        """The number of each row's n-gram, and whether there is one: none across a start token."""
        is_asked = ~(words[:, 1:] == self.about.start).any(axis=1)
        found = words[:, 0]
        for n in range(1, words.shape[1]):
            found = self._longer(self.keys[n], found, words[:, n])
        return found, is_asked


def _mapped(folder: Path, name: str, n: int) -> Array:
    mapped: Array = np.load(folder / f"{name}-{n}.npy", mmap_mode="r", allow_pickle=False)
    return mapped


def _moved(found: Array) -> Array:
    """What ends one place earlier."""
    moved = np.empty_like(found)
    moved[1:], moved[:1] = found[:-1], ABSENT
    return moved


def _depth(words: Array, start: int) -> Array:
    """How many words stand before each in its text."""
    places = np.arange(len(words))
    return places - np.maximum.accumulate(np.where(words == start, places, 0))
