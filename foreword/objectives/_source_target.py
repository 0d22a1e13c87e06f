"""The base of objectives with a source and a separate target."""

from __future__ import annotations

from abc import abstractmethod

import numpy as np
from torch import nn

from foreword.data.rng import RowRng
from foreword.data.rows import positions_within
from foreword.nn.model import Backbone, Model
from foreword.objectives._contract import Prediction, SourceForm, Term
from foreword.types import Array, Batch, Example, Hidden, Loss, Rows, Tokens, Vocab


class SourceTarget(Term):
    """An objective that reads a source and predicts a target, token by token."""

    @property
    def predicts(self) -> Prediction:
        return Prediction("target")

    @property
    def source_forms(self) -> tuple[SourceForm, ...]:
        return (SourceForm(),)

    @abstractmethod
    def corrupt(self, rows: Rows, rng: RowRng, vocab: Vocab) -> Example:
        """Return the example of these rows: a source and a target for each document."""

    def heads(self, backbone: Backbone, vocab: Vocab) -> nn.ModuleDict:
        """Return the model's output layer."""
        return nn.ModuleDict({"token": backbone.build_token_head()})

    def loss_from_states(self, model: Model, batch: Batch, hidden: Hidden) -> Loss:
        """Return the cross-entropy of the target, in nats."""
        return model.token_head.loss(hidden, batch)


def example_of(source: Tokens, target: Tokens) -> Example:
    """Return the example in which every target token counts."""
    return Example(source, target, (target.documents >= 0).astype(np.float32))


def first_and_last(documents: Array) -> tuple[Array, Array]:
    """Return which tokens begin and which end their document's piece; (batch, length) bool."""
    changes = documents[:, 1:] != documents[:, :-1]
    edge = np.ones((len(documents), 1), dtype=bool)
    is_token = documents >= 0
    is_first = np.concatenate([edge, changes], axis=1) & is_token
    return is_first, np.concatenate([changes, edge], axis=1) & is_token


def piece_starts(is_first: Array) -> Array:
    """Return the index at which each token's piece begins, (batch, length) int64."""
    column = np.arange(is_first.shape[1])
    return np.maximum.accumulate(np.where(is_first, column, 0), axis=1)


def compact(
    documents: Array, *components: tuple[Array | int, Array], end: int | None = None
) -> Tokens:
    """Gather the selected ids of each row, left-aligned, with padding (documents -1) on the right.

    The rows' own padding is dropped; rows with equal numbers of selected ids get no padding.

    Args:
        documents: the document of each position, (batch, length) int64.
        components: pairs of ids and which to select, (batch, length) each; a position contributes
            its id of each component in turn.
        end: a token to add after each document's last position, or None.
    """
    # The end token is one more component, selected at each document's last position.
    if end is not None:
        components = (*components, (end, first_and_last(documents)[1]))
    shape = (*documents.shape, len(components))
    ids = np.stack([np.broadcast_to(ids, documents.shape) for ids, _ in components], axis=2)
    is_token = documents[:, :, None] >= 0
    is_selected = np.stack([selected for _, selected in components], axis=2) & is_token
    counts = is_selected.sum((1, 2))
    # In row-major order the selected ids are numbered from 0 in each row.
    row, position, _ = np.nonzero(is_selected)
    column = np.arange(len(row)) - (np.cumsum(counts) - counts)[row]
    out = np.zeros((len(documents), int(counts.max())), dtype=np.int64)
    out_documents = np.full_like(out, -1)
    out[row, column] = ids.reshape(shape)[is_selected]
    out_documents[row, column] = documents[row, position]
    return Tokens(out, out_documents, positions_within(out_documents))
