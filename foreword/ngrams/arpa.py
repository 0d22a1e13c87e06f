"""ARPA files: n-gram models as text, which KenLM, SRILM and speech recognisers read.

    \\data\\
    ngram 1=3
    ngram 2=1

    \\1-grams:
    -99      <s>    -0.30103
    -0.5     the    -0.2
    ...
    \\2-grams:
    -0.1     <s> the

    \\end\\

Probabilities and back-offs are in powers of ten. A word may hold no white space.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from foreword import atomic
from foreword.errors import UserError
from foreword.ngrams.table import About, Table
from foreword.types import Array

TEN = math.log(10)
NEVER = -99.0  # what ARPA files write for the logarithm of 0


def write(table: Table, words: Sequence[str], file: Path) -> None:
    """Writes a table as an ARPA file.

    Args:
        table: what to write.
        words: by id; `<s>`, `</s>` and `<unk>` by these names, or readers know them not.
        file: where to.

    Raises:
        UserError: a word holds white space, two words are the same, the table is no distribution
            that the format can hold, or the file cannot be written.
    """
    if table.about.unseen != 1:
        raise UserError("ARPA files cannot say what stupid back-off leaves to shorter contexts")
    if len(set(words)) != len(words):
        raise UserError("two tokens are written the same; an ARPA file cannot tell them apart")
    for word in words:
        if not word or word.split() != [word]:
            raise UserError(f"the token {word!r} holds white space, which ARPA files part words by")
    with atomic.writing(file) as out:
        out.writelines(_lines(table, words))


def _lines(table: Table, words: Sequence[str]) -> Iterator[str]:
    yield "\\data\\\n"
    for n, size in enumerate(table.about.sizes, start=1):
        yield f"ngram {n}={size}\n"
    names = list(words)  # of the n-grams of the order below, at order 1 of the words
    for n in range(1, table.about.order + 1):
        yield f"\n\\{n}-grams:\n"
        if n > 1:
            before, last = np.divmod(table.keys[n - 1], table.about.vocab)
            names = [f"{names[b]} {words[w]}" for b, w in zip(before, last, strict=True)]
        probs = np.maximum(table.log_probs[n - 1] / TEN, NEVER)
        if n == table.about.order:
            yield from (f"{p:.7g}\t{name}\n" for p, name in zip(probs, names, strict=True))
            continue
        backoffs = np.maximum(table.log_backoffs[n - 1] / TEN, NEVER)
        for p, name, left in zip(probs, names, backoffs, strict=True):
            yield f"{p:.7g}\t{name}\t{left:.7g}\n"
    yield "\n\\end\\\n"


def read(file: Path, start: str = "<s>") -> tuple[Table, list[str]]:
    """A table and its words by id, in the order of the file's unigrams.

    Args:
        file: the ARPA file.
        start: the word that begins each text.

    Raises:
        UserError: not an ARPA file, cut short, with other numbers of n-grams than it says, with an
            n-gram whose words or prefix it does not list; file and line are named.
    """
    try:
        with file.open(encoding="utf-8") as lines:
            return _Reader(file, start).read(enumerate(lines, start=1))
    except OSError as error:
        raise UserError(f"{file}: cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise UserError(f"{file}: not UTF-8 text") from error


class _Reader:
    """Reads an ARPA file line by line."""

    def __init__(self, file: Path, start: str) -> None:
        self.file, self.start = file, start
        self.words: dict[str, int] = {}
        self.keys: list[Array] = []
        self.log_probs: list[Array] = []
        self.log_backoffs: list[Array] = []

    def read(self, lines: Iterator[tuple[int, str]]) -> tuple[Table, list[str]]:
        """The whole file."""
        sizes = self._sizes(lines)
        section = "\\1-grams:"
        for n, size in enumerate(sizes, start=1):
            if section != f"\\{n}-grams:":
                raise UserError(f"{self.file}: \\{n}-grams: is missing; found {section!r}")
            section = self._level(lines, n, size, is_last=n == len(sizes))
        if section != "\\end\\":
            raise UserError(f"{self.file}: does not end with \\end\\; it may be cut short")
        if self.start not in self.words:
            raise UserError(f"{self.file}: has no word {self.start}, which begins each text")
        about = About(
            order=len(sizes),
            vocab=len(self.words),
            words=len(self.words) - 1,
            start=self.words[self.start],
            unseen=1.0,
            is_normalised=True,
            sizes=tuple(sizes),
        )
        table = Table(about, tuple(self.keys), tuple(self.log_probs), tuple(self.log_backoffs[:-1]))
        return table, list(self.words)

    def _sizes(self, lines: Iterator[tuple[int, str]]) -> list[int]:
        sizes: list[int] = []
        is_begun = False
        for number, line in lines:
            text = line.strip()
            if text == "\\1-grams:" and sizes:
                return sizes
            if text == "\\data\\":
                is_begun = True
            elif text and is_begun:
                name, _, size = text.partition("=")
                if name.strip() != f"ngram {len(sizes) + 1}" or not size.strip().isdigit():
                    raise UserError(
                        f"{self.file}, line {number}: expected 'ngram {len(sizes) + 1}=...', "
                        f"found {text!r}"
                    )
                sizes.append(int(size))
        raise UserError(f"{self.file}: not an ARPA file, or cut short before its n-grams")

    def _level(self, lines: Iterator[tuple[int, str]], n: int, size: int, *, is_last: bool) -> str:
        """The n-grams of one order; returns the line that ends them."""
        probs, backoffs = np.empty(size), np.zeros(size)
        at = np.empty(size, np.int64)  # the line that each n-gram stands in
        words: list[str] = []
        filled = 0
        for number, line in lines:
            text = line.strip()
            if text.startswith("\\") and text.endswith((":", "\\")) and "\t" not in text:
                if filled != size:
                    raise UserError(
                        f"{self.file}, line {number}: has {filled} {n}-grams, but its head says "
                        f"{size}; it is cut short or was changed"
                    )
                self._store(n, self._keys(n, words, at), probs, backoffs)
                return text
            if not text:
                continue
            if filled == size:
                raise UserError(
                    f"{self.file}, line {number}: has more {n}-grams than the {size} of its head"
                )
            fields = text.split()
            if len(fields) not in (n + 1, n + 2) or (is_last and len(fields) != n + 1):
                raise UserError(
                    f"{self.file}, line {number}: expected a probability, {n} words"
                    f"{'' if is_last else ' and perhaps a back-off'}; found {text!r}"
                )
            try:
                probs[filled] = float(fields[0])
                backoffs[filled] = float(fields[n + 1]) if len(fields) == n + 2 else 0.0
            except ValueError as error:
                raise UserError(f"{self.file}, line {number}: {error}") from error
            words += fields[1 : n + 1]
            at[filled] = number
            filled += 1
        raise UserError(f"{self.file}: ends within its {n}-grams; it is cut short")

    def _keys(self, n: int, words: list[str], at: Array) -> Array:
        """The keys of n-grams, given their words one after the other and the lines they are in."""
        if n == 1:
            for word, number in zip(words, at, strict=True):
                if word in self.words:
                    raise UserError(f"{self.file}, line {number}: the word {word!r} again")
                self.words[word] = len(self.words)
            return np.arange(len(words))
        flat = np.fromiter((self.words.get(word, -1) for word in words), np.int64, len(words))
        if (flat < 0).any():
            first = int(np.argmax(flat < 0))
            raise UserError(
                f"{self.file}, line {at[first // n]}: the word {words[first]!r} is not among its "
                "1-grams"
            )
        ids = flat.reshape(-1, n)
        found = ids[:, 0]
        for length in range(2, n):
            keys, wanted = self.keys[length - 1], found * len(self.words) + ids[:, length - 1]
            found = np.searchsorted(keys, wanted)
            is_there = found < len(keys)
            is_there[is_there] = keys[found[is_there]] == wanted[is_there]
            if not is_there.all():
                first = int(np.argmin(is_there))
                whole = words[first * n : first * n + n]
                raise UserError(
                    f"{self.file}, line {at[first]}: {' '.join(whole)!r} is there, but its "
                    f"beginning {' '.join(whole[:length])!r} is not among the {length}-grams"
                )
        return np.asarray(found * len(self.words) + ids[:, -1])

    def _store(self, n: int, keys: Array, probs: Array, backoffs: Array) -> None:
        order = np.argsort(keys, kind="stable") if n > 1 else np.arange(len(keys))
        keys = keys[order]
        if n > 1 and len(keys) and not np.diff(keys).all():
            raise UserError(f"{self.file}: one of the {n}-grams stands there twice")
        log_probs = np.where(probs[order] <= NEVER, -np.inf, probs[order] * TEN)
        log_backoffs = np.where(backoffs[order] <= NEVER, -np.inf, backoffs[order] * TEN)
        self.keys.append(keys)
        self.log_probs.append(log_probs.astype(np.float32))
        self.log_backoffs.append(log_backoffs.astype(np.float32))
