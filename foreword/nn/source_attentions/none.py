"""No attention to the source: the decoder knows only the encoder's final state."""

from __future__ import annotations

from dataclasses import dataclass

from foreword.nn.source_attentions._contract import SourceAttention


@dataclass(frozen=True)
class None_:  # noqa: N801 (None is Python's)
    """No attention.

    Reference: Sutskever et al. 2014, section 2.
    """

    def build(self, d_model: int) -> SourceAttention | None:
        return None
