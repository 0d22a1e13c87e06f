"""Multi-head attention one number at a time, in float64: slow, and plain enough to be believed.

Beginners may read this before `foreword/nn/attention.py`; tests hold the engines equal to it.
"""

from __future__ import annotations

import copy
import math

import torch
from torch import Tensor

from foreword.nn.attention import Attention
from foreword.nn.masks import Mask


def multi_head_attention(x: Tensor, context: Tensor, weights: Attention, mask: Mask) -> Tensor:
    """Return what each position of x gathers from the context, (batch, queries, d_model) float64.

    Args:
        x: (batch, queries, d_model).
        context: (batch, keys, d_model); for self-attention, x.
        weights: the matrices W_Q, W_K, W_V and W_O with their biases.
        mask: is asked for one query and one key at a time.
    """
    weights = copy.deepcopy(weights).double()
    # Three linear maps: what a position looks for, what it is found by, what it has to give.
    q = weights.query(x.double())
    k, v = weights.key_value(context.double()).chunk(2, dim=-1)
    # Each head has its part of the numbers: (batch, length, heads * d_head) to four dimensions.
    q, k, v = (part.unflatten(-1, (weights.heads, -1)).transpose(1, 2) for part in (q, k, v))
    heads = attention(q, k, v, mask)
    # The heads side by side, and a last linear map.
    gathered: Tensor = weights.output(heads.transpose(1, 2).flatten(2))
    return gathered


def attention(q: Tensor, k: Tensor, v: Tensor, mask: Mask, bias: Tensor | None = None) -> Tensor:
    """softmax(q k' / sqrt(d_head) + bias) v over the allowed keys; zero where none is allowed.

    Args:
        q: (batch, heads, queries, d_head).
        k: (batch, heads, keys, d_head).
        v: (batch, heads, keys, d_head).
        mask: is asked for one query and one key at a time.
        bias: (heads, queries, keys) or None.

    Returns:
        (batch, heads, queries, d_head) float64.
    """
    q, k, v = q.double(), k.double(), v.double()
    out = torch.zeros_like(q)
    batch, heads, queries, d_head = q.shape
    for b in range(batch):
        for h in range(heads):
            for i in range(queries):
                row, head, query = torch.tensor([b, h, i])
                every = map(torch.tensor, range(k.shape[2]))
                seen = [j for j, key in enumerate(every) if mask.allows(row, head, query, key)]
                # How well each key fits the query.
                scores = [
                    float(q[b, h, i] @ k[b, h, j]) / math.sqrt(d_head)
                    + (0.0 if bias is None else float(bias[h, i, j]))
                    for j in seen
                ]
                # The softmax: shares that add up to 1, of which the values are a weighted mean.
                total = sum(math.exp(score) for score in scores)
                for j, score in zip(seen, scores, strict=True):
                    out[b, h, i] += math.exp(score) / total * v[b, h, j]
    return out
