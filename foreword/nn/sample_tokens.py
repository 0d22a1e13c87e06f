"""Sampling of tokens from the softmax over the vocabulary, by given uniform draws."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from foreword.nn.cross_entropy import SLICE
from foreword.nn.precision import upcast


@torch.no_grad()
def sample_tokens(
    states: Tensor, weight: Tensor, bias: Tensor | None, uniform_draws: Tensor
) -> Tensor:
    """Return a token from each softmax(states weight' + bias), by inverse transform sampling.

    Each sample depends only on its own state and uniform draw, not on the rest of the batch. Logits
    exist a slice at a time, as in `cross_entropy`.

    Args:
        states: (draws, d_model).
        weight: the output layer, (vocab, d_model).
        bias: (vocab,) or None.
        uniform_draws: uniform in [0, 1), (draws,) float32.

    Returns:
        (draws,) int64.
    """
    rows = max(1, SLICE.get(states.device.type, 1 << 26) // len(weight))
    tokens = []
    for x, u in zip(torch.split(states, rows), torch.split(uniform_draws, rows), strict=True):
        cumulative = upcast(F.linear(x, weight, bias)).softmax(-1).cumsum(-1)  # (rows, vocab)
        tokens.append(
            torch.searchsorted(cumulative, u[:, None] * cumulative[:, -1:], right=True)[:, 0]
        )
    if not tokens:
        return torch.zeros(0, dtype=torch.long, device=states.device)
    return torch.cat(tokens).clamp(max=len(weight) - 1)
