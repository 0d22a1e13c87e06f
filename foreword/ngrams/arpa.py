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

Probabilities and back-off weights are logarithms to base 10. Words are separated by spaces, tabs
and line ends; other white space may be part of a word, as in KenLM.
"""

from __future__ import annotations

import math
import re
from array import array
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from foreword.data.text_files import ReadCounts, ReadSettings, TextFile
from foreword.disk import atomic
from foreword.disk.compressed import COMPRESSIONS
from foreword.errors import UserError
from foreword.ngrams.table import NgramTable, NgramTableHeader
from foreword.types import Array

TEN = math.log(10)
LOG_ZERO = -99.0  # what ARPA files write for the logarithm of 0
SPACES = " \t\r\n"

_FIELD = re.compile(f"[^{SPACES}]+")


def write(table: NgramTable, words: Sequence[str], file: Path) -> None:
    """Write a table as an ARPA file.

    Args:
        table: the table.
        words: the words by id; readers expect the names `<s>`, `</s>` and `<unk>`.
        file: the file to write.

    Raises:
        UserError: a word contains white space that separates words, two words are equal, the
            format cannot hold the table, or the file cannot be written.
    """
    if file.suffix.lower() in COMPRESSIONS:
        raise UserError(f"{file}: ARPA files are written uncompressed; leave out {file.suffix}")
    if table.header.unseen != 1:
        raise UserError("ARPA files cannot hold stupid back-off's weight of unseen contexts")
    if len(set(words)) != len(words):
        raise UserError("two tokens are written the same; an ARPA file cannot distinguish them")
    for word in words:
        if not _FIELD.fullmatch(word):
            raise UserError(
                f"the token {word!r} contains white space, which separates words in ARPA files"
            )
    with atomic.writing(file) as out:
        out.writelines(_lines(table, words))


def _lines(table: NgramTable, words: Sequence[str]) -> Iterator[str]:
    yield "\\data\\\n"
    for n, size in enumerate(table.header.sizes, start=1):
        yield f"ngram {n}={size}\n"
    names = list(words)  # the written n-grams of the order below; at order 1 the words
    for n in range(1, table.header.order + 1):
        yield f"\n\\{n}-grams:\n"
        if n > 1:
            prefixes, last = np.divmod(table.keys[n - 1], table.header.vocab)
            names = [f"{names[p]} {words[w]}" for p, w in zip(prefixes, last, strict=True)]
        # Rounding can put the logarithm of 1 a little above 0, which readers refuse.
        probs = np.clip(table.log_probs[n - 1] / TEN, LOG_ZERO, 0)
        if n == table.header.order:
            yield from (f"{p:.7g}\t{name}\n" for p, name in zip(probs, names, strict=True))
            continue
        backoffs = np.maximum(table.log_backoffs[n - 1] / TEN, LOG_ZERO)
        for p, name, backoff in zip(probs, names, backoffs, strict=True):
            yield f"{p:.7g}\t{name}\t{backoff:.7g}\n"
    yield "\n\\end\\\n"


def read(file: Path, start: str = "<s>") -> tuple[NgramTable, list[str]]:
    """Return a table and its words by id, in the order of the file's unigrams.

    Args:
        file: the ARPA file, plain or compressed.
        start: the word that begins each text.

    Raises:
        UserError: the file is not an ARPA file or is cut short, its numbers of n-grams differ from
            its header, a value is not the logarithm of a probability, an n-gram occurs twice, or
            the words or the prefix of one are not listed; the message names file and line.
    """
    try:
        return _Reader(file, start).read(_decode_lines(file))
    except OSError as error:
        # Errors of a decompressor have no strerror.
        raise UserError(f"{file}: cannot be read: {error.strerror or error}") from error


def _decode_lines(file: Path) -> Iterator[tuple[int, str]]:
    """Yield the lines of a file with their numbers, without surrounding white space."""
    for number, _, line in TextFile(file, ReadSettings(), ReadCounts()).lines():
        try:
            yield number, line.decode().strip(SPACES)
        except UnicodeDecodeError as error:
            raise UserError(f"{file}, line {number}: not UTF-8 text") from error


class _Reader:
    """Reads an ARPA file line by line."""

    def __init__(self, file: Path, start: str) -> None:
        self.file, self.start = file, start
        self.words: dict[str, int] = {}
        self.keys: list[Array] = []
        self.log_probs: list[Array] = []
        self.log_backoffs: list[Array] = []

    def read(self, lines: Iterator[tuple[int, str]]) -> tuple[NgramTable, list[str]]:
        """Read the whole file."""
        # Read the header, then the section of each order.
        sizes = self._read_sizes(lines)
        section = "\\1-grams:"
        for n, size in enumerate(sizes, start=1):
            if section != f"\\{n}-grams:":
                raise UserError(f"{self.file}: \\{n}-grams: is missing; found {section!r}")
            section = self._read_order(lines, n, size, is_last=n == len(sizes))
        if section != "\\end\\":
            raise UserError(f"{self.file}: does not end with \\end\\; it may be cut short")
        if self.start not in self.words:
            raise UserError(f"{self.file}: has no word {self.start}, which begins each text")
        # Make the table; its start token is never predicted, though some files say otherwise.
        start = self.words[self.start]
        self.log_probs[0][start] = -np.inf
        header = NgramTableHeader(
            order=len(sizes),
            vocab=len(self.words),
            words=len(self.words) - 1,
            start=start,
            unseen=1.0,
            is_normalised=True,
            sizes=tuple(sizes),
        )
        table = NgramTable(
            header, tuple(self.keys), tuple(self.log_probs), tuple(self.log_backoffs[:-1])
        )
        return table, list(self.words)

    def _read_sizes(self, lines: Iterator[tuple[int, str]]) -> list[int]:
        sizes: list[int] = []
        is_begun = False
        for number, text in lines:
            if text == "\\1-grams:" and sizes:
                return sizes
            if text == "\\data\\":
                is_begun = True
            elif text and is_begun:
                name = f"ngram {len(sizes) + 1}"
                match = re.fullmatch(f"{name} *= *([0-9]{{1,99}})", text)
                if match is None:
                    raise self._error(number, f"expected '{name}=...', found {text!r}")
                sizes.append(int(match[1]))
        raise UserError(f"{self.file}: not an ARPA file, or cut short before its n-grams")

    def _read_order(
        self, lines: Iterator[tuple[int, str]], n: int, size: int, *, is_last: bool
    ) -> str:
        """Read the n-grams of one order; return the line that begins the next section."""
        probs, backoffs = array("d"), array("d")
        ids = array("q")  # n for each n-gram
        at = array("q")  # the line of each n-gram
        for number, text in lines:
            # A line such as \2-grams: or \end\ ends the section.
            if text.startswith("\\") and text.endswith((":", "\\")) and "\t" not in text:
                if len(at) != size:
                    raise self._error(
                        number,
                        f"has {len(at)} {n}-grams, but its header says {size}; it is cut short or "
                        "was changed",
                    )
                self._store(n, np.array(ids).reshape(-1, n), np.array(at), probs, backoffs)
                return text
            if not text:
                continue
            if len(at) == size:
                raise self._error(number, f"has more {n}-grams than the {size} of its header")
            # Any other line is an n-gram: probability, words, back-off weight.
            fields = _FIELD.findall(text)
            if len(fields) not in (n + 1, n + 2) or (is_last and len(fields) != n + 1):
                raise self._error(
                    number,
                    f"expected a probability, {n} words"
                    f"{'' if is_last else ' and an optional back-off weight'}; found {text!r}",
                )
            probs.append(self._value(number, fields[0], 0.0))
            backoffs.append(
                self._value(number, fields[n + 1], -LOG_ZERO) if fields[n + 1 :] else 0.0
            )
            ids.extend(self._ids(number, n, fields[1 : n + 1]))
            at.append(number)
        raise UserError(f"{self.file}: ends within its {n}-grams; it is cut short")

    def _value(self, number: int, field: str, maximum: float) -> float:
        """Return the logarithm in a field of a line."""
        try:
            value = float(field)
        except ValueError as error:
            raise self._error(number, str(error)) from error
        if not -math.inf < value <= maximum:  # false for nan too
            raise self._error(number, f"{field} is not a finite logarithm of at most {maximum:g}")
        return value

    def _ids(self, number: int, n: int, words: Sequence[str]) -> list[int]:
        """Return the ids of an n-gram's words; at order 1, a new id."""
        known = self.words
        if n == 1:
            if words[0] in known:
                raise self._error(number, f"the word {words[0]!r} occurs again")
            known[words[0]] = len(known)
        try:
            return [known[word] for word in words]
        except KeyError as error:
            raise self._error(
                number, f"the word {error.args[0]!r} is not among its 1-grams"
            ) from error

    def _store(
        self, n: int, ids: Array, at: Array, probs: array[float], backoffs: array[float]
    ) -> None:
        """Sort and store the n-grams of one order; arguments as in `_keys`."""
        keys = self._keys(n, ids, at)
        order = np.argsort(keys, kind="stable")
        keys = keys[order]
        repeated = order[1:][np.diff(keys) == 0]
        if len(repeated):
            first = int(repeated.min())
            raise self._error(at[first], f"the {n}-gram {self._quoted(ids[first])} occurs again")
        self.keys.append(keys)
        for values, by_order in ((probs, self.log_probs), (backoffs, self.log_backoffs)):
            logs = np.array(values)[order]
            by_order.append(np.where(logs <= LOG_ZERO, -np.inf, logs * TEN).astype(np.float32))

    def _keys(self, n: int, ids: Array, at: Array) -> Array:
        """Return the keys of n-grams, (n-grams,) int64.

        Args:
            n: the order.
            ids: the ids of their words, (n-grams, n) int64.
            at: the number of the line of each.
        """
        numbers = ids[:, 0]
        for length in range(2, n):
            # Look up the prefixes of this length.
            keys, prefix_keys = (
                self.keys[length - 1],
                numbers * len(self.words) + ids[:, length - 1],
            )
            numbers = np.searchsorted(keys, prefix_keys)
            is_listed = numbers < len(keys)
            is_listed[is_listed] = keys[numbers[is_listed]] == prefix_keys[is_listed]
            if not is_listed.all():
                first = int(np.argmin(is_listed))
                raise self._error(
                    at[first],
                    f"{self._quoted(ids[first])} is listed, but its prefix "
                    f"{self._quoted(ids[first, :length])} is not among the {length}-grams",
                )
        return numbers * len(self.words) + ids[:, -1] if n > 1 else numbers

    def _quoted(self, ids: Array) -> str:
        """Return an n-gram in quotes."""
        words = list(self.words)
        return repr(" ".join(words[i] for i in ids))

    def _error(self, number: int, reason: str) -> UserError:
        return UserError(f"{self.file}, line {number}: {reason}")
