"""Dilated attention, as an example of an attention mechanism in a plug-in."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch import Tensor

from foreword.nn.attention import PreparedMask, attend, prepare_mask
from foreword.nn.attentions._contract import AttentionKind, AttentionMechanism
from foreword.nn.masks import Mask
from foreword.settings.ranges import Count


@dataclass(frozen=True)
class Dilated(AttentionKind):
    """Each position attends to those whose distance is a multiple of `stride`, itself included.

    Computed densely, so it saves no time.

    Attributes:
        stride: 1 is dense attention.

    Reference: Child et al. 2019, section 4.3, without its local part.
    """

    stride: Count = 3

    def prepare(
        self,
        mask: Mask,
        bias: Tensor | None,
        shape: tuple[int, int, int],
        like: Tensor,
        *,
        flex: bool,
    ) -> PreparedMask:
        """Prepare the batch's mask joined with this one, for the engine of dense attention."""
        _, queries, keys = shape
        own = DilatedMask(self.stride, keys - queries)
        return prepare_mask(mask & own, bias, shape, like, flex=flex)

    def build(self, heads: int, d_head: int, layers: int) -> list[AttentionMechanism]:
        """Return one module without parameters for all layers."""
        return [DilatedAttention(self.stride)] * layers


@dataclass(frozen=True)
class DilatedMask(Mask):
    """Keys at distances that are multiples of `stride`; the queries are the last of the keys."""

    stride: int
    offset: int = 0

    def allows(self, b: Any, h: Any, i: Any, j: Any) -> Any:
        """Return whether the distance is a multiple of the stride."""
        return (i + self.offset - j) % self.stride == 0


class DilatedAttention(AttentionMechanism):
    """Dense attention under a dilated mask."""

    def __init__(self, stride: int) -> None:
        super().__init__()
        self.stride = stride

    def mask(self, queries: int, keys: int) -> Mask | None:
        """Return the dilated mask."""
        return DilatedMask(self.stride, keys - queries)

    def forward(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        prepared_mask: PreparedMask,
        scale: float,
        dropout: float,
        position_scores: Tensor | None,
    ) -> Tensor:
        """Return (batch, heads, queries, d_head)."""
        return attend(q, k, v, prepared_mask, scale, dropout, position_scores)
