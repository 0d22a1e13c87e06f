"""Every query is compared with every key that its mask allows."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from foreword.nn.attention import Pattern, attend, prepare
from foreword.nn.masks import Full, Mask
from foreword.nn.mix import Mixer, Mixing


@dataclass(frozen=True)
class Dense(Mixing):
    """Full attention: time and scores grow with the square of the length.

    Reference: Vaswani et al. 2017, section 3.2.1.
    """

    def prepare(
        self,
        mask: Mask,
        bias: Tensor | None,
        shape: tuple[int, int, int],
        like: Tensor,
        *,
        flex: bool,
    ) -> Pattern:
        """The mask and the bias for the engine at hand; see `foreword.nn.attention.prepare`."""
        return prepare(mask, bias, shape, like, flex=flex)

    def build(self, heads: int, d_head: int, layers: int) -> list[Mixer]:
        """One module without parameters for all layers."""
        return [DenseMixer()] * layers


class DenseMixer(Mixer):
    """`foreword.nn.attention.attend`."""

    def mask(self, queries: int, keys: int) -> Mask | None:
        """All keys."""
        return Full()

    def attend(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        pattern: Pattern,
        scale: float,
        dropout: float,
        extra: Tensor | None,
    ) -> Tensor:
        """(batch, heads, queries, d_head), as `attend` says."""
        return attend(q, k, v, pattern, scale, dropout, extra)
