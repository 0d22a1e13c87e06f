"""A plain PyTorch training loop of a Transformer, for comparison with Foreword's.

It is what one would write by hand: `scaled_dot_product_attention`, fused AdamW, bf16 autocast, the
whole model compiled, rows of one text without padding, the output layer tied to the embedding.
"""

from __future__ import annotations

import statistics
import time
from contextlib import nullcontext
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

WARM_STEPS = 4


class Layer(nn.Module):
    """A pre-norm layer: attention and feed-forward, each after its norm."""

    def __init__(self, width: int, heads: int, dropout: float, *, is_causal: bool) -> None:
        super().__init__()
        self.heads, self.rate, self.is_causal = heads, dropout, is_causal
        self.norms = nn.ModuleList([nn.LayerNorm(width), nn.LayerNorm(width)])
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        """Return the layer's output, (batch, length, width)."""
        batch, length, width = x.shape
        shape = (batch, length, 3, self.heads, width // self.heads)
        q, k, v = self.qkv(self.norms[0](x)).view(shape).permute(2, 0, 3, 1, 4)
        attended = F.scaled_dot_product_attention(
            q, k, v, dropout_p=self.rate, is_causal=self.is_causal
        )
        x = x + self.dropout(self.out(attended.transpose(1, 2).reshape(batch, length, width)))
        inner = F.gelu(self.up(self.norms[1](x)))
        out: Tensor = x + self.dropout(self.down(inner))
        return out


class PlainTransformer(nn.Module):
    """A Transformer whose output is the loss at given positions."""

    def __init__(self, family: dict[str, Any], dropout: float, *, is_causal: bool) -> None:
        super().__init__()
        size = family["size"]
        width, heads = size["d_model"], size["heads"]
        self.token = nn.Embedding(family["vocab"], width)
        self.position = nn.Embedding(family["length"], width)
        for table in (self.token, self.position):
            nn.init.normal_(table.weight, std=0.02)
        self.layers = nn.ModuleList(
            Layer(width, heads, dropout, is_causal=is_causal) for _ in range(size["layers"])
        )
        self.norm, self.dropout = nn.LayerNorm(width), nn.Dropout(dropout)

    def forward(self, ids: Tensor, at: Tensor, targets: Tensor) -> Tensor:
        """Return the mean cross-entropy of `targets` at positions `at` of the flattened batch.

        Targets of -100 do not count.
        """
        return self.nats(ids, at, targets).sum() / (targets >= 0).sum()

    def nats(self, ids: Tensor, at: Tensor, targets: Tensor) -> Tensor:
        """Return the cross-entropy of each target at its position in the flattened batch."""
        x = self.dropout(self.token(ids) + self.position.weight[: ids.shape[1]])
        for layer in self.layers:
            x = layer(x)
        chosen = self.norm(x).flatten(0, 1)[at]
        logits = F.linear(chosen, self.token.weight).float()
        return F.cross_entropy(logits, targets, reduction="none")


def tokens_per_second(
    name: str,
    family: dict[str, Any],
    steps: int,
    dropout: float,
    device: torch.device,
    *,
    compiles: bool,
) -> float:
    """Return its training speed; a `masked` model predicts 15 % of the positions of each batch."""
    is_cuda = device.type == "cuda"
    model = PlainTransformer(family, dropout, is_causal=name == "causal").to(device)
    run: Any = torch.compile(model) if compiles else model
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    rng, shape = np.random.default_rng(0), (family["batch"], family["length"])
    tokens = shape[0] * shape[1]
    predictions = tokens if name == "causal" else int(0.15 * tokens)
    times = []
    for _ in range(WARM_STEPS + steps):
        # The batch.
        start = time.perf_counter()
        ids = torch.from_numpy(rng.integers(0, family["vocab"], shape))
        at = torch.from_numpy(np.sort(rng.permutation(tokens)[:predictions]))
        targets = ids.flatten()[at]
        if is_cuda:
            ids, at, targets = (
                t.pin_memory().to(device, non_blocking=True) for t in (ids, at, targets)
            )
        # The step.
        with torch.autocast(device.type, torch.bfloat16) if is_cuda else nullcontext():
            loss = run(ids, at, targets)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        loss.item()
        times.append(time.perf_counter() - start)
    return float(tokens / statistics.median(times[WARM_STEPS:]))
