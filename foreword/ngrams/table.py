"""An n-gram model in files: sorted keys, probabilities and back-off weights, memory-mapped.

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
from itertools import pairwise
from pathlib import Path

import numpy as np

from foreword.disk import atomic, stored
from foreword.errors import NotFiniteError, UserError
from foreword.ngrams.counting import ABSENT, NONE, Level
from foreword.ngrams.scratch import Scratch
from foreword.ngrams.smoothing._contract import SmoothedOrder, Smoothing
from foreword.types import Array

VERSION = 1


@dataclass(frozen=True)
class NgramTableHeader:
    """The sizes and conventions of a table.

    Attributes:
        order: the greatest n.
        vocab: number of ids, `start` among them.
        words: how many ids may be predicted.
        start: the id that begins each text.
        unseen: the back-off weight of an unseen context; see `Smoothing.unseen`.
        is_normalised: whether the probabilities after a context sum to 1.
        sizes: number of n-grams of each order.
        notes: remarks about the smoothing for the user.
        version: the version of the format.
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
class BackOff:
    """One order on the way from the longest context to the one that the probability came from.

    Attributes:
        order: the n of the n-gram.
        is_seen: whether the text had it; the way ends there.
        nats: its log-probability, or the weight of backing off to a shorter context.
        after: the ids that followed the context in the text, the likeliest first, and their
            log-probabilities; empty if the context is unseen.
        followers: the number of these.
    """

    order: int
    is_seen: bool
    nats: float
    after: tuple[tuple[int, float], ...]
    followers: int


