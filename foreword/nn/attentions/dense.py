"""Dense attention: every query attends to every key that its mask allows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from foreword.nn.attention import PreparedMask, attend, prepare_mask
from foreword.nn.attentions._contract import AttentionKind, AttentionMechanism
from foreword.nn.masks import FullMask, Mask


@dataclass(frozen=True)
class Dense(AttentionKind):
    """Full attention: time and memory of scores grow with the square of the length.

    Also called: full, softmax attention, standard.
    Reference: Vaswani et al. 2017, section 3.2.1.
    """

    is_dense: ClassVar[bool] = True

    def prepare(
        self,
        mask: Mask,
        bias: Tensor | None,
        shape: tuple[int, int, int],
        like: Tensor,
        *,
        flex: bool,
    ) -> PreparedMask:
        """Prepare mask and bias; see `foreword.nn.attention.prepare_mask`."""
        return prepare_mask(mask, bias, shape, like, flex=flex)

    def build(self, heads: int, d_head: int, layers: int) -> list[AttentionMechanism]:
        """Return one module without parameters for all layers."""
        return [DenseAttention()] * layers


class DenseAttention(AttentionMechanism):
    """Attention over all keys, by `foreword.nn.attention.attend`."""

    def mask(self, queries: int, keys: int) -> Mask | None:
        """Return the mask of all keys."""
        return FullMask()

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
