"""Gradients of single predictions with respect to states, and how far back these lie."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from foreword.errors import UserError
from foreword.nn.model import Backbone, Model
from foreword.types import Array, Batch, Hidden, Queries


@dataclass(frozen=True)
class GradientNorms:
    """Norms of gradients, one for each prediction and state that it depends on.

    Attributes:
        distance: from the prediction back to the state, in places; (pairs,) int64.
        norm: of the gradient of the prediction's nats, (pairs,) float64.
        ahead: states behind the prediction that it depends on; they are left out.
        broken: norms that are not finite; they are left out.
    """

    distance: Array
    norm: Array
    ahead: int
    broken: int


def gradient_norms(
    model: Model, batch: Batch, layer: int, positions: int, reader: Backbone | None = None
) -> GradientNorms:
    """Measures up to `positions` predictions of each row.

    Args:
        model: in evaluation mode.
        batch: tensors on the model's device, with targets.
        layer: whose states; 0 is what enters the first layer.
        positions: predictions of a row, spread evenly over the last half of them.
        reader: whose states the head reads; the model's backbone by default.

    Raises:
        UserError: it has no such layer, or shows none.
    """
    hidden, states = states_of_layer(reader or model.backbone, batch, layer)
    found, distances, ahead = [], [], 0
    for column in _choose_predictions(batch.weights.cpu().numpy() > 0, positions).T:
        which = np.flatnonzero(column >= 0)
        weights = torch.zeros_like(batch.weights)
        weights[which, column[which]] = 1.0
        total = model.token_head.loss(hidden, replace(batch, weights=weights)).total
        (gradient,) = torch.autograd.grad(total, [states], retain_graph=True, allow_unused=True)
        size = torch.zeros(states.shape[:2]) if gradient is None else gradient.norm(dim=-1)
        rows = torch.from_numpy(which).to(states.device)
        back, sees = _distances(batch, rows, torch.from_numpy(column[which]).to(states.device))
        kept = (sees & (back >= 0)).cpu().numpy()
        sizes = size.double().cpu().numpy()[which]
        ahead += int((sizes[(sees & (back < 0)).cpu().numpy()] > 0).sum())
        distances.append(back.cpu().numpy()[kept])
        found.append(sizes[kept])
    norm, distance = np.concatenate(found), np.concatenate(distances)
    is_finite = np.isfinite(norm)
    return GradientNorms(distance[is_finite], norm[is_finite], ahead, int((~is_finite).sum()))


def states_of_layer(reader: Backbone, batch: Batch, layer: int) -> tuple[Hidden, Tensor]:
    """What the model makes of a batch, and the states of a layer, to be asked for gradients.

    Raises:
        UserError: it has no such layer, or shows none.
    """
    hidden = reader.with_layer_gradients(batch)
    assert hidden.layers is not None
    if layer >= len(hidden.layers):
        last = len(hidden.layers) - 1
        shown = f"layers 0 to {last}" if last else "layer 0 alone"
        raise UserError(f"layer {layer} is asked, and it shows {shown}")
    return hidden, hidden.layers[layer]


def _choose_predictions(is_scored: Array, places: int) -> Array:
    """Which predictions of each row are measured, (rows, at most places) int64; -1 for none."""
    chosen = np.full((len(is_scored), places), -1, dtype=np.int64)
    for n, row in enumerate(is_scored):
        scored = np.flatnonzero(row)
        last = scored[len(scored) // 2 :][::-1]
        count = min(places, len(last))
        chosen[n, :count] = last[np.linspace(0, len(last) - 1, count).round().astype(np.int64)]
    return chosen[:, (chosen >= 0).any(0)]


def _distances(batch: Batch, rows: Tensor, column: Tensor) -> tuple[Tensor, Tensor]:
    """How far back from predictions the states stand, and which of them these may look at.

    Args:
        batch: as the model reads it.
        rows: of each prediction, (predictions,) int64.
        column: of each prediction in the batch's targets, (predictions,) int64.

    Returns:
        (predictions, states) int64, and the same in bool.
    """
    queries = batch.part(Queries)
    at = column if queries is None else queries.at[rows, column]
    if batch.source is None:
        there = torch.arange(batch.ids.shape[1], device=at.device)
        return at[:, None] - there, _visible(batch.mask, rows, at, batch.ids.shape[1])
    positions = batch.source.positions[rows]
    sees = _visible(batch.cross_mask, rows, at, positions.shape[1])
    length = sees.sum(1, keepdim=True)  # of the source: its own document's
    return batch.positions[rows, at][:, None] + length - positions, sees


def _visible(mask: Any, rows: Tensor, at: Tensor, keys: int) -> Tensor:
    """What the mask lets each prediction look at, (predictions, keys) bool."""
    j = torch.arange(keys, device=at.device)[None]
    allowed: Tensor = mask.allows(rows[:, None], 0, at[:, None], j)
    return allowed.expand(len(at), keys)
