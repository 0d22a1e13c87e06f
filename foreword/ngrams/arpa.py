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

Probabilities and back-offs are in powers of ten. Spaces, tabs and ends of lines part words; other
white space may stand within them, as KenLM has it.
"""

from __future__ import annotations

import math
import re
from array import array
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from foreword import atomic
from foreword.data.text_files import COMPRESSIONS, ReadCounts, ReadSettings, TextFile
from foreword.errors import UserError
from foreword.ngrams.table import NgramTable, NgramTableHeader
from foreword.types import Array

TEN = math.log(10)
NEVER = -99.0  # what ARPA files write for the logarithm of 0
SPACES = " \t\r\n"

_FIELD = re.compile(f"[^{SPACES}]+")


def write(table: NgramTable, words: Sequence[str], file: Path) -> None:
    """Writes a table as an ARPA file.

    Args:
        table: what to write.
        words: by id; `<s>`, `</s>` and `<unk>` by these names, or readers know them not.
        file: where to.

    Raises:
        UserError: a word holds what parts words, two words are the same, the table is no
            distribution that the format can hold, or the file cannot be written.
    """
    if file.suffix.lower() in COMPRESSIONS:
        raise UserError(f"{file}: ARPA files are written plain; leave out {file.suffix}")
    if table.about.unseen != 1:
        raise UserError("ARPA files cannot say what stupid back-off leaves to shorter contexts")
    if len(set(words)) != len(words):
        raise UserError("two tokens are written the same; an ARPA file cannot tell them apart")
    for word in words:
        if not _FIELD.fullmatch(word):
            raise UserError(f"the token {word!r} holds white space, which ARPA files part words by")
    with atomic.writing(file) as out:
        out.writelines(_lines(table, words))


def _lines(table: NgramTable, words: Sequence[str]) -> Iterator[str]:
    yield "\\data\\\n"
    for n, size in enumerate(table.about.sizes, start=1):
        yield f"ngram {n}={size}\n"
    names = list(words)  # of the n-grams of the order below, at order 1 of the words
    for n in range(1, table.about.order + 1):
        yield f"\n\\{n}-grams:\n"
        if n > 1:
            before, last = np.divmod(table.keys[n - 1], table.about.vocab)
            names = [f"{names[b]} {words[w]}" for b, w in zip(before, last, strict=True)]
        # Rounding can put what is certain a little above 0, which readers refuse.
        probs = np.clip(table.log_probs[n - 1] / TEN, NEVER, 0)
        if n == table.about.order:
            yield from (f"{p:.7g}\t{name}\n" for p, name in zip(probs, names, strict=True))
            continue
        backoffs = np.maximum(table.log_backoffs[n - 1] / TEN, NEVER)
        for p, name, left in zip(probs, names, backoffs, strict=True):
            yield f"{p:.7g}\t{name}\t{left:.7g}\n"
    yield "\n\\end\\\n"


def read(file: Path, start: str = "<s>") -> tuple[NgramTable, list[str]]:
    """A table and its words by id, in the order of the file's unigrams.

    Args:
        file: the ARPA file, plain or compressed.
        start: the word that begins each text.

    Raises:
        UserError: not an ARPA file, cut short, with other numbers of n-grams than it says, with
            values that are no logarithms of probabilities, with an n-gram that is there twice or
            whose words or prefix it does not list; file and line are named.
    """
    try:
        return _Reader(file, start).read(_decoded(file))
    except OSError as error:
        # An error number comes from the system, none from a decompressor.
        raise UserError(f"{file}: cannot be read: {error.strerror or error}") from error


def _decoded(file: Path) -> Iterator[tuple[int, str]]:
    """The lines of a file without the white space around them, with their numbers."""
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
        start = self.words[self.start]
        self.log_probs[0][start] = -np.inf  # it is given, though some files say it is certain
        about = NgramTableHeader(
            order=len(sizes),
            vocab=len(self.words),
            words=len(self.words) - 1,
            start=start,
            unseen=1.0,
            is_normalised=True,
            sizes=tuple(sizes),
        )
        table = NgramTable(
            about, tuple(self.keys), tuple(self.log_probs), tuple(self.log_backoffs[:-1])
        )
        return table, list(self.words)

    def _sizes(self, lines: Iterator[tuple[int, str]]) -> list[int]:
        sizes: list[int] = []
        is_begun = False
        for number, text in lines:
            if text == "\\1-grams:" and sizes:
                return sizes
            if text == "\\data\\":
                is_begun = True
            elif text and is_begun:
                wanted = f"ngram {len(sizes) + 1}"
                found = re.fullmatch(f"{wanted} *= *([0-9]{{1,99}})", text)
                if found is None:
                    raise self._refusal(number, f"expected '{wanted}=...', found {text!r}")
                sizes.append(int(found[1]))
        raise UserError(f"{self.file}: not an ARPA file, or cut short before its n-grams")

    def _level(self, lines: Iterator[tuple[int, str]], n: int, size: int, *, is_last: bool) -> str:
        """The n-grams of one order; returns the line that ends them."""
        probs, backoffs = array("d"), array("d")
        ids = array("q")  # n of each n-gram
        at = array("q")  # the line that each stands in
        for number, text in lines:
            if text.startswith("\\") and text.endswith((":", "\\")) and "\t" not in text:
                if len(at) != size:
                    raise self._refusal(
                        number,
                        f"has {len(at)} {n}-grams, but its head says {size}; it is cut short or "
                        "was changed",
                    )
                self._store(n, np.array(ids).reshape(-1, n), np.array(at), probs, backoffs)
                return text
            if not text:
                continue
            if len(at) == size:
                raise self._refusal(number, f"has more {n}-grams than the {size} of its head")
            fields = _FIELD.findall(text)
            if len(fields) not in (n + 1, n + 2) or (is_last and len(fields) != n + 1):
                raise self._refusal(
                    number,
                    f"expected a probability, {n} words"
                    f"{'' if is_last else ' and perhaps a back-off'}; found {text!r}",
                )
            probs.append(self._value(number, fields[0], 0.0))
            backoffs.append(self._value(number, fields[n + 1], -NEVER) if fields[n + 1 :] else 0.0)
            ids.extend(self._ids(number, n, fields[1 : n + 1]))
            at.append(number)
        raise UserError(f"{self.file}: ends within its {n}-grams; it is cut short")

    def _value(self, number: int, field: str, most: float) -> float:
        """The logarithm that a line says."""
        try:
            value = float(field)
        except ValueError as error:
            raise self._refusal(number, str(error)) from error
        if not -math.inf < value <= most:  # nor is it nan
            raise self._refusal(number, f"{field} is no finite logarithm of at most {most:g}")
        return value

    def _ids(self, number: int, n: int, words: Sequence[str]) -> list[int]:
        """The ids of the words of an n-gram; of order 1 a new one."""
        known = self.words
        if n == 1:
            if words[0] in known:
                raise self._refusal(number, f"the word {words[0]!r} again")
            known[words[0]] = len(known)
        try:
            return [known[word] for word in words]
        except KeyError as error:
            raise self._refusal(
                number, f"the word {error.args[0]!r} is not among its 1-grams"
            ) from error

    def _store(
        self, n: int, ids: Array, at: Array, probs: array[float], backoffs: array[float]
    ) -> None:
        """Keeps the n-grams of one order, (n-grams, n) ids, sorted."""
        keys = self._keys(n, ids, at)
        order = np.argsort(keys, kind="stable")
        keys = keys[order]
        again = order[1:][np.diff(keys) == 0]
        if len(again):
            first = int(again.min())
            raise self._refusal(at[first], f"the {n}-gram {self._shown(ids[first])} again")
        self.keys.append(keys)
        for values, kept in ((probs, self.log_probs), (backoffs, self.log_backoffs)):
            found = np.array(values)[order]
            kept.append(np.where(found <= NEVER, -np.inf, found * TEN).astype(np.float32))

    def _keys(self, n: int, ids: Array, at: Array) -> Array:
        """The keys of n-grams, given the lines they are in."""
        found = ids[:, 0]
        for length in range(2, n):
            keys, wanted = self.keys[length - 1], found * len(self.words) + ids[:, length - 1]
            found = np.searchsorted(keys, wanted)
            is_there = found < len(keys)
            is_there[is_there] = keys[found[is_there]] == wanted[is_there]
            if not is_there.all():
                first = int(np.argmin(is_there))
                raise self._refusal(
                    at[first],
                    f"{self._shown(ids[first])} is there, but its beginning "
                    f"{self._shown(ids[first, :length])} is not among the {length}-grams",
                )
        return found * len(self.words) + ids[:, -1] if n > 1 else found

    def _shown(self, ids: Array) -> str:
        """An n-gram, between quotes."""
        words = list(self.words)
        return repr(" ".join(words[i] for i in ids))

    def _refusal(self, number: int, reason: str) -> UserError:
        return UserError(f"{self.file}, line {number}: {reason}")
