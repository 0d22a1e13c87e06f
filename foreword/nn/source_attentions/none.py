"""No look at the source: all that is known of it is the state that the encoder ended with."""

from __future__ import annotations

from dataclasses import dataclass

from foreword.nn.source_attention import SourceAttention


@dataclass(frozen=True)
class None_:  # noqa: N801 (None is Python's)
    """No attention.

    Reference: Sutskever et al. 2014, section 2.
    """

    def build(self, d_model: int) -> SourceAttention | None:
        """None."""
        return None
