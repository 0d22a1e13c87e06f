"""Sampling the next token: temperature, top-k, top-p."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from foreword.nn.precision import widest
from foreword.settings.ranges import Count, CountOrZero, PositiveShare, Ranged, Seed, Temperature


@dataclass(frozen=True)
class Sampling(Ranged):
    """The settings of sampling.

    Attributes:
        tokens: the maximum number of tokens to generate.
        temperature: divisor of the logits; 0 takes the likeliest token (greedy).
        top_k: sample from the k likeliest tokens alone; 0 for all.
        top_p: sample from the smallest set of likeliest tokens with this total probability
            (Holtzman et al. 2020, section 3.1); 1 for all.
        seed: equal seeds give equal texts, on any device and in any batch.
        steps: of a model of masked diffusion, the steps in which it writes `tokens` tokens; 0 for
            one a step, which is best.
        block: of a model of masked diffusion, the tokens of a block, which is filled before the
            next one begins.
    """

    tokens: Count = 100
    temperature: Temperature = 0.8
    top_k: CountOrZero = 50
    top_p: PositiveShare = 1.0
    seed: Seed = 1
    steps: CountOrZero = 0
    block: Count = 32


GREEDY = Sampling(temperature=0.0)


def distribution(logits: Tensor, sampling: Sampling) -> Tensor:
    """Return the distribution of the next token: temperature, then top-k, then top-p.

    Args:
        logits: (batch, vocab) float32.
        sampling: settings with a temperature above 0.

    Returns:
        Probabilities (batch, vocab) in the `widest` dtype of the device, float64 if it has it.
    """
    scores = logits.to(widest(logits.device))
    # The greatest becomes 0, so that no temperature above 0 overflows.
    scores = (scores - scores.amax(dim=-1, keepdim=True)) / sampling.temperature
    if 0 < sampling.top_k < scores.shape[-1]:
        lowest = scores.topk(sampling.top_k, dim=-1).values[:, -1:]
        scores = scores.masked_fill(scores < lowest, float("-inf"))
    if sampling.top_p < 1:
        ordered, order = scores.sort(dim=-1, descending=True)
        p = ordered.softmax(-1)
        is_beyond = p.cumsum(-1) - p >= sampling.top_p  # likelier tokens suffice
        scores = scores.masked_fill(
            torch.zeros_like(is_beyond).scatter(-1, order, is_beyond), float("-inf")
        )
    return scores.softmax(-1)


def sample_tokens(logits: Tensor, sampling: Sampling, draws: Tensor) -> Tensor:
    """Sample the next token of each row.

    Args:
        logits: (batch, vocab) float32.
        sampling: the settings.
        draws: a uniform number in [0, 1) per row, (batch,).

    Returns:
        (batch,) int64.
    """
    if sampling.temperature == 0:
        return logits.argmax(-1)
    cumulative = distribution(logits, sampling).cumsum(-1)  # (batch, vocab)
    # Below 1 in this dtype too, and scaled by the sum, so that rounding cannot leave a draw beyond
    # the last token.
    below_one = 1 - torch.finfo(cumulative.dtype).eps / 2
    draws = draws.to(cumulative.dtype).clamp(max=below_one)
    thresholds = draws[:, None] * cumulative[:, -1:]
    return (cumulative <= thresholds).sum(-1).clamp(max=logits.shape[-1] - 1)
