"""A model: a backbone and the heads that an objective asks for."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar, cast

from torch import nn

from foreword import kinds
from foreword.errors import UserError
from foreword.nn.heads import TokenHead
from foreword.nn.offline_training import FitResult, OfflineInputs
from foreword.nn.settings import ModelSettings
from foreword.types import Batch, Hidden, Vocab


class Backbone(nn.Module):
    """What reads a batch: `forward(batch, memory) -> Hidden`.

    Attributes:
        settings: the kind it was built from.
        embedding: of tokens, which heads may share.
        first_state: the lowest layer whose states hand on, from place to place, what stands before
            them: 0 is what enters the first layer.
    """

    first_state: ClassVar[int] = 0

    settings: ModelSettings
    embedding: Any

    def forward(self, batch: Batch, cache: Any = None) -> Hidden:
        """States of every position of the batch, (batch, length, d_model)."""
        raise TypeError(f"{type(self).__name__} is abstract")

    def set_spellings(self, vocab: Vocab) -> None:
        """Tells how tokens are spelt to a model that reads characters; all others need not know."""

    def by_layer(self, batch: Batch, cache: Any = None) -> Hidden:
        """As `forward`, with the states of each layer (`Hidden.layers`); None if it has none."""
        return self(batch, cache)  # type: ignore[no-any-return]

    def with_layer_gradients(self, batch: Batch) -> Hidden:
        """As `by_layer`, with `layers` for gradients alone, not to be read.

        The gradient with respect to `layers[n][b, t]` is that with respect to the state of layer n
        at place t, along every way that leads from it to later states. Where layers are made of
        one another and of nothing else, `by_layer` gives such states.

        Raises:
            UserError: it shows no such states.
        """
        kind = kinds.name_of(self.settings)
        raise UserError(f"gradients with respect to the states of '{kind}' are not to be had")

    def fit(self, reading: OfflineInputs) -> FitResult:
        """Learns from the whole text, anew: the way of models that `trains_offline`.

        Raises:
            UserError: there is nothing to learn from such a text.
        """
        raise TypeError(f"{type(self).__name__} is not fitted")

    def build_token_head(self) -> nn.Module:
        """A head that predicts the next token from the states."""
        return self.settings.output.build(self.settings, self.embedding)

    @property
    def numbers(self) -> int:
        """How many numbers it has learned beside its parameters: those of a table of counts."""
        return 0

    def save(self, folder: Path) -> None:
        """Writes what it has learned beside its parameters into a folder that is there."""

    def load(self, folder: Path) -> None:
        """Takes what `save` wrote.

        Raises:
            UserError: it is damaged, or of another recipe.
        """


class Model(nn.Module):
    """A backbone and its heads, by name.

    Args:
        backbone: reads batches.
        heads: what an objective's `heads` returned.
    """

    def __init__(self, backbone: Backbone, heads: nn.ModuleDict) -> None:
        super().__init__()
        self.backbone = backbone
        self.heads = heads

    @property
    def token_head(self) -> TokenHead:
        """The head that predicts tokens."""
        return cast(TokenHead, self.heads["token"])

    def count_parameters(self) -> int:
        """Parameters, shared ones counted once; of counts, the numbers that they have come to."""
        return sum(p.numel() for p in self.parameters()) + self.backbone.numbers
