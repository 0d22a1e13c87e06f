"""The input template of a model: special tokens, segments, cuts, and the positions that are pooled.

The layout of pretraining decides, by its `summary`; word vectors, whose last state stands for one
token, have `text`. `bos` and `eos` are the packing's special tokens.

    text       bos a eos                pooled: the mean of all; bos, if pairs trained it
    extract    bos a extract            pooled: extract, which has seen all
    last       bos a eos                pooled: the last token
    start      bos a eos -> start       pooled: the start token, which sees the source

A pair is `bos a eos b eos`, with segments 0 and 1 if the model has them, and [SEP] in the middle if
there is no `eos`. In a decoder it is `bos a delimiter b extract` (Radford et al. 2018, section
3.3): [CLS] extracts, [SEP] delimits, and <s> is the bos of a packing without one. A model that has
none of these and no end of text (GPT-1 as published) gets them as new tokens.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from foreword.errors import UserError
from foreword.nn.model import neural_settings
from foreword.runs.recipe import Recipe
from foreword.text import special
from foreword.tuning.windows import overlapping
from foreword.types import Array, Vocab

Pooling = Literal["first", "mean", "max", "last"]
REDUCED = ("mean", "max")  # poolings of all of a text's states, not of one


@dataclass(frozen=True)
class InputTemplate:
    """The special tokens around a text or a pair, and the states that stand for the whole.

    Attributes:
        prefix: ids put before the text, at most one.
        suffix: ids put after the text, at most one.
        length: the most tokens an input may have, special ones included.
        is_causal: a token sees only those before it.
        has_segments: the model tells the texts of a pair apart, by segment embeddings or by terms
            of its scores.
        separator: ids put between the texts of a pair, at most one.
        pooling: the default pooling: the first token's state, the mean of all, or the last
            token's.
        start: the decoder's first token in an encoder-decoder, else None.
        fresh: special tokens of the template that pretraining never used; their embeddings are
            initialised again when the whole model is fine-tuned.
        shares_rows: the model can keep several examples in one row apart.
        joins_answer: a written answer stands in the row of its text, where both see each other.
    """

    prefix: tuple[int, ...]
    suffix: tuple[int, ...]
    length: int
    is_causal: bool
    has_segments: bool
    separator: tuple[int, ...] = ()
    pooling: Pooling = "mean"
    start: int | None = None
    fresh: tuple[int, ...] = ()
    shares_rows: bool = True
    joins_answer: bool = False

    @property
    def room(self) -> int:
        """The number of tokens left for the texts of a pair."""
        return self.length - len(self.prefix) - len(self.separator) - len(self.suffix)

    def apply(self, first: Sequence[int], second: Sequence[int] | None = None) -> TemplatedText:
        """Return a text or a pair with special tokens, cut to the length (a pair longest first).

        Raises:
            UserError: nothing is left, neither text nor special token.
        """
        if second is None:
            n = min(len(first), self.length - len(self.prefix) - len(self.suffix))
            left, right = [*self.prefix, *first[:n], *self.suffix], []
            was_cut = n < len(first)
        else:
            n, m = cut_pair(len(first), len(second), self.room)
            left = [*self.prefix, *first[:n], *self.separator]
            right = [*second[:m], *self.suffix]
            was_cut = n + m < len(first) + len(second)
        ids = left + right
        if not ids:
            raise UserError("a text has no tokens, and this model adds no special tokens to it")
        segments = np.repeat(np.arange(2), [len(left), len(right)])
        return TemplatedText(np.asarray(ids, np.int64), segments, was_cut)

    def windows(
        self, first: Sequence[int], second: Sequence[int] | None, *, is_cut: bool
    ) -> Iterator[TemplatedText]:
        """Yield a text or a pair with special tokens, in windows of its longer text if it is long.

        The shorter text of a pair is in each of them, cut to half of their room.

        Args:
            is_cut: yield the beginning alone (`apply`).
        """
        if is_cut:
            yield self.apply(first, second)
            return
        ends = len(self.prefix) + len(self.suffix)
        room = self.length - ends if second is None else self.room
        if second is None:
            for part in overlapping(first, room):
                yield self.apply(part)
        elif len(first) + len(second) <= room:
            yield self.apply(first, second)
        else:
            is_first, half = len(first) > len(second), room // 2
            longer, shorter = (first, second) if is_first else (second, first)
            kept = shorter[:half]
            for part in overlapping(longer, room - len(kept)):
                inputs = self.apply(part, kept) if is_first else self.apply(kept, part)
                yield replace(inputs, was_cut=len(kept) < len(shorter))

    def pooled_positions(self, text: TemplatedText, pooling: Pooling | None = None) -> Array:
        """Return the positions whose states stand for a text, (pooled,) int64.

        Args:
            pooling: the task's; the template's if None. `mean` and `max` are of all states, those
                of special tokens too.

        Raises:
            UserError: this model has no such state.
        """
        pooling = pooling or self.pooling
        if self.start is not None:
            if pooling != "first":
                raise UserError(
                    f"task.pooling: '{pooling}' is for models of one stack; an encoder-decoder "
                    "requires 'first', the decoder's first token"
                )
            return np.zeros(1, np.int64)
        if self.is_causal and pooling == "first":
            raise UserError(
                "task.pooling: the 'first' token of a decoder has seen no other; use 'last', "
                "'mean' or 'max'"
            )
        if pooling in REDUCED:
            return np.arange(len(text.ids))
        return np.asarray([0 if pooling == "first" else len(text.ids) - 1])


@dataclass(frozen=True)
class TemplatedText:
    """A text or a pair with its special tokens.

    Attributes:
        ids: (length,) int64.
        segments: (length,) int64.
        was_cut: whether it was cut to the template's length.
    """

    ids: Array
    segments: Array
    was_cut: bool


def cut_pair(n: int, m: int, room: int) -> tuple[int, int]:
    """Return the lengths of a pair after cutting the longer text token by token until both fit.

    If both are cut and `room` is odd, the longer text keeps one more token, the second on a tie, as
    with `truncation="longest_first"` in `transformers`.
    """
    if n + m <= room:
        return n, m
    shorter = min(n, m, room // 2)
    return (room - shorter, shorter) if n > m else (shorter, room - shorter)


def missing_special_tokens(recipe: Recipe, vocab: Vocab) -> tuple[str, ...]:
    """Return the special tokens to add, for the boundary between the texts of a pair and their end.

    If pretraining ended its texts with a token, that one is used and none is added.
    """
    bos, eos = _boundary_tokens(recipe, vocab)
    required: tuple[str, ...] = () if eos else (special.SEP,)
    if required and _summary(recipe) == "extract":
        required = (*required, special.CLS, *(() if bos else (special.BOS,)))
    return tuple(name for name in required if name not in vocab.special)


def template_of(recipe: Recipe, vocab: Vocab, max_length: int | None) -> InputTemplate:
    """Return the input template of a model that was pretrained by `recipe`.

    Args:
        max_length: the most tokens of an input; the length of pretraining's rows if None.

    Raises:
        UserError: the length exceeds the model's positions, or leaves no room for text.
    """
    limit = recipe.model.limit
    if max_length is not None and limit is not None and max_length > limit:
        raise UserError(f"--max-length {max_length}: the model has {limit} positions")
    # Special tokens and pooling, by the layout's summary (the table above).
    bos, eos = _boundary_tokens(recipe, vocab)
    separator, fresh = eos or _ids(vocab, special.SEP), frozenset[int]()
    pooling: Pooling = "mean"
    summary = _summary(recipe)
    if summary == "start" or (bos and recipe.packing.labels_pairs):
        pooling = "first"
    elif summary == "last":
        pooling = "last"
    elif summary == "extract":
        seen = {*bos, *eos}
        bos = bos or _ids(vocab, special.BOS)
        separator, eos = _ids(vocab, special.SEP) or eos, _ids(vocab, special.CLS) or eos
        pooling, fresh = "last", frozenset({*bos, *separator, *eos} - seen)
    # What the architecture sets: its length, segments and decoder.
    start = recipe.layout.start
    length = max_length or min(recipe.packing.length, limit or recipe.packing.length)
    template = InputTemplate(
        prefix=bos,
        suffix=eos,
        length=length,
        is_causal=recipe.layout.is_causal,
        has_segments=neural_settings(recipe.model).has_segments,
        separator=separator,
        pooling=pooling,
        start=vocab.id(start) if start else None,
        fresh=tuple(sorted(fresh)),
        shares_rows=recipe.model.supports_document_masking,
        joins_answer=recipe.objective.predicts.any_order,
    )
    if template.room < 2:
        raise UserError(f"--max-length {length}: leaves no room for text between special tokens")
    return template


def _summary(recipe: Recipe) -> str:
    """Return the layout's summary, or that of a model whose states each stand for one token."""
    return recipe.layout.summary if recipe.model.has_layers else "text"


def _boundary_tokens(recipe: Recipe, vocab: Vocab) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the tokens put before and after a text in pretraining, at most one each."""
    bos, eos = recipe.bos_and_eos
    return _ids(vocab, bos), _ids(vocab, eos or recipe.objective.end)


def _ids(vocab: Vocab, name: str) -> tuple[int, ...]:
    """Return the id of the special token `name`, if the vocabulary has it."""
    return (vocab.special[name],) if name in vocab.special else ()