@dataclass(frozen=True)
class NgramTable:
    """An n-gram model that gives log-probabilities.

    Attributes:
        header: the sizes and conventions.
        keys: the keys of each order, order 1 first (the ids themselves); (n-grams,) int64 each.
        log_probs: the log-probabilities of each order, (n-grams,) float32 each.
        log_backoffs: the back-off weights of each order below the greatest, (n-grams,) float32
            each.
    """

    header: NgramTableHeader
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
        """Smooth counts into a table.

        Args:
            levels: counts, order 1 first.
            start: the token that begins each text.
            smoothing: computes their probabilities.
            is_word: which ids may be predicted, (vocab,) bool.
            scratch: holds the arrays; its folder must outlive the table.
        """
        estimates: list[SmoothedOrder] = smoothing.estimate(levels, is_word, scratch)
        header = NgramTableHeader(
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
            header,
            tuple(level.keys for level in levels),
            tuple(estimate.log_probs for estimate in estimates),
            tuple(estimate.log_backoffs for estimate in estimates[1:]),
        )

    @classmethod
    def uniform(cls, is_word: Array, start: int) -> NgramTable:
        """Return the table without counts: all words are equally likely."""
        vocab, words = len(is_word), int(is_word.sum())
        header = NgramTableHeader(1, vocab, words, start, 1.0, True, sizes=(vocab,))
        log_probs = np.where(is_word, -math.log(words), -np.inf).astype(np.float32)
        return cls(header, (np.arange(len(is_word)),), (log_probs,), ())

    @property
    def stored_values(self) -> int:
        """The number of probabilities and back-off weights."""
        return sum(array.size for array in (*self.log_probs, *self.log_backoffs))

    def seen_words(self) -> Array:
        """Return which ids end a seen bigram, (vocab,) bool; all ids in a unigram table."""
        is_seen = np.ones(self.header.vocab, dtype=bool)
        if self.header.order > 1:
            last = self.keys[1] % self.header.vocab
            is_seen = np.bincount(last, minlength=self.header.vocab) > 0
        return is_seen

    def size_of(self, order: int) -> int:
        """Return the number of n-grams of one order; at order 1, of words."""
        return self.header.sizes[order - 1] if order > 1 else self.header.words

    def bytes_of(self, order: int) -> int:
        """Return the size of the arrays of one order."""
        keys = self.keys[order - 1].nbytes if order > 1 else 0
        backoffs = self.log_backoffs[order - 1].nbytes if order < self.header.order else 0
        return keys + self.log_probs[order - 1].nbytes + backoffs

    def save(self, folder: Path) -> None:
        """Write the table into an existing folder.

        Raises:
            NotFiniteError: a probability is nan or infinite.
        """
        for n in range(1, self.header.order + 1):
            arrays = {"probs": self.log_probs[n - 1]}
            if n > 1:
                arrays["keys"] = self.keys[n - 1]
            if n < self.header.order:
                arrays["backoffs"] = self.log_backoffs[n - 1]
            for name, array in arrays.items():
                # numpy's max of nan is nan; -inf is valid as the logarithm of 0.
                if not array.max(initial=0) < np.inf:
                    raise NotFiniteError(f"{name} of the {n}-grams are not finite")
                np.save(folder / f"{name}-{n}.npy", array, allow_pickle=False)
        atomic.write_text(
            folder / "table.json", stored.to_json(asdict(self.header), indent=1) + "\n"
        )

    @classmethod
    def load(cls, folder: Path) -> NgramTable:
        """Return a table that `save` wrote; its arrays are memory-mapped.

        Raises:
            UserError: it is missing, damaged, or of another version.
        """
        try:
            values = json.loads((folder / "table.json").read_text(encoding="utf-8"))
            if values.get("version") != VERSION:
                raise UserError(
                    f"{folder}: a table of version {values.get('version')}; this Foreword reads "
                    f"version {VERSION}"
                )
            lists = {name: tuple(values[name]) for name in ("sizes", "notes")}
            header = NgramTableHeader(**{**values, **lists})
            orders = range(1, header.order + 1)
            keys = [np.arange(header.vocab), *(_map_array(folder, "keys", n) for n in orders[1:])]
            probs = [_map_array(folder, "probs", n) for n in orders]
            backoffs = [_map_array(folder, "backoffs", n) for n in orders[:-1]]
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise UserError(f"{folder}: a damaged n-gram table: {error}") from error
        for array, size in zip([*probs, *backoffs], [*header.sizes, *header.sizes], strict=False):
            if len(array) != size:
                raise UserError(
                    f"{folder}: a damaged n-gram table: it has {len(array)} n-grams, not {size}"
                )
        return cls(header, tuple(keys), tuple(probs), tuple(backoffs))

    def find(
        self, stream: Array, is_first: Array | None = None, order: int | None = None
    ) -> list[Array]:
        """Return the number of the n-gram that ends at each token, by order, order 1 first.

        Args:
            stream: concatenated texts, (tokens,).
            is_first: where texts begin, (tokens,) bool; default at start tokens.
            order: the greatest order to return; default the table's.

        Returns:
            For each order the numbers, (tokens,) int64; ABSENT if the n-gram is unseen, NONE if the
            text has fewer than n tokens up to this one.
        """
        words = np.asarray(stream, dtype=np.int64)
        is_first = words == self.header.start if is_first is None else is_first
        by_order = [words]
        for n in range(2, (order or self.header.order) + 1):
            by_order.append(self._look_up(n, _shift(by_order[-1], is_first), words))
        return by_order

    def _look_up(self, n: int, prefixes: Array, words: Array) -> Array:
        """Return the numbers of the n-grams of a prefix and a word, as in `find`; (words,)."""
        keys = self.keys[n - 1]
        numbers = np.minimum(prefixes, ABSENT)
        # Only n-grams with a seen prefix can be seen; in key order their look-ups share pages.
        where = np.flatnonzero(prefixes >= 0) if len(keys) else np.empty(0, dtype=np.int64)
        ngram_keys = prefixes[where] * self.header.vocab + words[where]
        order = np.argsort(ngram_keys)
        where, ngram_keys = where[order], ngram_keys[order]
        indices = np.minimum(np.searchsorted(keys, ngram_keys), len(keys) - 1)
        is_seen = keys[indices] == ngram_keys
        numbers[where[is_seen]] = indices[is_seen]
        return numbers

    def log_probs_of(
        self, stream: Array, by_order: Sequence[Array] | None = None, is_first: Array | None = None
    ) -> Array:
        """Return the log-probability of each token in its text, (tokens,) float64 nats.

        Args:
            stream: concatenated texts, (tokens,).
            by_order: what `find` returned for these texts, to save a second search.
            is_first: where texts begin, (tokens,) bool; default at start tokens. The first token
                is not predicted and gets 0.
        """
        words = np.asarray(stream, dtype=np.int64)
        is_first = words == self.header.start if is_first is None else is_first
        by_order = self.find(words, is_first) if by_order is None else by_order
        total = self.log_probs[0][words].astype(np.float64)
        for n in range(2, self.header.order + 1):
            context = _shift(by_order[n - 2], is_first)
            total = self._refine(n, total, context, by_order[n - 1])
        return np.where(is_first, 0.0, total)

    def log_probs_after(self, contexts: Array, words: Array) -> Array:
        """Return the log-probability of each word after its context.

        Args:
            contexts: for each order below the greatest, the number of the n-gram that ends the
                context, as in `find`; (words, order - 1) int64.
            words: (words,) int64.

        Returns:
            (words,) float64 nats.
        """
        total = self.log_probs[0][words].astype(np.float64)
        for n in range(2, self.header.order + 1):
            context = contexts[:, n - 2]
            total = self._refine(n, total, context, self._look_up(n, context, words))
        return total

    def back_off(self, ids: Array, top: int = 5) -> list[list[BackOff]]:
        """Return the way to the probability of each token after the first, longest context first.

        The log-probability of a token is the sum of the nats along its way.

        Args:
            ids: a text, (tokens,), with its start token.
            top: the number of followers to name.
        """
        numbers = np.stack(self.find(ids, np.arange(len(ids)) == 0), axis=1)  # (tokens, order)
        words = np.argsort(-self.log_probs[0], kind="stable")[:top]
        likeliest = list(zip(words.tolist(), self.log_probs[0][words].tolist(), strict=True))
        ways = []
        for context, found in pairwise(numbers):
            way: list[BackOff] = []
            for n in range(self.header.order, 0, -1):
                if n > 1 and context[n - 2] == NONE:  # the text has fewer tokens
                    continue
                after = self._followers(n, int(context[n - 2])) if n > 1 else likeliest
                followers = len(after) if n > 1 else self.header.words
                is_seen = n == 1 or bool(found[n - 1] >= 0)
                if is_seen:
                    nats = self.log_probs[n - 1][found[n - 1]]
                elif context[n - 2] >= 0:
                    nats = self.log_backoffs[n - 2][context[n - 2]]
                else:
                    nats = math.log(self.header.unseen)
                way.append(BackOff(n, is_seen, float(nats), tuple(after[:top]), followers))
                if is_seen:
                    break
            ways.append(way)
        return ways

    def _followers(self, n: int, context: int) -> list[tuple[int, float]]:
        """Return the ids seen after a context and their log-probabilities, the likeliest first."""
        if context < 0:
            return []
        vocab = self.header.vocab
        low, high = np.searchsorted(self.keys[n - 1], [context * vocab, (context + 1) * vocab])
        ids, nats = self.keys[n - 1][low:high] - context * vocab, self.log_probs[n - 1][low:high]
        order = np.argsort(-nats, kind="stable")
        return list(zip(ids[order].tolist(), nats[order].tolist(), strict=True))

    def _refine(self, n: int, shorter: Array, context: Array, ngram: Array) -> Array:
        """Return log-probabilities of order n, backing off to those of order n - 1.

        Args:
            n: the order.
            shorter: log-probabilities of order n - 1, (words,).
            context: the number of the (n - 1)-gram before each word, as in `find`; (words,).
            ngram: the number of the n-gram that ends with each word, as in `find`; (words,).
        """
        backoff = np.where(
            context >= 0,
            _values_at(self.log_backoffs[n - 2], context),
            math.log(self.header.unseen),
        )
        backed_off = np.where(context == NONE, shorter, shorter + backoff)
        refined: Array = np.where(ngram >= 0, _values_at(self.log_probs[n - 1], ngram), backed_off)
        return refined

    def distribution(self, contexts: Array) -> Array:
        """Return the log-probability of every word after each context.

        Args:
            contexts: as in `log_probs_after`, (contexts, order - 1) int64.

        Returns:
            (contexts, vocab) float64 nats.
        """
        vocab = self.header.vocab
        out = np.tile(self.log_probs[0].astype(np.float64), (len(contexts), 1))
        for n in range(2, self.header.order + 1):
            keys, log_probs = self.keys[n - 1], self.log_probs[n - 1]
            for row, context in enumerate(contexts[:, n - 2].tolist()):
                if context == NONE:
                    continue
                is_seen = context >= 0
                out[row] += (
                    self.log_backoffs[n - 2][context] if is_seen else math.log(self.header.unseen)
                )
                low, high = np.searchsorted(keys, [context * vocab, (context + 1) * vocab])
                if is_seen:
                    out[row, keys[low:high] - context * vocab] = log_probs[low:high]
        return out

    def renumber(self, ids: Array, vocab: int) -> NgramTable:
        """Return the table for other ids.

        Args:
            ids: the new id of each old one; ABSENT drops a word and all n-grams with it; (vocab,)
                int64.
            vocab: number of new ids; those without an old one have probability 0.
        """
        # Order 1: an n-gram's number is its id.
        numbers, kept = ids, np.flatnonzero(ids >= 0)
        keys = [np.arange(vocab)]
        log_probs = [np.full(vocab, -np.inf, np.float32)]
        log_probs[0][ids[kept]] = self.log_probs[0][kept]
        log_backoffs = []
        if self.header.order > 1:
            log_backoffs.append(np.zeros(vocab, np.float32))
            log_backoffs[0][ids[kept]] = self.log_backoffs[0][kept]
        # Higher orders: compute the new keys, keep and sort those of kept prefixes and words, and
        # number them for the next order.
        for n in range(2, self.header.order + 1):
            prefixes, last = np.divmod(self.keys[n - 1], self.header.vocab)
            new_keys = numbers[prefixes] * vocab + ids[last]
            kept = np.flatnonzero((numbers[prefixes] >= 0) & (ids[last] >= 0))
            kept = kept[np.argsort(new_keys[kept], kind="stable")]
            numbers = np.full(len(new_keys), ABSENT)
            numbers[kept] = np.arange(len(kept))
            keys.append(new_keys[kept])
            log_probs.append(self.log_probs[n - 1][kept])
            if n < self.header.order:
                log_backoffs.append(self.log_backoffs[n - 1][kept])
        header = replace(
            self.header,
            vocab=vocab,
            words=int((ids >= 0).sum()) - 1,
            start=int(ids[self.header.start]),
            sizes=tuple(map(len, keys)),
        )
        return NgramTable(header, tuple(keys), tuple(log_probs), tuple(log_backoffs))


def _map_array(folder: Path, name: str, n: int) -> Array:
    mapped = np.load(folder / f"{name}-{n}.npy", mmap_mode="r", allow_pickle=False)
    return np.asarray(mapped)


def _shift(numbers: Array, is_first: Array) -> Array:
    """Return the number of the n-gram that ends one token earlier; NONE at the first of a text."""
    shifted = np.empty_like(numbers)
    shifted[1:], shifted[:1] = numbers[:-1], NONE
    shifted[is_first] = NONE
    return shifted


def _values_at(values: Array, numbers: Array) -> Array:
    """Return the values of n-grams; any value where the number is ABSENT or NONE."""
    if not len(values):
        return np.zeros(len(numbers))
    selected: Array = values[np.maximum(numbers, 0)]
    return selected
