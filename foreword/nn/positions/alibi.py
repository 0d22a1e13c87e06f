"""ALiBi: scores decrease linearly with the distance, at a fixed slope for each head."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from foreword.nn.positions._contract import PositionKind, PositionScheme


@dataclass(frozen=True)
class ALiBi(PositionKind):
    """A bias of -slope |i - j| on the scaled scores; nothing is learned.

    The slopes of n heads are 2^(-8/n), 2^(-16/n), ..., 2^-8; if n is not a power of two, those of
    the next lower power, then every other one of the next higher.

    Also called: linear biases.
    Reference: Press et al. 2022, section 3.
    Differs from the paper: the bias is symmetric, so that an encoder, with keys on both sides, sees
    the distance but not its direction.
    """

    def build(
        self, width: int, heads: int, d_head: int, *, layers: int, is_causal: bool
    ) -> PositionScheme:
        return AlibiPositions(heads)


def slopes(heads: int) -> list[float]:
    """Return the slope of each head, per token."""
    below = 1 << (heads.bit_length() - 1)
    regular = [2.0 ** (-8 * (n + 1) / below) for n in range(below)]
    return regular + [2.0 ** (-4 * (n + 1) / below) for n in range(0, 2 * (heads - below), 2)]


class AlibiPositions(PositionScheme):
    """A linear bias by distance."""

    def __init__(self, heads: int) -> None:
        super().__init__()
        self.slopes = slopes(heads)

    def bias(self, queries: Tensor, keys: Tensor) -> Tensor | None:
        """Return the bias, (queries,), (keys,) -> (heads, queries, keys)."""
        distance = (queries[:, None] - keys[None, :]).abs()
        return -torch.tensor(self.slopes, device=distance.device)[:, None, None] * distance
