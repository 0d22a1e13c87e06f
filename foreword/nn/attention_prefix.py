"""A learned prefix of attention: keys and values that every query attends to besides the text's."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class AttentionPrefix(nn.Module):
    """Gated attention to learned keys and values: tanh(g) softmax(q P_k' / sqrt(d)) P_v.

    It is added to what each head attends to, and has a softmax of its own, so no mask and no
    mechanism of attention knows of it. Queries are those before rotation: the prefix has no
    position, and a text reads it alike wherever it stands in its row. Each head's gate g begins at
    0, where nothing is added.

    Args:
        length: number of keys.
        heads: attention heads.
        d_head: width of a head.

    Also called: prefix tuning, zero-initialised attention, persistent memory.
    Reference: Li & Liang 2021, section 4 (learned keys and values); Zhang et al. 2023,
    "LLaMA-Adapter", section 3.2 (the gate); He et al. 2022, "Towards a unified view of
    parameter-efficient transfer learning", equation 5, where the prefix in the text's softmax is
    this sum with the softmax's share as its gate.
    Differs from the paper: LLaMA-Adapter learns states, which the layer's map of keys and values
    projects, and rotates the queries.
    """

    def __init__(self, length: int, heads: int, d_head: int) -> None:
        super().__init__()
        self.keys = nn.Parameter(torch.empty(heads, length, d_head))
        self.values = nn.Parameter(torch.empty(heads, length, d_head))
        self.gate = nn.Parameter(torch.empty(heads))
        nn.init.normal_(self.keys)
        nn.init.normal_(self.values)
        nn.init.zeros_(self.gate)

    def forward(self, q: Tensor, scale: float) -> Tensor:
        """Return the values to add to the attended ones, (batch, heads, queries, d_head).

        Args:
            q: queries before rotation, (batch, heads, queries, d_head).
            scale: factor of the scores, 1 / sqrt(d).
        """
        scores = (q * scale) @ self.keys.transpose(-2, -1)  # (batch, heads, queries, length)
        weights = torch.softmax(scores, -1).to(scores.dtype)  # autocast gives float32 on CUDA
        attended = weights @ self.values
        return torch.tanh(self.gate)[:, None, None].to(attended.dtype) * attended
