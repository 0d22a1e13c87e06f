"""A model: a backbone and the heads of its objective."""

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
    """The network below the heads: `forward(batch, cache) -> Hidden`.

    Attributes:
        settings: the kind it was built from.
        embedding: of tokens; heads may share it.
        first_state: the lowest layer whose states pass on, from position to position, what comes
            before them; 0 is the input of the first layer.
    """

    first_state: ClassVar[int] = 0

    settings: ModelSettings
    embedding: Any

    def forward(self, batch: Batch, cache: Any = None) -> Hidden:
        """Return the states of every position of the batch, (batch, length, d_model)."""
        raise TypeError(f"{type(self).__name__} is abstract")

    def set_spellings(self, vocab: Vocab) -> None:
        """Set the spellings of tokens, in a model that reads characters; others ignore them."""

    def by_layer(self, batch: Batch, cache: Any = None) -> Hidden:
        """Like `forward`, with the states of each layer in `Hidden.layers`; None if it has none."""
        return self(batch, cache)  # type: ignore[no-any-return]

    def with_layer_gradients(self, batch: Batch) -> Hidden:
        """Like `by_layer`, with `layers` only for gradients: their values mean nothing.

        The gradient with respect to `layers[n][b, t]` is that with respect to the state of layer n
        at position t, along every path from it to later states. Where each layer depends on the
        layer below alone, `by_layer` returns such states.

        Raises:
            UserError: this model offers no such states.
        """
        kind = kinds.name_of(self.settings)
        raise UserError(f"'{kind}' offers no gradients with respect to its states")

    def fit(self, inputs: OfflineInputs) -> FitResult:
        """Learn from the whole text, from scratch: for models with `trains_offline`.

        Raises:
            UserError: nothing can be learned from this text.
        """
        raise TypeError(f"{type(self).__name__} is not trained offline")

    def build_token_head(self) -> nn.Module:
        """Return a head that predicts the next token from the states."""
        return self.settings.output.build(self.settings, self.embedding)

    @property
    def numbers(self) -> int:
        """How many numbers it has learned besides its parameters: those of a count-based model."""
        return 0

    def save(self, folder: Path) -> None:
        """Write what it has learned besides its parameters into an existing folder."""

    def load(self, folder: Path) -> None:
        """Load what `save` wrote.

        Raises:
            UserError: the files are damaged, or of another recipe.
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
        """Return the number of parameters, shared ones once, and of other learned numbers."""
        return sum(p.numel() for p in self.parameters()) + self.backbone.numbers
