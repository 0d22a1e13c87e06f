"""One sequence that is predicted twice: from left to right, and from right to left."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from foreword.data.rows import positions_within
from foreword.errors import UserError
from foreword.layouts._contract import Layout
from foreword.layouts.decoder import next_token
from foreword.layouts.encoder import within
from foreword.types import Backward, Batch, Example, Tokens, Vocab


@dataclass(frozen=True)
class Bidirectional(Layout):
    """For language models of both directions, in a model that keeps them apart (ELMo).

    target [ 7  3  9 |  4  3]
    ids      [ 7  3  9 |  4  3]
    targets  [ 3  9  . |  3  .]      from itself and those before; . is not scored
    backward [ .  7  3 |  .  4]      from itself and those behind

    A place sees all of its document; it is the model that lets no direction see its targets.

    Reference: Peters et al. 2018, section 3.1.
    """

    predicts_both_directions: ClassVar[bool] = True

    def arrange(self, example: Example, vocab: Vocab) -> Batch:
        """The batch: ids, as targets the ids one place further on, and one place back.

        Raises:
            UserError: the objective has a source, or predicts in place.
        """
        if example.source is not None:
            raise UserError(
                "layout.kind: 'bidirectional' needs an objective whose text is all there is "
                "(bidirectional)"
            )
        documents = example.target.documents
        # Padding is a document of its own here: who reads from the right begins anew behind it.
        read = replace(example.target, positions=positions_within(documents))
        batch = next_token(read, example.weights, within(documents, documents), example.next_token)
        return replace(batch, backward=_previous_token(read, example))


def _previous_token(tokens: Tokens, example: Example) -> Backward:
    """Each place predicts the token before, where both are of one document."""
    targets = np.zeros_like(tokens.ids)
    targets[:, 1:] = tokens.ids[:, :-1]
    weights = np.zeros_like(example.weights)
    same = tokens.documents[:, 1:] == tokens.documents[:, :-1]
    weights[:, 1:] = example.weights[:, :-1] * same
    return Backward(targets, weights)
