"""Gradients of single predictions with respect to states, and the distances between them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from foreword.errors import UserError
from foreword.nn.model import Model, NeuralBackbone, neural
from foreword.types import Array, Batch, Hidden, Queries


@dataclass(frozen=True)
class GradientNorms:
    """Gradient norms, one for each prediction and state that it depends on.

    Attributes:
        distance: distance from the prediction back to the state in positions, (pairs,) int64.
        norm: norm of the gradient of the prediction's loss in nats, (pairs,) float64.
        ahead: number of states after the prediction that it depends on; they are left out.
        broken: number of norms that are not finite; they are left out.
    """

    distance: Array
    norm: Array
    ahead: int
    broken: int


def gradient_norms(
    model: Model, batch: Batch, layer: int, positions: int, reader: NeuralBackbone | None = None
) -> GradientNorms:
    """Return the gradient norms of up to `positions` predictions of each row.

    Args:
        model: in evaluation mode.
        batch: tensors on the model's device, with targets.
        layer: layer of the states; 0 is the input of the first layer.
        positions: predictions per row, spread evenly over the last half of them.
        reader: backbone whose states the head reads; default: the model's.

    Raises:
        UserError: the model has no such layer, or exposes no layers.
    """
    hidden, states = states_of_layer(reader or neural(model.backbone), batch, layer)
    norms, distances, ahead = [], [], 0
    # One backward pass per prediction of a row, of all rows at once: rows do not interact.
    for column in _choose_predictions(batch.weights.cpu().numpy() > 0, positions).T:
        rows = np.flatnonzero(column >= 0)
        weights = torch.zeros_like(batch.weights)
        weights[rows, column[rows]] = 1.0
        total = model.token_head.loss(hidden, replace(batch, weights=weights)).total
        (gradient,) = torch.autograd.grad(total, [states], retain_graph=True, allow_unused=True)
        size = torch.zeros(states.shape[:2]) if gradient is None else gradient.norm(dim=-1)
        # Keep the states that the predictions may attend to and that are not after them.
        on_device = (torch.from_numpy(n).to(states.device) for n in (rows, column[rows]))
        back, is_visible = _distances(batch, *on_device)
        is_measured = (is_visible & (back >= 0)).cpu().numpy()
        sizes = size.cpu().double().numpy()[rows]
        ahead += int((sizes[(is_visible & (back < 0)).cpu().numpy()] > 0).sum())
        distances.append(back.cpu().numpy()[is_measured])
        norms.append(sizes[is_measured])
    norm, distance = np.concatenate(norms), np.concatenate(distances)
    is_finite = np.isfinite(norm)
    return GradientNorms(distance[is_finite], norm[is_finite], ahead, int((~is_finite).sum()))


def states_of_layer(reader: NeuralBackbone, batch: Batch, layer: int) -> tuple[Hidden, Tensor]:
    """Return the output of a backbone, and the states of a layer, tracked for gradients.

    Raises:
        UserError: the backbone has no such layer, or exposes no layers.
    """
    hidden = reader.with_layer_gradients(batch)
    assert hidden.layers is not None
    if layer >= len(hidden.layers):
        last = len(hidden.layers) - 1
        layers = f"layers 0 to {last}" if last else "layer 0 alone"
        raise UserError(f"no layer {layer}: it has {layers}")
    return hidden, hidden.layers[layer]


def _choose_predictions(is_scored: Array, positions: int) -> Array:
    """Return the predictions to measure in each row, (rows, at most positions) int64; -1: none."""
    predictions = np.full((len(is_scored), positions), -1, dtype=np.int64)
    for n, row in enumerate(is_scored):
        scored = np.flatnonzero(row)
        last = scored[len(scored) // 2 :][::-1]
        count = min(positions, len(last))
        predictions[n, :count] = last[np.linspace(0, len(last) - 1, count).round().astype(np.int64)]
    return predictions[:, (predictions >= 0).any(0)]


def _distances(batch: Batch, rows: Tensor, column: Tensor) -> tuple[Tensor, Tensor]:
    """Return the distances from predictions back to states, and which states they may attend to.

    Returns:
        Distances (predictions, states) int64, and whether the state is visible, bool.
    """
    queries = batch.part(Queries)
    at = column if queries is None else queries.at[rows, column]
    if batch.source is None:
        keys = torch.arange(batch.ids.shape[1], device=at.device)
        return at[:, None] - keys, _visible(batch.mask, rows, at, batch.ids.shape[1])
    positions = batch.source.positions[rows]
    is_visible = _visible(batch.cross_mask, rows, at, positions.shape[1])
    length = is_visible.sum(1, keepdim=True)  # of the source of the prediction's document
    return batch.positions[rows, at][:, None] + length - positions, is_visible


def _visible(mask: Any, rows: Tensor, at: Tensor, keys: int) -> Tensor:
    """Return which keys the mask lets each prediction attend to, (predictions, keys) bool."""
    j = torch.arange(keys, device=at.device)[None]
    allowed: Tensor = mask.allows(rows[:, None], 0, at[:, None], j)
    return allowed.expand(len(at), keys)
