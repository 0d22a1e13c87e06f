"""Sinusoidal absolute positions, of geometric wavelengths (the first Transformer)."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from foreword.nn.positions._contract import PositionKind, PositionScheme
from foreword.settings.ranges import Wavelength


@dataclass(frozen=True)
class Sinusoidal(PositionKind):
    """sin and cos of position / base^(2i / width), added to the embedding.

    Attributes:
        base: the longest wavelength is 2 pi times this.

    Also called: sine, sinusoid.
    Reference: Vaswani et al. 2017, section 3.5.
    Differs from the paper: sines first, then cosines, rather than interleaved; the same up to a
    fixed permutation of dimensions.
    """

    is_absolute = True
    base: Wavelength = 10_000.0

    def build(
        self, width: int, heads: int, d_head: int, *, layers: int, is_causal: bool
    ) -> PositionScheme:
        if width % 2:
            raise ValueError(f"d_model: sinusoidal positions require an even number, got {width}")
        return SinusoidalPositions(self.base, width)


class SinusoidalPositions(PositionScheme):
    """Sines and cosines, added to the embeddings."""

    def __init__(self, base: float, width: int) -> None:
        super().__init__()
        self.base, self.width = base, width

    def embed(self, positions: Tensor) -> Tensor | None:
        """Return sines, then cosines, (batch, length) -> (batch, length, width)."""
        half = self.width // 2
        steps = torch.arange(half, device=positions.device, dtype=torch.float32)
        angles = positions[..., None] * torch.exp(-math.log(self.base) / half * steps)
        return torch.cat([angles.sin(), angles.cos()], dim=-1)
