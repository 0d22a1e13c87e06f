"""No positions: a causal model can infer them from its mask; an encoder sees a bag of words."""

from __future__ import annotations

from dataclasses import dataclass

from foreword.nn.positions._contract import PositionKind, PositionScheme


@dataclass(frozen=True)
class None_(PositionKind):  # noqa: N801 - `None` is a keyword
    """No positions (Haviv et al. 2022, for decoders).

    Also called: NoPE.
    """

    def build(
        self, width: int, heads: int, d_head: int, *, layers: int, is_causal: bool
    ) -> PositionScheme:
        """Return a scheme without effect."""
        return NoPositions()


class NoPositions(PositionScheme):
    """A position scheme without effect."""
