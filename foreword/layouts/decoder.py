"""One causal sequence: the source, if any, followed by the target."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from foreword.data.rows import positions_within
from foreword.errors import UserError
from foreword.layouts._contract import Layout, Summary
from foreword.layouts.encoder import document_mask, row_documents
from foreword.nn.masks import CausalMask
from foreword.types import (
    Array,
    Batch,
    Example,
    MaskedInputs,
    MaskFunction,
    NextToken,
    Tokens,
    Vocab,
)


@dataclass(frozen=True)
class Decoder(Layout):
    """The layout of causal language models, and of denoising with a decoder alone.

    source [7 50 4 51]  target [50 8 9 1]
    ids     [ 7 50  4 51 50  8  9  1]
    targets [ .  .  . 50  8  9  1  .]      . is not scored

    Also called: causal, left to right.
    """

    is_causal: ClassVar[bool] = True
    summary: ClassVar[Summary] = "extract"

    def arrange(self, example: Example, vocab: Vocab) -> Batch:
        """Return the batch: ids, and as targets the next ids."""
        joined, weights, _ = join(example)
        mask = CausalMask() & document_mask(joined.documents, joined.documents)
        return next_token(joined, weights, mask, example)


def join(example: Example) -> tuple[Tokens, Array, Array]:
    """Join source and target into one sequence: for each document its source, then its target.

    Returns:
        The tokens; each one's weight as a target, (batch, length); which are of the source,
        (batch, length) bool.

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
    # Sort by document, stably, so that each source stays before its target; padding comes last.
    documents = np.concatenate([source.documents, target.documents], axis=1)
    order = np.argsort(np.where(documents < 0, len(documents[0]), documents), 1, kind="stable")
    order = order[:, : (documents >= 0).sum(1).max()]  # drop columns of padding alone

    def in_order(first: Array, second: Array) -> Array:
        return np.take_along_axis(np.concatenate([first, second], axis=1), order, axis=1)

    documents = in_order(source.documents, target.documents)
    ids = in_order(source.ids, target.ids)
    weights = in_order(np.zeros(source.ids.shape, np.float32), example.weights)
    is_source = in_order(np.ones(source.ids.shape, bool), np.zeros(target.ids.shape, bool))
    return Tokens(ids, documents, positions_within(documents)), weights, is_source


def next_token(
    tokens: Tokens, weights: Array, mask: MaskFunction, example: Example | None = None
) -> Batch:
    """Let each position predict the next token of its document.

    The last position predicts the token after the row, where the example knows one (`NextToken`),
    with weight 1. The positions read the tokens themselves, or the example's `MaskedInputs`.
    """
    after_row = None if example is None else example.part(NextToken)
    read = None if example is None else example.part(MaskedInputs)
    ids = tokens.ids if read is None else read.ids
    targets = np.zeros_like(tokens.ids)
    targets[:, :-1] = tokens.ids[:, 1:]
    target_weights = np.zeros_like(weights)
    same = tokens.documents[:, 1:] == tokens.documents[:, :-1]
    target_weights[:, :-1] = weights[:, 1:] * same
    if after_row is not None:
        targets[:, -1] = np.maximum(after_row.ids, 0)
        target_weights[:, -1] = after_row.ids >= 0
    documents = row_documents(tokens.documents)
    return Batch(ids, tokens.positions, mask, targets, target_weights, documents=documents)
