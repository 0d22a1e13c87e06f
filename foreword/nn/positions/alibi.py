"""ALiBi: scores fall with the distance, in each head at a rate of its own; nothing is learned."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from foreword.nn.position import PositionKind, PositionScheme


@dataclass(frozen=True)
class ALiBi(PositionKind):
    """Adds -slope |i - j| to the scaled scores.

    The slopes of n heads are 2^(-8/n), 2^(-16/n), ..., 2^-8; where n is no power of two, those of
    the power below it, and then every other one of the power above.

    Reference: Press et al. 2022, section 3.
    Differs from the paper: where keys stand on both sides the bias is symmetric, so that an
    encoder sees how far, and not in which direction.
    """

    def build(
        self, width: int, heads: int, d_head: int, *, layers: int, is_causal: bool
    ) -> PositionScheme:
        """The module, without parameters."""
        return AlibiPositions(heads)


def slopes(heads: int) -> list[float]:
    """How fast each head's scores fall, per token."""
    below = 1 << (heads.bit_length() - 1)
    first = [2.0 ** (-8 * (n + 1) / below) for n in range(below)]
    return first + [2.0 ** (-4 * (n + 1) / below) for n in range(0, 2 * (heads - below), 2)]


class AlibiPositions(PositionScheme):
    """Adds the falling bias."""

    def __init__(self, heads: int) -> None:
        super().__init__()
        self.slopes = slopes(heads)

    def bias(self, queries: Tensor, keys: Tensor) -> Tensor | None:
        """(queries,), (keys,) -> (heads, queries, keys)."""
        distance = (queries[:, None] - keys[None, :]).abs()
        return -torch.tensor(self.slopes, device=distance.device)[:, None, None] * distance
