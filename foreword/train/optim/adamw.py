"""AdamW: Adam with decoupled weight decay."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import nn
from torch.optim import Optimizer


@dataclass(frozen=True)
class Adamw:
    """Decay on matrices only: biases, norms and other vectors are left alone.

    Attributes:
        lr: peak learning rate.
        beta1: of the mean of gradients.
        beta2: of the mean of their squares.
        eps: added to the root of the latter.
        decay: weight decay, per step times the learning rate.

    Reference: Loshchilov & Hutter 2019.
    """

    lr: float = 1e-3
    beta1: float = 0.9
    beta2: float = 0.98
    eps: float = 1e-8
    decay: float = 0.01

    def __post_init__(self) -> None:
        if self.lr <= 0:
            raise ValueError(f"lr: must be positive, got {self.lr}")
        for name in ("beta1", "beta2"):
            if not 0 <= getattr(self, name) < 1:
                raise ValueError(f"{name}: must be in [0, 1), got {getattr(self, name)}")

    def build(self, model: nn.Module) -> Optimizer:
        """The fused optimizer, on the CPU too."""
        trained = [p for p in model.parameters() if p.requires_grad]
        matrices = [p for p in trained if p.ndim >= 2]
        vectors = [p for p in trained if p.ndim < 2]
        groups = [
            {"params": matrices, "weight_decay": self.decay},
            {"params": vectors, "weight_decay": 0.0},
        ]
        return torch.optim.AdamW(
            groups, lr=self.lr, betas=(self.beta1, self.beta2), eps=self.eps, fused=True
        )
