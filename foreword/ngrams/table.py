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
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np

from foreword import atomic
from foreword.errors import NotFiniteError, UserError
from foreword.ngrams.counting import ABSENT, NONE, Level
from foreword.ngrams.scratch import Scratch
from foreword.ngrams.smooth import SmoothedOrder, Smoothing
from foreword.types import Array

VERSION = 1


@dataclass(frozen=True)
class NgramTableHeader:
    """What a table says of itself.

    Attributes:
        order: the greatest n.
        vocab: number of ids, `start` among them.
        words: how many of them may be predicted.
        start: the id that begins each text.
        unseen: what a context never seen leaves; see `Smoothing.unseen`.
        is_normalised: whether it is a distribution.
        sizes: number of n-grams of each order.
        notes: what is worth knowing of how it was made.
        version: of the format.
    """

    order: int
    vocab: int
    words: int
    start: int
    unseen: float
    is_normalised: bool
    sizes: tuple[int, ...]
    notes: tuple[str, ...] = ()
    version: int = VERSION


@dataclass(frozen=True)
class NgramTable:
    """An n-gram model ready to be asked.

    Attributes:
        about: its sizes and conventions.
        keys: of each order, order 1 first (there the words); (n-grams,) int64 each.
        log_probs: of each order, (n-grams,) float32.
        log_backoffs: of each order but the greatest, (n-grams,) float32.
    """

    about: NgramTableHeader
    keys: tuple[Array, ...]
    log_probs: tuple[Array, ...]
    log_backoffs: tuple[Array, ...]

    @classmethod
    def of(
        cls,
        levels: Sequence[Level],
        start: int,
        smoothing: Smoothing,
        is_word: Array,
        scratch: Scratch,
    ) -> NgramTable:
        """The table of counts under a smoothing.

        Args:
            levels: counts, order 1 first.
            start: the token that begins each text.
            smoothing: makes probabilities of them.
            is_word: what may be predicted, (vocab,) bool.
            scratch: where its arrays lie, for as long as it is in use.
        """
        estimates: list[SmoothedOrder] = smoothing.estimate(levels, is_word, scratch)
        about = NgramTableHeader(
            order=len(levels),
            vocab=len(is_word),
            words=int(is_word.sum()),
            start=start,
            unseen=smoothing.unseen,
            is_normalised=smoothing.is_normalised,
            sizes=tuple(map(len, levels)),
            notes=tuple(estimate.note for estimate in estimates if estimate.note),
        )
        return cls(
            about,
            tuple(level.keys for level in levels),
            tuple(estimate.log_probs for estimate in estimates),
            tuple(estimate.log_backoffs for estimate in estimates[1:]),
        )

    @classmethod
    def uniform(cls, is_word: Array, start: int) -> NgramTable:
        """The table that knows nothing: every word is as likely as any other."""
        vocab, words = len(is_word), int(is_word.sum())
        about = NgramTableHeader(1, vocab, words, start, 1.0, True, sizes=(vocab,))
        log_probs = np.where(is_word, -math.log(words), -np.inf).astype(np.float32)
        return cls(about, (np.arange(len(is_word)),), (log_probs,), ())

    @property
    def numbers(self) -> int:
        """How many probabilities and back-offs it holds."""
        return sum(array.size for array in (*self.log_probs, *self.log_backoffs))

    def seen_words(self) -> Array:
        """Which tokens it has seen, as far as it remembers: unigrams alone tell none apart."""
        is_seen = np.ones(self.about.vocab, dtype=bool)
        if self.about.order > 1:
            last = self.keys[1] % self.about.vocab
            is_seen = np.bincount(last, minlength=self.about.vocab) > 0
        return is_seen

    def size_of(self, order: int) -> int:
        """How many n-grams of one order it holds; of order 1, the words."""
        return self.about.sizes[order - 1] if order > 1 else self.about.words

    def bytes_of(self, order: int) -> int:
        """Size of the arrays of one order."""
        keys = self.keys[order - 1].nbytes if order > 1 else 0
        backoffs = self.log_backoffs[order - 1].nbytes if order < self.about.order else 0
        return keys + self.log_probs[order - 1].nbytes + backoffs

    def save(self, folder: Path) -> None:
        """Writes the table into a folder that is there.

        Raises:
            NotFiniteError: a probability is none, nan or infinity.
        """
        for n in range(1, self.about.order + 1):
            arrays = {"probs": self.log_probs[n - 1]}
            if n > 1:
                arrays["keys"] = self.keys[n - 1]
            if n < self.about.order:
                arrays["backoffs"] = self.log_backoffs[n - 1]
            for name, array in arrays.items():
                # nan is the greatest of all to numpy; -inf is the logarithm of 0.
                if not array.max(initial=0) < np.inf:
                    raise NotFiniteError(f"{name} of the {n}-grams are not finite")
                np.save(folder / f"{name}-{n}.npy", array, allow_pickle=False)
        atomic.write_text(folder / "table.json", json.dumps(asdict(self.about), indent=1) + "\n")

    @classmethod
    def load(cls, folder: Path) -> NgramTable:
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
            lists = {name: tuple(values[name]) for name in ("sizes", "notes")}
            about = NgramTableHeader(**{**values, **lists})
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

    def find(
        self, stream: Array, is_first: Array | None = None, order: int | None = None
    ) -> list[Array]:
        """Which n-gram ends at each place of texts, by order, order 1 first.

        Args:
            stream: texts one after the other, (tokens,).
            is_first: where they begin, (tokens,) bool; at start tokens if unsaid.
            order: the greatest that is asked for; the table's if unsaid.

        Returns:
            Of each order, the n-gram's number; ABSENT where it was never seen, NONE where the text
            has fewer words up to there; (tokens,) int64 each.
        """
        words = np.asarray(stream, dtype=np.int64)
        is_first = words == self.about.start if is_first is None else is_first
        found = [words]
        for n in range(2, (order or self.about.order) + 1):
            found.append(self._longer(n, _moved(found[-1], is_first), words))
        return found

    def _longer(self, n: int, before: Array, words: Array) -> Array:
        """The number of each n-gram of `before` and one of `words`, as in `find`."""
        keys = self.keys[n - 1]
        found = np.minimum(before, ABSENT)
        asked = np.flatnonzero(before >= 0) if len(keys) else np.empty(0, dtype=np.int64)
        wanted = before[asked] * self.about.vocab + words[asked]
        order = np.argsort(wanted)  # neighbours are near each other in memory
        asked, wanted = asked[order], wanted[order]
        at = np.minimum(np.searchsorted(keys, wanted), len(keys) - 1)
        is_there = keys[at] == wanted
        found[asked[is_there]] = at[is_there]
        return found

    def log_probs_of(
        self, stream: Array, found: Sequence[Array] | None = None, is_first: Array | None = None
    ) -> Array:
        """Of each token under those before it in its text, (tokens,) float64 nats.

        Args:
            stream: texts one after the other, (tokens,).
            found: what `find` gave, if it is known already.
            is_first: where texts begin, (tokens,) bool; at start tokens if unsaid. What begins a
                text is given and gets 0.
        """
        words = np.asarray(stream, dtype=np.int64)
        is_first = words == self.about.start if is_first is None else is_first
        found = self.find(words, is_first) if found is None else found
        total = self.log_probs[0][words].astype(np.float64)
        for n in range(2, self.about.order + 1):
            context = _moved(found[n - 2], is_first)
            total = self._refined(n, total, context, found[n - 1])
        return np.where(is_first, 0.0, total)

    def after(self, contexts: Array, words: Array) -> Array:
        """The log-probability of each word after its context.

        Args:
            contexts: by order below the greatest, the n-gram that the context ends with, as in
                `find`; (words, order - 1) int64.
            words: (words,) int64.

        Returns:
            (words,) float64 nats.
        """
        total = self.log_probs[0][words].astype(np.float64)
        for n in range(2, self.about.order + 1):
            context = contexts[:, n - 2]
            total = self._refined(n, total, context, self._longer(n, context, words))
        return total

    def _refined(self, n: int, total: Array, context: Array, own: Array) -> Array:
        """The log-probabilities by n words of those by n - 1."""
        left = np.where(
            context >= 0, _of(self.log_backoffs[n - 2], context), math.log(self.about.unseen)
        )
        shorter = np.where(context == NONE, total, total + left)
        refined: Array = np.where(own >= 0, _of(self.log_probs[n - 1], own), shorter)
        return refined

    def distribution(self, contexts: Array) -> Array:
        """The log-probability of every word after each context.

        Args:
            contexts: as in `after`, (contexts, order - 1) int64.

        Returns:
            (contexts, vocab) float64 nats.
        """
        vocab = self.about.vocab
        out = np.tile(self.log_probs[0].astype(np.float64), (len(contexts), 1))
        for n in range(2, self.about.order + 1):
            keys, log_probs = self.keys[n - 1], self.log_probs[n - 1]
            for row, context in enumerate(contexts[:, n - 2].tolist()):
                if context == NONE:
                    continue
                seen = context >= 0
                out[row] += (
                    self.log_backoffs[n - 2][context] if seen else math.log(self.about.unseen)
                )
                low, high = np.searchsorted(keys, [context * vocab, (context + 1) * vocab])
                if seen:
                    out[row, keys[low:high] - context * vocab] = log_probs[low:high]
        return out

    def renumbered(self, ids: Array, vocab: int) -> NgramTable:
        """The same table for other ids.

        Args:
            ids: the new id of each, ABSENT for words that are left out with all n-grams that they
                stand in; (vocab,) int64.
            vocab: number of new ids; those that are no word's have probability 0.
        """
        numbers, kept = ids, np.flatnonzero(ids >= 0)
        keys = [np.arange(vocab)]
        log_probs = [np.full(vocab, -np.inf, np.float32)]
        log_probs[0][ids[kept]] = self.log_probs[0][kept]
        log_backoffs = []
        if self.about.order > 1:
            log_backoffs.append(np.zeros(vocab, np.float32))
            log_backoffs[0][ids[kept]] = self.log_backoffs[0][kept]
        for n in range(2, self.about.order + 1):
            before, last = np.divmod(self.keys[n - 1], self.about.vocab)
            wanted = numbers[before] * vocab + ids[last]
            kept = np.flatnonzero((numbers[before] >= 0) & (ids[last] >= 0))
            kept = kept[np.argsort(wanted[kept], kind="stable")]
            numbers = np.full(len(wanted), ABSENT)
            numbers[kept] = np.arange(len(kept))
            keys.append(wanted[kept])
            log_probs.append(self.log_probs[n - 1][kept])
            if n < self.about.order:
                log_backoffs.append(self.log_backoffs[n - 1][kept])
        about = replace(
            self.about,
            vocab=vocab,
            words=int((ids >= 0).sum()) - 1,
            start=int(ids[self.about.start]),
            sizes=tuple(map(len, keys)),
        )
        return NgramTable(about, tuple(keys), tuple(log_probs), tuple(log_backoffs))


def _mapped(folder: Path, name: str, n: int) -> Array:
    mapped = np.load(folder / f"{name}-{n}.npy", mmap_mode="r", allow_pickle=False)
    return np.asarray(mapped)


def _moved(found: Array, is_first: Array) -> Array:
    """What ends one place earlier in the text."""
    moved = np.empty_like(found)
    moved[1:], moved[:1] = found[:-1], NONE
    moved[is_first] = NONE
    return moved


def _of(values: Array, numbers: Array) -> Array:
    """The values of these numbers, something where they are none."""
    if not len(values):
        return np.zeros(len(numbers))
    found: Array = values[np.maximum(numbers, 0)]
    return found
