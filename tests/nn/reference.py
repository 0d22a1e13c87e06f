"""Attention one number at a time, in float64: slow, and plain enough to be believed."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from foreword.nn.masks import Mask


def attention(q: Tensor, k: Tensor, v: Tensor, mask: Mask, bias: Tensor | None) -> Tensor:
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
                index = [torch.tensor(n) for n in (b, h, i)]
                seen = [j for j in range(k.shape[2]) if bool(mask.allows(*index, torch.tensor(j)))]
                scores = [
                    float(q[b, h, i] @ k[b, h, j]) / math.sqrt(d_head)
                    + (0.0 if bias is None else float(bias[h, i, j]))
                    for j in seen
                ]
                total = sum(math.exp(score) for score in scores)
                for j, score in zip(seen, scores, strict=True):
                    out[b, h, i] += math.exp(score) / total * v[b, h, j]
    return out
