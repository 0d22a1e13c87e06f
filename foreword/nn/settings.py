"""The settings of every neural model: those of embeddings, heads and initialisation."""

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
    """The contract of every kind in `models/`, neural or not."""

    reads_ahead: ClassVar[bool] = True  # whether a position may depend on later ones
    reads_source: ClassVar[bool] = False  # whether it has an encoder for a separate source
    predicts_both_directions: ClassVar[bool] = (
        False  # whether two separate directions predict (ELMo)
    )
    trains_offline: ClassVar[bool] = (
        False  # learns from the whole text by Backbone.fit, not in the loop
    )
    is_count_based: ClassVar[bool] = False  # a table of counts, without gradients or states

    @abstractmethod
    def build(self, vocab: int) -> Backbone:
        """Return the backbone for a vocabulary of `vocab` ids, its weights not yet initialised."""

    @property
    def limit(self) -> int | None:
        """The maximum length it can read, or None."""
        return None

    @property
    def family(self) -> str:
        """A short description for messages; "" if layout and objective describe the model."""
        return ""

    @property
    def required_length(self) -> int | None:
        """The only length of row it can be trained on, or None."""
        return None

    @property
    def supports_document_masking(self) -> bool:
        """Whether it can keep the texts of one row separate."""
        return True

    @property
    def assumes_causal_mask(self) -> bool:
        """Whether it relies on a layout that lets no position see later ones."""
        return False

    @property
    def two_streams(self) -> bool:
        """Whether it has an initial vector for the query stream of layout `two_streams`."""
        return False

    @property
    def memory(self) -> int:
        """How many positions of the row before a row attends to."""
        return 0

    @property
    def has_memory(self) -> bool:
        """Whether a row passes a memory to the next, so that rows must be consecutive."""
        return False

    def offline_epochs(self, unit: str, amount: float) -> int:
        """Return how often a model trained offline reads the text within a budget.

        Args:
            unit: of the budget: steps, epochs, tokens, flops or hours.
            amount: in that unit.

        Raises:
            UserError: it does not support such a budget.
        """
        raise TypeError(f"{type(self).__name__} is not trained offline")


@dataclass(frozen=True)
class ModelSettings(Architecture):
    """The settings of every neural model; a kind in `models/` adds its own.

    Attributes:
        d_model: width of the states.
        layers: number of layers (of the encoder, where there is one).
        norm: LayerNorm or RMSNorm.
        norm_eps: added to the variance.
        bias: whether linear maps and LayerNorms have biases.
        d_embedding: width of the embeddings, projected to d_model by a linear map (ALBERT); default
            d_model, without a map.
        segments: number of segment embeddings (BERT has 2), 0 for none.
        normalise_embedding: LayerNorm after the embeddings (BERT).
        dropout: of embeddings and of each sublayer's output; some models have it elsewhere too.
        tied: make the embedding the output layer.
        scale_logits: divide the states by sqrt(d_model) before a tied output layer (T5).
        output: LM head, a kind in `nn/lm_heads/`, for objectives without one of their own.
        init: initialisation of weights; see `foreword.nn.init`.
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
        """Number of layers of encoder and decoder together."""
        return self.layers

    @property
    def state_width(self) -> int:
        """Width of the states that heads read; d_model except in models that override it."""
        return self.d_model

    @property
    def token_width(self) -> int:
        """Width of the part of the states that predicts tokens: all, except with two directions.

        There it is the first columns, which have read nothing ahead.
        """
        return self.state_width

    @property
    def embedding_width(self) -> int:
        """d_embedding, or its default."""
        return self.d_embedding or self.d_model
