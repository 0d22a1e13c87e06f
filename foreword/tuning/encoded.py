"""Encoded examples in little memory: columns of numpy, made into objects on demand."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import wraps
from typing import Any, ParamSpec, overload

import numpy as np

from foreword.tables.examples import Labelled, batched
from foreword.tuning.tasks._contract import EncodedExample, ExampleOutputs
from foreword.types import Array

RAGGED = ("ids", "segments", "pooled_positions", "answer", "spans")
FLAGS = ("was_cut", "is_further", "is_continued")
P = ParamSpec("P")
MOST_CUT = 0.1  # share of the examples that are cut without a warning


class Ragged(Sequence[Array]):
    """Arrays of non-negative integers, end to end in the smallest dtype that holds them."""

    def __init__(self, flat: Array, ends: Array) -> None:
        self.flat, self.ends = flat, ends

    @classmethod
    def of(cls, arrays: Iterable[Array]) -> Ragged:
        """Return the arrays end to end."""
        pieces: list[Array] = [np.zeros(0, np.uint8)]
        lengths: list[Array] = [np.zeros(1, np.int64)]
        for chunk in batched(arrays):
            joined = np.concatenate(chunk)
            pieces.append(joined.astype(np.min_scalar_type(joined.max(initial=0))))
            lengths.append(np.asarray([len(array) for array in chunk]))
        return cls(np.concatenate(pieces), np.cumsum(np.concatenate(lengths)))

    def __len__(self) -> int:
        return len(self.ends) - 1

    @overload
    def __getitem__(self, which: int) -> Array: ...
    @overload
    def __getitem__(self, which: slice) -> list[Array]: ...
    def __getitem__(self, which: int | slice) -> Array | list[Array]:
        """Return an array, int64; for a slice, a list of them."""
        if isinstance(which, slice):
            return [self[n] for n in range(len(self))[which]]
        index = range(len(self))[which]
        return self.flat[self.ends[index] : self.ends[index + 1]].astype(np.int64)


@dataclass(frozen=True)
class EncodedTexts(Sequence[EncodedExample]):
    """Encoded examples in columns; all or none are pooled, and all or none have an answer.

    Attributes:
        ids: the ids of each example; this and the others as in `EncodedExample`.
        was_cut: (examples,) bool.
        is_pooled: the same for all examples.
        is_further: (examples,) bool.
        spans: flat.
        is_continued: (examples,) bool.
    """

    ids: Ragged
    segments: Ragged
    pooled_positions: Ragged
    was_cut: Array
    is_pooled: bool
    answer: Ragged | None
    is_further: Array
    spans: Ragged | None
    is_continued: Array

    @classmethod
    def of(cls, examples: Iterable[EncodedExample]) -> EncodedTexts:
        """Return the examples in columns."""
        columns: dict[str, list[Ragged]] = {name: [] for name in RAGGED}
        flags: dict[str, list[Array]] = {name: [np.zeros(0, bool)] for name in FLAGS}
        is_pooled = False
        for chunk in batched(examples):  # so that few examples are objects at once
            is_pooled = chunk[0].is_pooled
            for name, parts in columns.items():
                arrays = [getattr(example, name) for example in chunk]
                if arrays[0] is not None:
                    parts.append(Ragged.of(array.ravel() for array in arrays))
            for name, masks in flags.items():
                masks.append(np.asarray([getattr(example, name) for example in chunk], bool))
        is_needed = {"ids", "segments", "pooled_positions"}
        ragged = {n: _joined(c) if c or n in is_needed else None for n, c in columns.items()}
        joined: dict[str, Any] = {name: np.concatenate(parts) for name, parts in flags.items()}
        return cls(is_pooled=is_pooled, **joined | ragged)

    def __len__(self) -> int:
        return len(self.was_cut)

    @overload
    def __getitem__(self, which: int) -> EncodedExample: ...
    @overload
    def __getitem__(self, which: slice) -> list[EncodedExample]: ...
    def __getitem__(self, which: int | slice) -> EncodedExample | list[EncodedExample]:
        """Return an example; for a slice, a list of them."""
        if isinstance(which, slice):
            return [self[n] for n in range(len(self))[which]]
        index = range(len(self))[which]
        return EncodedExample(
            self.ids[index],
            self.segments[index],
            self.pooled_positions[index],
            bool(self.was_cut[index]),
            self.is_pooled,
            None if self.answer is None else self.answer[index],
            bool(self.is_further[index]),
            None if self.spans is None else self.spans[index].reshape(-1, 2),
            bool(self.is_continued[index]),
        )


def in_columns(encode: Callable[P, Iterator[EncodedExample]]) -> Callable[P, EncodedTexts]:
    """Let the `encode` of a task yield its inputs, which are then kept in columns."""

    @wraps(encode)
    def encoded(*args: P.args, **kwargs: P.kwargs) -> EncodedTexts:
        return EncodedTexts.of(encode(*args, **kwargs))

    return encoded


def first_inputs(encoded: Sequence[EncodedExample]) -> Array:
    """Return where the inputs of each example begin, and the last ones end, (examples + 1,)."""
    return np.append(np.flatnonzero(~_flags(encoded, "is_further")), len(encoded))


def first_windows(encoded: Sequence[EncodedExample]) -> Array:
    """Return where the windows of each text begin, and where the last ones end, (texts + 1,)."""
    return np.append(np.flatnonzero(~_flags(encoded, "is_continued")), len(encoded))


def cut_count(encoded: Sequence[EncodedExample]) -> int:
    """Return how many examples were cut to the model's length, in one of their inputs or more."""
    return _examples_with(encoded, "was_cut")


