"""The contract of attention mechanisms, and of what takes attention's place in a layer.

The kinds in `nn/attentions/` are settings: of a mechanism, from queries, keys and values
(`AttentionKind`), or of a whole layer that reads from left to right into a state
(`RecurrenceKind`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from foreword.nn.cache import LayerState
from foreword.nn.masks import Mask
from foreword.settings.ranges import Ranged


class AttentionMechanism(nn.Module, ABC):
    """Attention from queries, keys and values in one layer."""

    @abstractmethod
    def mask(self, queries: int, keys: int) -> Mask | None:
        """Return the keys it attends to among those allowed; None if it mixes all keys.

        The queries are the last of the keys. With a mask, `forward` is dense attention under the
        batch's mask and this one.
        """

    @abstractmethod
    def forward(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        prepared_mask: Any,
        scale: float,
        dropout: float,
        position_scores: Tensor | None,
    ) -> Tensor:
        """Return the weighted values of each query.

        Args:
            q: (batch, heads, queries, d_head).
            k: (batch, heads, keys, d_head).
            v: (batch, heads, keys, d_head).
            prepared_mask: output of the kind's `prepare`.
            scale: factor of the scores.
            dropout: share of attention weights dropped.
            position_scores: added to the scores before scaling, (batch, heads, queries, keys);
                None for most position schemes.

        Returns:
            (batch, heads, queries, d_head); zeros for a query without keys.
        """


class MixerKind(Ranged, ABC):
    """The settings of what lets positions affect each other: a kind in `nn/attentions/`.

    Attributes:
        is_dense: whether every query attends to every key that the mask allows. Query streams and
            memories require it; layers of another kind may have another position scheme.
    """

    is_dense: ClassVar[bool] = False

    @property
    def limit(self) -> int | None:
        """The maximum length, or None."""
        return None

    @property
    def required_length(self) -> int | None:
        """The only row length it can be trained on, or None."""
        return None

    @property
    def supports_document_masking(self) -> bool:
        """Whether a mask can keep the texts of one row separate."""
        return True

    @property
    def sparse_length(self) -> int | None:
        """A length of row at which it is certainly not computed as dense attention, or None."""
        return None

    @abstractmethod
    def prepare(
        self,
        mask: Mask,
        bias: Tensor | None,
        shape: tuple[int, int, int],
        like: Tensor,
        *,
        flex: bool,
    ) -> Any:
        """Prepare the mask, once per forward pass, for all layers.

        Args:
            mask: which query may attend to which key.
            bias: added to the scores, (heads, queries, keys), or None.
            shape: batch, queries, keys.
            like: a tensor of the device and dtype of the scores.
            flex: whether FlexAttention may be used (CUDA).

        Raises:
            UserError: it does not support this mask or this bias.
        """


class AttentionKind(MixerKind):
    """The settings of an attention mechanism."""

    @abstractmethod
    def build(self, heads: int, d_head: int, layers: int) -> list[AttentionMechanism]:
        """Return a module for each layer of a stack; layers may share one."""


class Recurrence(nn.Module, ABC):
    """A layer that reads from left to right into a state of one size, projections and all.

    Attributes:
        output: the linear map that writes to the residual stream.
    """

    output: nn.Linear

    @abstractmethod
    def forward(
        self, x: Tensor, prepared_mask: Any, before: LayerState | None
    ) -> tuple[Tensor, LayerState]:
        """Read some positions.

        Args:
            x: (batch, length, d_model).
            prepared_mask: output of the kind's `prepare`.
            before: the state after the positions before; None at the start of the rows.

        Returns:
            (batch, length, d_model), and the state after the last position.
        """

    @abstractmethod
    def initialise(self, random: torch.Generator) -> None:
        """Set the parameters that the model's scheme does not know or should not draw."""


class RecurrenceKind(MixerKind):
    """The settings of a layer without keys; it ignores position schemes."""

    @abstractmethod
    def build(self, d_model: int, heads: int, d_head: int, norm_eps: float) -> Recurrence:
        """Return one layer."""
