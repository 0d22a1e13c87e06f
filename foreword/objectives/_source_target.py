"""What objectives with a source and a target of its own have in common."""

from __future__ import annotations

from abc import abstractmethod

import numpy as np
from torch import nn

from foreword.data.rng import RowRng
from foreword.data.rows import positions_within
from foreword.nn.model import Backbone, Model
from foreword.objectives._contract import Prediction, Term
from foreword.types import Array, Batch, Example, Hidden, Loss, Rows, Tokens, Vocab


class SourceTarget(Term):
    """Reads a source and writes a target, token by token."""

    @property
    def predicts(self) -> Prediction:
        """A text from a source."""
        return "target"

    @abstractmethod
    def corrupt(self, rows: Rows, rng: RowRng, vocab: Vocab) -> Example:
        """The example of these rows: a source and a target, document by document."""

    def heads(self, backbone: Backbone, vocab: Vocab) -> nn.ModuleDict:
        """The model's output layer."""
        return nn.ModuleDict({"token": backbone.build_token_head()})

    def loss_from_states(self, model: Model, batch: Batch, hidden: Hidden) -> Loss:
        """Cross-entropy of the target, in nats."""
        return model.token_head.loss(hidden, batch)


def example_of(source: Tokens, target: Tokens) -> Example:
    """The example in which all of the target counts."""
    return Example(source, target, (target.documents >= 0).astype(np.float32))


def first_and_last(documents: Array) -> tuple[Array, Array]:
    """Whether a token begins, and whether it ends, its document's piece; (batch, length) bool."""
    changes = documents[:, 1:] != documents[:, :-1]
    edge = np.ones((len(documents), 1), dtype=bool)
    is_there = documents >= 0
    is_first = np.concatenate([edge, changes], axis=1) & is_there
    return is_first, np.concatenate([changes, edge], axis=1) & is_there


def begins(is_first: Array) -> Array:
    """The place where each token's piece begins, (batch, length) int64."""
    column = np.arange(is_first.shape[1])
    return np.maximum.accumulate(np.where(is_first, column, 0), axis=1)


def compact(
    documents: Array, *components: tuple[Array | int, Array], end: int | None = None
) -> Tokens:
    """The wanted ids of each row moved together, padding (documents -1) behind.

    Padding of the row is dropped; where all rows want as many, nothing is padded.

    Args:
        documents: of each place, (batch, length) int64.
        components: ids and whether each is wanted, (batch, length); a place gives those of each
            part in turn.
        end: put after each document's last place, or None.
    """
    if end is not None:
        components = (*components, (end, first_and_last(documents)[1]))
    shape = (*documents.shape, len(components))
    ids = np.stack([np.broadcast_to(ids, documents.shape) for ids, _ in components], axis=2)
    is_there = documents[:, :, None] >= 0
    wanted = np.stack([wanted for _, wanted in components], axis=2) & is_there
    counts = wanted.sum((1, 2))
    row, place, _ = np.nonzero(wanted)
    column = np.arange(len(row)) - (np.cumsum(counts) - counts)[row]
    out = np.zeros((len(documents), int(counts.max())), dtype=np.int64)
    out_documents = np.full_like(out, -1)
    out[row, column] = ids.reshape(shape)[wanted]
    out_documents[row, column] = documents[row, place]
    return Tokens(out, out_documents, positions_within(out_documents))
