"""How texts are framed for a model: special tokens, segments, cuts, and the state that is read.

The layout of pretraining decides. `before` and `after` are the packing's special tokens.

    encoder          before a after              read: before (else the last token)
    decoder          before a after              read: the last token; causal
    prefix           before a after              read: the last token; all of it is prefix
    encoder_decoder  before a after -> start     read: the start token, which sees the source

A pair is `before a after b after`, with segments 0 and 1 where the model has them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from foreword import kinds
from foreword.errors import UserError
from foreword.train.recipe import Recipe
from foreword.types import Array, Vocab


@dataclass(frozen=True)
class Frame:
    """How texts are framed.

    Attributes:
        before: ids put before the text, at most one.
        after: ids put after each text, at most one.
        length: the most tokens an example may have, special ones included.
        reads_first: the first token's state is read, else the last one's.
        is_causal: a token sees only those before it.
        has_segments: the model tells the texts of a pair apart by segment embeddings.
        start: the decoder's first token in an encoder-decoder, else None.
    """

    before: tuple[int, ...]
    after: tuple[int, ...]
    length: int
    reads_first: bool
    is_causal: bool
    has_segments: bool
    start: int | None = None

    @property
    def room(self) -> int:
        """Tokens left for the texts of a pair."""
        return self.length - len(self.before) - 2 * len(self.after)

    def wrap(self, first: Sequence[int], second: Sequence[int] | None = None) -> Framed:
        """One text or a pair with its special tokens, cut to the length (a pair longest first).

        Raises:
            UserError: nothing is left, neither text nor special token.
        """
        if second is None:
            n, m = min(len(first), self.length - len(self.before) - len(self.after)), 0
            was_cut = n < len(first)
            ids = [*self.before, *first[:n], *self.after]
            segments = [0] * len(ids)
        else:
            n, m = cut_pair(len(first), len(second), self.room)
            was_cut = n + m < len(first) + len(second)
            left = [*self.before, *first[:n], *self.after]
            right = [*second[:m], *self.after]
            ids, segments = left + right, [0] * len(left) + [1] * len(right)
        if not ids:
            raise UserError("a text has no tokens, and this model frames it by none")
        return Framed(np.asarray(ids, np.int64), np.asarray(segments, np.int64), was_cut)

    def spot(self, length: int) -> int:
        """The position that is read of an example of `length` tokens."""
        return 0 if self.reads_first or self.start is not None else length - 1


@dataclass(frozen=True)
class Framed:
    """Ids and segments, each (length,) int64, and whether the text was cut."""

    ids: Array
    segments: Array
    was_cut: bool


def cut_pair(n: int, m: int, room: int) -> tuple[int, int]:
    """Lengths of a pair after the longer of the two has lost its last token until both fit."""
    if n + m <= room:
        return n, m
    half = room // 2
    if m <= half:
        return room - m, m
    return (n, room - n) if n <= room - half else (room - half, half)


def frame_of(recipe: Recipe, vocab: Vocab, max_length: int | None) -> Frame:
    """The frame for a model that was pretrained by `recipe`.

    Args:
        recipe: of the run.
        vocab: of its tokenizer.
        max_length: the most tokens of an example; as long as pretraining's rows if None.

    Raises:
        UserError: the length is impossible, or the layout is none that can be fine-tuned.
    """
    layout = kinds.name_of(recipe.layout)
    if layout not in ("encoder", "decoder", "prefix", "encoder_decoder"):
        raise UserError(f"layout '{layout}': fine-tuning does not know where to read such a model")
    packing: Any = recipe.packing
    limit = recipe.model.limit
    if max_length is not None and limit is not None and max_length > limit:
        raise UserError(f"--max-length {max_length}: the model has {limit} positions")
    before = getattr(packing, "before", "")
    after = getattr(packing, "after", "") or getattr(recipe.objective, "end", "")
    layout_start = getattr(recipe.layout, "start", "")
    length = max_length or min(packing.length, limit or packing.length)
    frame = Frame(
        before=(vocab.id(before),) if before else (),
        after=(vocab.id(after),) if after else (),
        length=length,
        reads_first=layout == "encoder" and bool(before),
        is_causal=layout == "decoder",
        has_segments=recipe.model.segments > 1,
        start=vocab.id(layout_start) if layout == "encoder_decoder" else None,
    )
    if frame.room < 2:
        raise UserError(f"--max-length {length}: leaves no room for text between special tokens")
    return frame
