"""One sequence predicted twice: from left to right and from right to left."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from foreword.data.rows import positions_within
from foreword.errors import UserError
from foreword.layouts._contract import Layout
from foreword.layouts.decoder import next_token
from foreword.layouts.encoder import document_mask
from foreword.types import Backward, Batch, Example, Tokens, Vocab


@dataclass(frozen=True)
class Bidirectional(Layout):
    """The layout of bidirectional language models with separate directions (ELMo).

    target [ 7  3  9 |  4  3]
    ids      [ 7  3  9 |  4  3]
    targets  [ 3  9  . |  3  .]      from itself and earlier tokens; . is not scored
    backward [ .  7  3 |  .  4]      from itself and later tokens

    The mask admits all of a document; the model itself keeps each direction from its targets.

    Reference: Peters et al. 2018, section 3.1.
    """

    predicts_both_directions: ClassVar[bool] = True

    def arrange(self, example: Example, vocab: Vocab) -> Batch:
        """Return the batch: ids, and as targets the next ids and the previous ones.

        Raises:
            UserError: the objective has a source, or predicts in place.
        """
        if example.source is not None:
            raise UserError(
                "layout.kind: 'bidirectional' requires an objective without a source "
                "(bidirectional)"
            )
        documents = example.target.documents
        # Padding is a separate document here: right-to-left reading restarts before it.
        tokens = replace(example.target, positions=positions_within(documents))
        mask = document_mask(documents, documents)
        batch = next_token(tokens, example.weights, mask, example)
        return batch.with_part(_previous_token(tokens, example))


def _previous_token(tokens: Tokens, example: Example) -> Backward:
    """Let each position predict the previous token of its document."""
    targets = np.zeros_like(tokens.ids)
    targets[:, 1:] = tokens.ids[:, :-1]
    weights = np.zeros_like(example.weights)
    same = tokens.documents[:, 1:] == tokens.documents[:, :-1]
    weights[:, 1:] = example.weights[:, :-1] * same
    return Backward(targets, weights)
