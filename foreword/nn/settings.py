"""The settings that every neural model has: what embeddings, heads and initialisation ask for."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal

from foreword.kinds import part
from foreword.nn.lm_head_kind import LMHeadKind
from foreword.ranges import Count, CountOrZero, Epsilon, NonNegative, Ranged, ShareBelowOne

if TYPE_CHECKING:
    from foreword.nn.model import Backbone


@dataclass(frozen=True)
class Architecture(Ranged, ABC):
    """What a recipe asks of every kind in `models/`, neural or not."""

    reads_ahead: ClassVar[bool] = True  # whether a place may depend on what stands behind it
    reads_source: ClassVar[bool] = False  # whether it has an encoder for a source of its own
    predicts_both_directions: ClassVar[bool] = False  # whether two directions predict, kept apart
    trains_offline: ClassVar[bool] = (
        False  # learns from the whole text by Backbone.fit, not in the loop
    )
    is_count_based: ClassVar[bool] = False  # a table: no gradients, no states, texts read whole

    @abstractmethod
    def build(self, vocab: int) -> Backbone:
        """The backbone for a vocabulary of `vocab` ids, its weights not yet initialised."""

    @property
    def limit(self) -> int | None:
        """The greatest length it can read, or None."""
        return None

    @property
    def required_length(self) -> int | None:
        """The one length of row that it can be trained on, or None."""
        return None

    @property
    def supports_document_masking(self) -> bool:
        """Whether it can keep the texts of one row apart."""
        return True

    @property
    def assumes_causal_mask(self) -> bool:
        """Whether it counts on a layout that lets no place see later ones."""
        return False

    @property
    def two_streams(self) -> bool:
        """Whether it has a start for the second stream of layout `two_streams`."""
        return False

    @property
    def memory(self) -> int:
        """How many places of the row before a row looks back at."""
        return 0

    @property
    def has_memory(self) -> bool:
        """Whether a row hands something on to the next, so that rows must follow one another."""
        return False

    def offline_epochs(self, unit: str, amount: float) -> int:
        """How often a model that is fitted reads the text for a budget of so much.

        Args:
            unit: of the budget: steps, epochs, tokens, flops or hours.
            amount: in that unit.

        Raises:
            UserError: it cannot keep such a budget.
        """
        raise TypeError(f"{type(self).__name__} is not fitted")


@dataclass(frozen=True)
class ModelSettings(Architecture):
    """The settings that every neural model has; a kind in `models/` adds its own.

    Attributes:
        d_model: width of the states.
        layers: number of layers (of the encoder, where there is one).
        norm: LayerNorm or RMSNorm.
        norm_eps: added to the variance.
        bias: whether linear maps and LayerNorms have biases.
        d_embedding: width of the embeddings, widened to d_model by a linear map (ALBERT); d_model
            and no map if unsaid.
        segments: number of segment embeddings (BERT has 2), 0 for none.
        normalise_embedding: LayerNorm after the embeddings (BERT).
        dropout: of embeddings and of each part's output; a model may have it elsewhere too.
        tied: the output layer is the embedding.
        scale_logits: divide the states by sqrt(d_model) before a tied output layer (T5).
        output: the layer that predicts tokens, a kind in `nn/lm_heads/`, where the objective has
            none of its own.
        init: how weights start; see `foreword.nn.init`.
        init_std: standard deviation of `bert` and `gpt2` initialisation, bound of `uniform`.
    """

    d_model: Count = 256
    layers: Count = 4
    norm: Literal["layer", "rms"] = "layer"
    norm_eps: Epsilon = 1e-5
    bias: bool = True
    d_embedding: Count | None = None
    segments: CountOrZero = 0
    normalise_embedding: bool = False
    dropout: ShareBelowOne = 0.1
    tied: bool = True
    scale_logits: bool = False
    output: LMHeadKind = part("nn/lm_heads", "softmax")
    init: Literal["bert", "gpt2", "t5", "uniform"] = "bert"
    init_std: NonNegative = 0.02

    @property
    def depth(self) -> int:
        """Layers in all, of encoder and decoder."""
        return self.layers

    @property
    def state_width(self) -> int:
        """Width of the states that heads read; d_model but for models that say otherwise."""
        return self.d_model

    @property
    def token_width(self) -> int:
        """Width of what of the states predicts tokens: all, but for models of two directions.

        There it is the first columns, which have read nothing ahead.
        """
        return self.state_width

    @property
    def embedding_width(self) -> int:
        """d_embedding, worked out."""
        return self.d_embedding or self.d_model
