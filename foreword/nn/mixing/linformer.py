"""Keys and values are projected along the length to a few; queries attend to these."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from torch import Tensor, nn

from foreword.errors import UserError
from foreword.nn.attention import Pattern, attend
from foreword.nn.masks import Full, Mask
from foreword.nn.mix import Mixer, Mixing


@dataclass(frozen=True)
class Linformer(Mixing):
    """softmax(scale q (E k)') (F v), with E and F learned: time and memory grow with the length.

    A projection mixes all places of a row, so it cannot be causal, and a row is one text: use it
    with layout `encoder` and packing that is not `separate`.

    Attributes:
        length: places of a row, each row's.
        projected: places that they are projected to, k in the paper.
        share: which projections are the same: `none` has E and F for each head of each layer;
            `heads` E and F for each layer; `keys_values` one matrix for each layer; `layers` one
            matrix in all.

    Reference: Wang et al. 2020, section 4.
    """

    length: int = 512
    projected: int = 128
    share: Literal["none", "heads", "keys_values", "layers"] = "layers"

    def __post_init__(self) -> None:
        for name in ("length", "projected"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name}: must be at least 1, got {getattr(self, name)}")

    @property
    def limit(self) -> int | None:
        """The rows' length."""
        return self.length

    @property
    def exact(self) -> int:
        """The same: shorter rows are none."""
        return self.length

    def prepare(
        self,
        mask: Mask,
        bias: Tensor | None,
        shape: tuple[int, int, int],
        like: Tensor,
        *,
        flex: bool,
    ) -> Pattern:
        """Nothing: every query sees every projected key.

        Raises:
            UserError: the mask hides anything, something is added to the scores, or rows have
                another length.
        """
        _, queries, keys = shape
        if bias is not None:
            raise UserError(
                "model.position: 'linformer' has no scores between places to add to; use "
                "'learned', 'sinusoidal' or 'rotary'"
            )
        if queries != keys or keys != self.length:
            raise UserError(
                f"model.mixing.length: 'linformer' projects rows of exactly {self.length} places, "
                f"got {keys}; let model.mixing.length and packing.length be the same"
            )
        if not isinstance(mask, Full):
            raise UserError(
                "model.mixing: 'linformer' mixes all places of a row, so a row must be one text "
                "without padding, read from both sides; use layout 'encoder' and "
                "packing.separate=false"
            )
        return Pattern()

    def build(self, heads: int, d_head: int, layers: int) -> list[Mixer]:
        """A module for each layer, or the same for all."""
        if self.share == "layers":
            return [LinformerMixer(self, heads)] * layers
        return [LinformerMixer(self, heads) for _ in range(layers)]


class LinformerMixer(Mixer):
    """The projections of one layer, or of all.

    Args:
        settings: sizes, and what is shared.
        heads: attention heads.
    """

    def __init__(self, settings: Linformer, heads: int) -> None:
        super().__init__()
        of = heads if settings.share == "none" else 1
        self.projected = settings.projected
        self.keys = nn.Linear(settings.length, of * settings.projected, bias=False)  # E
        self.values = self.keys  # F
        if settings.share in ("none", "heads"):
            self.values = nn.Linear(settings.length, of * settings.projected, bias=False)

    def mask(self, queries: int, keys: int) -> Mask | None:
        """None: what a query sees is a mixture of all keys."""
        return None

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
        """(batch, heads, queries, d_head).

        Raises:
            UserError: something is added to the scores.
        """
        if extra is not None:
            raise UserError(
                "model.position: 'linformer' has no scores between places to add to; use "
                "'learned', 'sinusoidal' or 'rotary'"
            )
        k, v = self._project(self.keys, k), self._project(self.values, v)
        return attend(q, k, v, pattern, scale, dropout)

    def _project(self, projection: nn.Linear, x: Tensor) -> Tensor:
        """(batch, heads, length, d_head) -> (batch, heads, projected, d_head)."""
        weight = projection.weight.to(x.dtype).view(-1, self.projected, x.shape[2])
        return weight @ x  # (heads or 1, projected, length) @ (batch, heads, length, d_head)
