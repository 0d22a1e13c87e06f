"""Choosing the next token: temperature, top-k, top-p, and a number that decides."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from foreword.ranges import Count, CountOrZero, PositiveShare, Ranged, Seed, Temperature


@dataclass(frozen=True)
class Sampling(Ranged):
    """How tokens are drawn.

    Attributes:
        tokens: at most so many are generated.
        temperature: logits are divided by it; 0 takes the likeliest token (greedy).
        top_k: only the k likeliest tokens may be drawn; 0 for all.
        top_p: only the smallest set of likeliest tokens with this probability may be drawn
            (Holtzman et al. 2020, section 3.1); 1 for all.
        seed: equal seeds, equal texts, on whatever device and in whatever batch.
    """

    tokens: Count = 100
    temperature: Temperature = 0.8
    top_k: CountOrZero = 50
    top_p: PositiveShare = 1.0
    seed: Seed = 1


GREEDY = Sampling(temperature=0.0)


def distribution(logits: Tensor, sampling: Sampling) -> Tensor:
    """What the next token is drawn from: temperature, then top-k, then top-p.

    Args:
        logits: (batch, vocab) float32.
        sampling: with a temperature above 0.

    Returns:
        Probabilities (batch, vocab) float64.
    """
    scores = logits.double()
    # From the greatest down, so that no temperature above 0 is too low.
    scores = (scores - scores.amax(dim=-1, keepdim=True)) / sampling.temperature
    if 0 < sampling.top_k < scores.shape[-1]:
        least = scores.topk(sampling.top_k, dim=-1).values[:, -1:]
        scores = scores.masked_fill(scores < least, float("-inf"))
    if sampling.top_p < 1:
        ordered, order = scores.sort(dim=-1, descending=True)
        p = ordered.softmax(-1)
        is_beyond = p.cumsum(-1) - p >= sampling.top_p  # what stands before is already enough
        scores = scores.masked_fill(
            torch.zeros_like(is_beyond).scatter(-1, order, is_beyond), float("-inf")
        )
    return scores.softmax(-1)


def choose(logits: Tensor, sampling: Sampling, draws: Tensor) -> Tensor:
    """The next token of each row.

    Args:
        logits: (batch, vocab) float32.
        sampling: how.
        draws: uniform in [0, 1), one per row; (batch,) float64.

    Returns:
        (batch,) int64.
    """
    if sampling.temperature == 0:
        return logits.argmax(-1)
    reached = distribution(logits, sampling).cumsum(-1)  # (batch, vocab)
    # Scaled by the sum, so that rounding cannot leave a draw beyond the last token.
    wanted = draws[:, None] * reached[:, -1:]
    return (reached <= wanted).sum(-1).clamp(max=logits.shape[-1] - 1)
