"""One causal sequence: the source, where there is one, and then the target."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from foreword.data.rows import positions_within
from foreword.errors import UserError
from foreword.layouts._contract import Layout, Summary
from foreword.layouts.encoder import within
from foreword.nn.masks import CausalMask
from foreword.types import Array, Batch, Example, Mask, Tokens, Vocab


@dataclass(frozen=True)
class Decoder(Layout):
    """For causal language models, and for denoising with a decoder alone.

    source [7 50 4 51]  target [50 8 9 1]
    ids     [ 7 50  4 51 50  8  9  1]
    targets [ .  .  . 50  8  9  1  .]      . is not scored
    """

    is_causal: ClassVar[bool] = True
    summary: ClassVar[Summary] = "extract"

    def arrange(self, example: Example, vocab: Vocab) -> Batch:
        """The batch: ids, and as targets the ids one place further on."""
        joined, weights, _ = join(example)
        mask = CausalMask() & within(joined.documents, joined.documents)
        return next_token(joined, weights, mask, example.next_token)


def join(example: Example) -> tuple[Tokens, Array, Array]:
    """Source and target as one sequence, document by document: each source before its target.

    Returns:
        The tokens; the weight of each as a target, (batch, length); whether each is of the
        source, (batch, length) bool.

    Raises:
        UserError: the objective predicts in place.
    """
    if example.is_aligned:
        raise UserError(
            "layout.kind: this objective predicts in place; use 'encoder', not a decoder"
        )
    target, source = example.target, example.source
    if source is None:
        return target, example.weights, np.zeros(target.ids.shape, dtype=bool)
    documents = np.concatenate([source.documents, target.documents], axis=1)
    # Stable, so that the source stays before the target of its document; padding comes last.
    order = np.argsort(np.where(documents < 0, len(documents[0]), documents), 1, kind="stable")
    order = order[:, : (documents >= 0).sum(1).max()]  # what no row fills is dropped

    def in_order(first: Array, second: Array) -> Array:
        return np.take_along_axis(np.concatenate([first, second], axis=1), order, axis=1)

    documents = in_order(source.documents, target.documents)
    ids = in_order(source.ids, target.ids)
    weights = in_order(np.zeros(source.ids.shape, np.float32), example.weights)
    is_source = in_order(np.ones(source.ids.shape, bool), np.zeros(target.ids.shape, bool))
    return Tokens(ids, documents, positions_within(documents)), weights, is_source


def next_token(
    tokens: Tokens, weights: Array, mask: Mask, next_token: Array | None = None
) -> Batch:
    """Each place predicts the next place's token, where both are of one document.

    The last place predicts `next_token`, (batch,), where that is known and not -1.
    """
    targets = np.zeros_like(tokens.ids)
    targets[:, :-1] = tokens.ids[:, 1:]
    counts = np.zeros_like(weights)
    same = tokens.documents[:, 1:] == tokens.documents[:, :-1]
    counts[:, :-1] = weights[:, 1:] * same
    if next_token is not None:
        targets[:, -1] = np.maximum(next_token, 0)
        counts[:, -1] = weights[:, -1] * (next_token >= 0)
    return Batch(tokens.ids, tokens.positions, mask, targets, counts)
