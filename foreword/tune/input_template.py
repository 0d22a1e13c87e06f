"""How texts are framed for a model: special tokens, segments, cuts, and the states that are read.

The layout of pretraining decides by its `summary`. `before` and `after` are the packing's special
tokens.

    text       before a after                read: the mean of a; before, if pairs trained it
    extract    before a extract              read: extract, which has seen all
    last       before a after                read: the last token
    start      before a after -> start       read: the start token, which sees the source

A pair is `before a after b after`, with segments 0 and 1 where the model has them, and [SEP]
between where `after` is nothing. In a decoder it is `before a delimiter b extract` (Radford et al.
2018, section 3.3): [CLS] extracts, [SEP] delimits, and <s> stands before where the packing puts
nothing. A model that has none of these and no end of text (GPT-1 as published) is given them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from foreword.errors import UserError
from foreword.runs.recipe import Recipe
from foreword.text import special
from foreword.types import Array, Vocab

Pooling = Literal["first", "mean", "last"]


@dataclass(frozen=True)
class InputTemplate:
    """How texts are framed.

    Attributes:
        prefix: ids put before the text, at most one.
        suffix: ids put after the text, at most one.
        length: the most tokens an example may have, special ones included.
        is_causal: a token sees only those before it.
        has_segments: the model tells the texts of a pair apart, by segment embeddings or by terms
            of its scores.
        between: ids put between the texts of a pair, at most one.
        pooling: what stands for the whole, where the task does not say: the first token's state,
            the mean of the text's, the last token's.
        start: the decoder's first token in an encoder-decoder, else None.
        fresh: special tokens of the frame that pretraining never showed; fine-tuning of the whole
            model draws their embeddings anew.
        shares_rows: the model can keep several examples in one row apart.
    """

    prefix: tuple[int, ...]
    suffix: tuple[int, ...]
    length: int
    is_causal: bool
    has_segments: bool
    between: tuple[int, ...] = ()
    pooling: Pooling = "mean"
    start: int | None = None
    fresh: tuple[int, ...] = ()
    shares_rows: bool = True

    @property
    def room(self) -> int:
        """Tokens left for the texts of a pair."""
        return self.length - len(self.prefix) - len(self.between) - len(self.suffix)

    def wrap(self, first: Sequence[int], second: Sequence[int] | None = None) -> Framed:
        """One text or a pair with its special tokens, cut to the length (a pair longest first).

        Raises:
            UserError: nothing is left, neither text nor special token.
        """
        if second is None:
            n = min(len(first), self.length - len(self.prefix) - len(self.suffix))
            left, right = [*self.prefix, *first[:n], *self.suffix], []
            was_cut = n < len(first)
        else:
            n, m = cut_pair(len(first), len(second), self.room)
            left = [*self.prefix, *first[:n], *self.between]
            right = [*second[:m], *self.suffix]
            was_cut = n + m < len(first) + len(second)
        ids = left + right
        if not ids:
            raise UserError("a text has no tokens, and this model frames it by none")
        is_text = np.zeros(len(ids), bool)
        is_text[len(self.prefix) : len(self.prefix) + n] = True
        if second is not None:
            is_text[len(left) : len(left) + m] = True
        segments = np.repeat(np.arange(2), [len(left), len(right)])
        return Framed(np.asarray(ids, np.int64), segments, is_text, was_cut)

    def pooled_positions(self, framed: Framed, pooling: Pooling | None = None) -> Array:
        """The positions whose states stand for a framed text, (spots,) int64.

        Args:
            framed: the text.
            pooling: as the task says; the frame's if None. With `mean`, a text without tokens is
                read at its special ones.

        Raises:
            UserError: this model has no such state.
        """
        pooling = pooling or self.pooling
        if self.start is not None:
            if pooling != "first":
                raise UserError(
                    f"task.pooling: '{pooling}' is for models of one stack; an encoder-decoder is "
                    "read at the decoder's 'first' token"
                )
            return np.zeros(1, np.int64)
        if self.is_causal and pooling == "first":
            raise UserError(
                "task.pooling: the 'first' token of a decoder has seen no other; use 'last' or "
                "'mean'"
            )
        if pooling == "mean":
            where = np.flatnonzero(framed.is_text)
            return where if len(where) else np.arange(len(framed.ids))
        return np.asarray([0 if pooling == "first" else len(framed.ids) - 1])


@dataclass(frozen=True)
class Framed:
    """A text or a pair with its special tokens.

    Attributes:
        ids: (length,) int64.
        segments: (length,) int64.
        is_text: false for special tokens, (length,) bool.
        was_cut: whether it was too long.
    """

    ids: Array
    segments: Array
    is_text: Array
    was_cut: bool


def cut_pair(n: int, m: int, room: int) -> tuple[int, int]:
    """Lengths of a pair after the longer of the two has lost its last token until both fit."""
    if n + m <= room:
        return n, m
    half = room // 2
    if m <= half:
        return room - m, m
    return (n, room - n) if n <= room - half else (room - half, half)


def missing_special_tokens(recipe: Recipe, vocab: Vocab) -> tuple[str, ...]:
    """Special tokens to add, so that a pair's texts do not run together nor end at any word.

    Where pretraining ended its texts by a token, that one serves.
    """
    before, after = _shown(recipe, vocab)
    wanted: tuple[str, ...] = () if after else (special.SEP,)
    if wanted and recipe.layout.summary == "extract":
        wanted = (*wanted, special.CLS, *(() if before else (special.BOS,)))
    return tuple(name for name in wanted if name not in vocab.special)


def template_of(recipe: Recipe, vocab: Vocab, max_length: int | None) -> InputTemplate:
    """The frame for a model that was pretrained by `recipe`.

    Args:
        recipe: of the run.
        vocab: of its tokenizer.
        max_length: the most tokens of an example; as long as pretraining's rows if None.

    Raises:
        UserError: the length is impossible.
    """
    limit = recipe.model.limit
    if max_length is not None and limit is not None and max_length > limit:
        raise UserError(f"--max-length {max_length}: the model has {limit} positions")
    before, after = _shown(recipe, vocab)
    between, fresh = after or _ids(vocab, special.SEP), frozenset[int]()
    pooling: Pooling = "mean"
    summary = recipe.layout.summary
    if summary == "start" or (before and recipe.packing.labels_pairs):
        pooling = "first"
    elif summary == "last":
        pooling = "last"
    elif summary == "extract":
        seen = {*before, *after}
        before = before or _ids(vocab, special.BOS)
        between, after = _ids(vocab, special.SEP) or after, _ids(vocab, special.CLS) or after
        pooling, fresh = "last", frozenset({*before, *between, *after} - seen)
    start, position = recipe.layout.start, getattr(recipe.model, "position", None)
    length = max_length or min(recipe.packing.length, limit or recipe.packing.length)
    template = InputTemplate(
        prefix=before,
        suffix=after,
        length=length,
        is_causal=recipe.layout.is_causal,
        has_segments=recipe.model.segments > 1 or (position is not None and position.segments),
        between=between,
        pooling=pooling,
        start=vocab.id(start) if start else None,
        fresh=tuple(sorted(fresh)),
        shares_rows=recipe.model.supports_document_masking,
    )
    if template.room < 2:
        raise UserError(f"--max-length {length}: leaves no room for text between special tokens")
    return template


def _shown(recipe: Recipe, vocab: Vocab) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """What stood before and after a text in pretraining, at most one token each."""
    before, after = recipe.wrapping
    return _ids(vocab, before), _ids(vocab, after or recipe.objective.end)


def _ids(vocab: Vocab, name: str) -> tuple[int, ...]:
    """The special token `name`, where there is such a one."""
    return (vocab.special[name],) if name in vocab.special else ()
