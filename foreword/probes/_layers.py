"""The layers of a model whose states are probed, by name."""

from __future__ import annotations

from collections.abc import Iterable

from foreword.errors import UserError
from foreword.evaluation.states import TextStates, text_states
from foreword.runs.trained_model import TrainedModel
from foreword.types import Array

ALONE = "alone"  # the layer of embeddings, which do not depend on the context


def by_layer(states: TextStates) -> dict[str, Array]:
    """Return the states of a text by layer: `alone`, "0", "1", ...; (length, width) each."""
    return {ALONE: states.alone} | {str(n): layer for n, layer in enumerate(states.layers)}


def layer_order(layers: Iterable[str]) -> list[str]:
    """Return the names of layers without repetitions, from `alone` upwards."""
    return sorted(set(layers), key=layer_position)


def layer_position(layer: str) -> int:
    """Return the number of a layer; -1 for `alone`."""
    return -1 if layer == ALONE else int(layer)


def require_layer(prompted: TrainedModel, text: str, layer: int | None) -> None:
    """Check that a model has states, and a layer.

    Args:
        prompted: the model.
        text: any text to try.
        layer: the number of the layer; None for any.

    Raises:
        UserError: it does not.
    """
    layers = len(next(text_states(prompted, [text], splits=True)).layers)
    if layer is not None and layer >= layers:
        has = f"it has layers 0 to {layers - 1}" if layers else "it has embeddings alone"
        raise UserError(f"{prompted.name}: no layer {layer}: {has}")
