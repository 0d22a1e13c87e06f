"""Rotary positions: queries and keys are rotated, so scores depend on differences of positions."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from foreword.nn.positions._contract import PositionKind, PositionScheme
from foreword.nn.precision import at_least_float32
from foreword.settings.ranges import Wavelength


@dataclass(frozen=True)
class Rotary(PositionKind):
    """Rotation of the pair (x_i, x_{i + d/2}) of each head by position / base^(2i / d_head).

    Attributes:
        base: the longest wavelength is 2 pi times this.

    Also called: RoPE, rotary embedding.
    Reference: Su et al. 2021, section 3.2.
    Differs from the paper: pairs are half a head apart, as in GPT-NeoX and Llama, rather than
    neighbours; the same up to a fixed permutation of dimensions.
    """

    base: Wavelength = 10_000.0

    def build(
        self, width: int, heads: int, d_head: int, *, layers: int, is_causal: bool
    ) -> PositionScheme:
        if d_head % 2:
            raise ValueError(
                f"d_head: rotary positions require an even number, got {d_head}; its default "
                "is d_model / heads"
            )
        return RotaryPositions(self.base, d_head)


class RotaryPositions(PositionScheme):
    """Rotation of queries and keys."""

    def __init__(self, base: float, d_head: int) -> None:
        super().__init__()
        self.base, self.d_head = base, d_head
        self._last: tuple[Tensor, Tensor, Tensor] | None = None  # positions, cosines, sines

    def rotate(self, x: Tensor, positions: Tensor) -> Tensor:
        """Return x rotated, (batch, heads, length, d_head); angles are in float32 at least."""
        half = self.d_head // 2
        cos, sin = self._cos_sin(x, positions)
        left, right = x[..., :half], x[..., half:]
        return torch.cat([left * cos - right * sin, right * cos + left * sin], dim=-1)

    def _cos_sin(self, x: Tensor, positions: Tensor) -> tuple[Tensor, Tensor]:
        """Return the cosine and sine of each angle, (..., length, d_head / 2) in the dtype of x.

        Those of the last positions are kept: all layers have the same.
        """
        last = None if torch.compiler.is_compiling() else self._last
        if last is not None and last[0] is positions and last[1].dtype == x.dtype:
            return last[1], last[2]
        half, dtype = self.d_head // 2, at_least_float32(x.dtype)
        steps = torch.arange(half, device=x.device, dtype=dtype)
        frequencies = torch.exp(-math.log(self.base) / half * steps)
        angles = (
            positions[..., None].to(dtype) * frequencies
        )  # (length, half) or (batch, length, half)
        if positions.ndim == 2:
            angles = angles[:, None]
        cos, sin = angles.cos().to(x.dtype), angles.sin().to(x.dtype)
        if not torch.compiler.is_compiling():
            self._last = positions, cos, sin
        return cos, sin
