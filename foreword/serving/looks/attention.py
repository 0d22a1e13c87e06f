"""The attention weights of a text."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from foreword.errors import TooLongError, UserError
from foreword.evaluation.attention_weights import attention_weights, self_attentions
from foreword.nn.stack import Stack
from foreword.serving.bodies import Body
from foreword.serving.looks._look import Compute, Look, within
from foreword.serving.served import Served
from foreword.settings.ranges import (
    Count,
)

MOST_WEIGHTS = 1 << 20  # of attention in one answer


@dataclass(frozen=True, kw_only=True)
class AttentionBody(Body):
    """A text whose attention weights are shown.

    Attributes:
        text: the text, of at most 256 tokens.
        layer: a layer, from 1; default: all.
    """

    text: str
    layer: Count | None = None


def _attention(served: Served, body: AttentionBody) -> Compute:
    model = served.trained
    tokens = len(within(served, body.text))
    stack = next(m for m in model.model.backbone.modules() if isinstance(m, Stack))
    layers, heads = len(stack.blocks), self_attentions(model)[0].heads
    if body.layer is not None and body.layer > layers:
        raise UserError(f"layer: this model has {layers}, got {body.layer}")
    if (layers if body.layer is None else 1) * heads * tokens**2 > MOST_WEIGHTS:
        raise TooLongError(
            f"text: {layers} layers of {heads} heads with {tokens} tokens are more weights than "
            f"{MOST_WEIGHTS:,}; name a layer, or give a shorter text"
        )

    def compute() -> dict[str, Any]:
        weights = attention_weights(model, body.text)
        first = 1 if body.layer is None else body.layer
        chosen = weights.layers if body.layer is None else weights.layers[first - 1 : first]
        maps = [np.asarray(layer, np.float64).round(4).tolist() for layer in chosen]
        special = weights.is_special.tolist()
        return {"tokens": weights.tokens, "is_special": special, "first": first, "layers": maps}

    return compute


ATTENTION = Look(
    AttentionBody,
    _attention,
    lambda served: self_attentions(served.trained),
    "Give the attention weights of a text",
)
