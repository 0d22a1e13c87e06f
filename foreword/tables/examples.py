"""Labelled examples, many of them in little memory: columns of Arrow, made into objects on demand.

Half a million sentences of a table are 50 MB of text. As Python objects they would take 2 GB.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar, overload

import pyarrow as pa

from foreword.text.utf8 import half_a_character

LEAST_OVERLAP = 0.01  # share of dev examples; natural data repeat some short texts
AT_ONCE = 1024  # examples that are objects at the same time

Item = TypeVar("Item")


class Labelled(NamedTuple):
    """A labelled example: one text, or a pair.

    Attributes:
        text: the text.
        label: its label, as written in the data; "" if it is to be predicted.
        pair: the second text of a pair, or None.
        source: where it came from (`train.tsv:17`), for messages.
        group: what it has in common with others, such as an author; "" for nothing.
    """

    text: str
    label: str = ""
    pair: str | None = None
    source: str = ""
    group: str = ""

    def with_prefix(self, prefix: str) -> Labelled:
        """Return the example with prefix, text and second text joined as its text."""
        pair = self.pair or ""
        if "{text}" in prefix:
            text = prefix.replace("{pair}", pair).replace("{text}", self.text)
        else:
            text = f"{prefix}{self.text}{' ' if pair else ''}{pair}"
        return self._replace(text=text, pair=None)


class Repaired(Labelled):
    """An example of a row in which something was wrong that its task could put right."""


@dataclass(frozen=True)
class LabelledTexts(Sequence[Labelled]):
    """Labelled examples, with one Arrow column for each field of `Labelled`."""

    columns: tuple[Any, ...]

    @classmethod
    def of(cls, examples: Iterable[Labelled]) -> LabelledTexts:
        """Return the examples in columns.

        Raises:
            UserError: one holds half a character, a lone surrogate.
        """
        if isinstance(examples, cls):
            return examples
        pieces: list[list[Any]] = [[] for _ in Labelled._fields]
        for chunk in batched(examples):
            for column, values in zip(pieces, zip(*chunk, strict=True), strict=True):
                column.append(_strings(values, chunk))
        return cls(tuple(pa.chunked_array(column, pa.large_string()) for column in pieces))

    def __len__(self) -> int:
        return len(self.columns[0])

    @overload
    def __getitem__(self, which: int) -> Labelled: ...
    @overload
    def __getitem__(self, which: slice) -> LabelledTexts: ...
    def __getitem__(self, which: int | slice) -> Labelled | LabelledTexts:
        """Return an example; for a slice, a sequence of this class."""
        if isinstance(which, slice):
            start, stop, step = which.indices(len(self))
            if step != 1:
                return LabelledTexts.of(self[n] for n in range(start, stop, step))
            count = max(stop - start, 0)
            return LabelledTexts(tuple(column.slice(start, count) for column in self.columns))
        index = range(len(self))[which]
        return Labelled(*(column[index].as_py() for column in self.columns))

    def __iter__(self) -> Iterator[Labelled]:
        for start in range(0, len(self), AT_ONCE):
            columns = (column.slice(start, AT_ONCE).to_pylist() for column in self.columns)
            yield from map(Labelled._make, zip(*columns, strict=True))


def overlap_note(
    train: Iterable[Iterable[Labelled]], dev: Sequence[Labelled], name: str = "dev"
) -> str | None:
    """Return a warning if many dev examples are training examples; None if hardly any is.

    Args:
        train: the training examples of each task.
        dev: the dev examples.
        name: name of the dev examples.
    """
    keys = Counter((example.text, example.pair) for example in dev)
    shared = {
        key for part in train for example in part if (key := (example.text, example.pair)) in keys
    }
    count = sum(keys[key] for key in shared)
    if count < max(1, LEAST_OVERLAP * len(dev)):
        return None
    return (
        f"warning: {count:,} of the {len(dev):,} {name} examples are training examples too "
        "(the same text); scores on them say little about new text"
    )


def batched(items: Iterable[Item]) -> Iterator[list[Item]]:
    """Yield the items in order, at most AT_ONCE at a time."""
    items = iter(items)
    while chunk := list(itertools.islice(items, AT_ONCE)):
        yield chunk


def _strings(values: Sequence[str | None], examples: Sequence[Labelled]) -> Any:
    try:
        return pa.array(values, pa.large_string())
    except UnicodeEncodeError as error:
        where = next(e.source for e, v in zip(examples, values, strict=True) if v == error.object)
        raise half_a_character(where) from None