def windowed_count(encoded: Sequence[EncodedExample]) -> int:
    """Return how many examples have a text that is read in several windows, whole."""
    return _examples_with(encoded, "is_continued")


def _examples_with(encoded: Sequence[EncodedExample], flag: str) -> int:
    """Return how many examples have an input with a flag."""
    numbers = np.cumsum(~_flags(encoded, "is_further"))
    return len(np.unique(numbers[_flags(encoded, flag)]))


def _flags(encoded: Sequence[EncodedExample], name: str) -> Array:
    if isinstance(encoded, EncodedTexts):
        return np.asarray(getattr(encoded, name))
    return np.asarray([getattr(one, name) for one in encoded], bool)


def cut_warning(cut: int, examples: int, length: int, limit: int | None = None) -> str | None:
    """Return a warning if many examples were cut; None if hardly any was.

    Args:
        length: the most tokens of an example.
        limit: the most that the model reads; None if it is not known, or has none.
    """
    if cut <= MOST_CUT * examples:
        return None
    remedy = "tune with a larger --max-length to read more"
    if limit is not None:
        remedy = f"--max-length {limit} reads up to {limit:,}, and takes longer"
        if limit <= length:
            remedy = "--max-length cannot be larger, since the model has no more positions"
    return (
        f"warning: {cut / examples:.0%} of the examples are cut to {length:,} tokens, and what "
        f"follows is not read; {remedy}"
    )


def output_counts(encoded: Sequence[EncodedExample]) -> Array:
    """Return how many outputs each input has, (inputs,) int64: 0 for a text's further windows."""
    return np.where(_flags(encoded, "is_continued"), 0, state_counts(encoded))


def state_counts(encoded: Sequence[EncodedExample]) -> Array:
    """Return how many states of each input the head reads, (inputs,) int64."""
    counts = [
        1 if one.is_pooled else len(one.pooled_positions if one.answer is None else one.answer)
        for one in encoded
    ]
    return np.asarray(counts, np.int64)


def by_example(
    examples: Sequence[Labelled], encoded: Sequence[EncodedExample], outputs: Array
) -> list[ExampleOutputs]:
    """Return the examples, each with its inputs and their outputs.

    Args:
        outputs: the outputs of all inputs in their order, (outputs, labels), or the text that is
            written for each, (inputs,).
    """
    begins = first_inputs(encoded)
    are_texts = outputs.dtype == object  # written, one for each input
    counts = np.ones(len(encoded), np.int64) if are_texts else output_counts(encoded)
    edges = np.concatenate([[0], np.cumsum(counts)])[begins]
    return [
        ExampleOutputs(
            example, encoded[begins[n] : begins[n + 1]], outputs[edges[n] : edges[n + 1]]
        )
        for n, example in enumerate(examples)
    ]


def _joined(parts: Sequence[Ragged]) -> Ragged:
    """Return all arrays of several sequences, one after another."""
    lengths = [np.zeros(1, np.int64), *(np.diff(part.ends) for part in parts)]
    flat = np.concatenate([np.zeros(0, np.uint8), *(part.flat for part in parts)])
    return Ragged(flat, np.cumsum(np.concatenate(lengths)))
