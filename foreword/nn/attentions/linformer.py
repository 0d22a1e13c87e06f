"""Linformer: queries attend to keys and values projected along the length to a few."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from foreword.errors import UserError
from foreword.nn.attention import PreparedMask, attend
from foreword.nn.attentions._contract import AttentionKind, AttentionMechanism
from foreword.nn.masks import DocumentMask, FullMask, Mask
from foreword.settings.ranges import Count


@dataclass(frozen=True)
class Linformer(AttentionKind):
    """softmax(scale q (E k)') (F v), with E and F learned.

    Time and memory are linear in the length.

    A projection mixes all positions of a row, so it cannot be causal, and a row must be one text:
    it requires layout `encoder` and packing without `document_mask`.

    A shorter text is projected by the first columns of E and F, as if followed by padding with keys
    and values of zero. Its output does not depend on the padding of its batch.

    Attributes:
        length: length of rows in training, and maximum length of a text.
        projected: number of projected keys, k in the paper.
        share: projections that are shared: `none` has E and F for each head of each layer;
            `heads` E and F for each layer; `keys_values` one matrix for each layer; `layers` one
            matrix in all.

    Also called: low rank.
    Reference: Wang et al. 2020, section 4.
    """

    length: Count = 512
    projected: Count = 128
    share: Literal["none", "heads", "keys_values", "layers"] = "layers"

    @property
    def limit(self) -> int | None:
        """The length of the rows."""
        return self.length

    @property
    def required_length(self) -> int:
        """`length`, since shorter rows would leave columns of E and F untrained."""
        return self.length

    @property
    def supports_document_masking(self) -> bool:
        """False: a projection mixes all texts of a row."""
        return False

    def prepare(
        self,
        mask: Mask,
        bias: Tensor | None,
        shape: tuple[int, int, int],
        like: Tensor,
        *,
        flex: bool,
    ) -> ProjectedMask:
        """Return which positions of a row are text; every query sees every projected key.

        Raises:
            UserError: the mask excludes more than padding, something is added to the scores, or
                rows are longer than `length`.
        """
        _, queries, keys = shape
        if bias is not None:
            raise UserError(
                "model.position: attention 'linformer' cannot add position scores; use 'learned', "
                "'sinusoidal' or 'rotary'"
            )
        if queries != keys or keys > self.length:
            raise UserError(
                f"model.attention.length: 'linformer' projects whole rows of at most {self.length} "
                f"positions, got {queries} queries and {keys} keys"
            )
        if isinstance(mask, FullMask):
            return ProjectedMask()
        if not isinstance(mask, DocumentMask) or not _is_one_text(mask.keys):
            raise UserError(
                "model.attention: 'linformer' mixes all positions of a row, which must be one "
                "text, read from both sides; use layout 'encoder' and packing.document_mask=false"
            )
        return ProjectedMask((mask.keys < 0)[:, None, :, None])

    def build(self, heads: int, d_head: int, layers: int) -> list[AttentionMechanism]:
        """Return a module for each layer, or one for all."""
        if self.share == "layers":
            return [LinformerAttention(self, heads)] * layers
        return [LinformerAttention(self, heads) for _ in range(layers)]


@dataclass(frozen=True)
class ProjectedMask:
    """The positions of each row that are projected.

    Attributes:
        is_padding: positions projected as zeros, (batch, 1, keys, 1) bool; None if all positions
            are text.
    """

    is_padding: Tensor | None = None


def _is_one_text(documents: Tensor) -> bool:
    """Return whether each row of (batch, keys) holds one document, from its start, and padding."""
    is_one = (documents == documents[:, :1]) | (documents < 0)
    return torch.compiler.is_exporting() or bool(is_one.all())


class LinformerAttention(AttentionMechanism):
    """The projections of one layer, or of all.

    Args:
        settings: sizes, and what is shared.
        heads: attention heads.
    """

    def __init__(self, settings: Linformer, heads: int) -> None:
        super().__init__()
        matrices = heads if settings.share == "none" else 1
        self.projected = settings.projected
        self.keys = nn.Linear(settings.length, matrices * settings.projected, bias=False)  # E
        self.values = self.keys  # F
        if settings.share in ("none", "heads"):
            self.values = nn.Linear(settings.length, matrices * settings.projected, bias=False)

    def mask(self, queries: int, keys: int) -> Mask | None:
        """Return None: each query sees mixtures of all keys."""
        return None

    def forward(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        prepared_mask: ProjectedMask,
        scale: float,
        dropout: float,
        position_scores: Tensor | None,
    ) -> Tensor:
        """Return (batch, heads, queries, d_head).

        Raises:
            UserError: something is added to the scores.
        """
        if position_scores is not None:
            raise UserError(
                "model.position: attention 'linformer' cannot add position scores; use 'learned', "
                "'sinusoidal' or 'rotary'"
            )
        if prepared_mask.is_padding is not None:
            k, v = (x.masked_fill(prepared_mask.is_padding, 0.0) for x in (k, v))
        k, v = self._project(self.keys, k), self._project(self.values, v)
        return attend(q, k, v, PreparedMask(), scale, dropout)

    def _project(self, projection: nn.Linear, x: Tensor) -> Tensor:
        """(batch, heads, keys, d_head) -> (batch, heads, projected, d_head)."""
        length = projection.in_features
        weight = projection.weight.to(x.dtype).view(-1, self.projected, length)[..., : x.shape[2]]
        return weight @ x  # (heads or 1, projected, keys) @ (batch, heads, keys, d_head)
