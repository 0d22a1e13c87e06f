"""The contract of models: settings, the backbone that they build, and its heads.

Each kind in `models/` is a class of settings (`Architecture`) that builds a `Backbone`; an
objective adds the heads, and both make a `Model`. What only some models can do is a separate class:

    Backbone           states that predict tokens: every model, n-grams too
      NeuralBackbone   weights, embeddings and the settings of a network (`ModelSettings`)
    OfflineBackbone    learns from the whole text at once (`foreword.nn.offline_training`)
    SourceBackbone     encodes a separate source
    MemoryBackbone     attends to positions of the previous row
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal, cast

from torch import Tensor, nn

from foreword.errors import UserError
from foreword.nn.embedding import Embedding
from foreword.nn.heads import HeadInput, TokenHead
from foreword.nn.lm_heads._contract import LMHeadKind
from foreword.nn.norm import build_norm
from foreword.settings import kinds
from foreword.settings.kinds import part
from foreword.settings.ranges import Count, CountOrZero, Epsilon, NonNegative, Ranged, ShareBelowOne
from foreword.types import Array, Batch, Hidden, Vocab

_NOT_NEURAL = "a count-based model has no hidden states and no gradients; use a neural one"


@dataclass(frozen=True)
class Architecture(Ranged, ABC):
    """The contract of every kind in `models/`, neural or not."""

    reads_source: ClassVar[bool] = False  # whether it has an encoder for a separate source
    predicts_both_directions: ClassVar[bool] = (
        False  # whether two separate directions predict (ELMo)
    )
    has_layers: ClassVar[bool] = True  # a token's state may depend on other tokens
    trains_offline: ClassVar[bool] = False  # learns outside the loop (`OfflineArchitecture`)
    is_count_based: ClassVar[bool] = False  # a table of counts, without gradients or states

    @abstractmethod
    def build(self, vocab: int) -> Backbone:
        """Return the backbone for a vocabulary of `vocab` ids, its weights not yet initialised."""

    @property
    def reads_ahead(self) -> bool:
        """Whether a position may depend on later ones."""
        return True

    def require_packages(self) -> None:
        """Check that the optional packages that training requires are installed.

        Raises:
            UserError: one is not; the message says how to install it.
        """

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
        """The only row length it can be trained on, or None."""
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
        """Number of positions of the previous row that a row attends to."""
        return 0

    @property
    def cache_width(self) -> int:
        """Numbers in the key-value cache per position, over all layers; 0 without a cache."""
        return 0

    @property
    def cache_can_be_ragged(self) -> bool:
        """Whether rows of one batch may have key-value caches of different lengths."""
        return False

    @property
    def has_memory(self) -> bool:
        """Whether a row passes a memory to the next, so that rows must be consecutive."""
        return False


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
        dropout: share dropped of embeddings and of each sublayer's output; some models drop
            elsewhere too.
        tied: make the embedding the output layer.
        scale_logits: divide the states by sqrt(d_model) before a tied output layer (T5).
        lm_head: LM head, a kind in `nn/lm_heads/`, for objectives without their own.
        init: initialisation of weights; see `foreword.nn.init`.
        init_std: standard deviation of `bert` and `gpt2` initialisation, bound of `uniform`.
        zero_init_residual: begin the maps that write to the residual stream at zero, so that each
            block begins as the identity (Zhang et al. 2019, Fixup).
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
    lm_head: LMHeadKind = part("nn/lm_heads", "softmax")
    init: Literal["bert", "gpt2", "t5", "uniform"] = "bert"
    init_std: NonNegative = 0.02
    zero_init_residual: bool = False

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

    @property
    def has_segments(self) -> bool:
        """Whether it tells the texts of a pair apart."""
        return self.segments > 1

    @property
    def uses_tanh_gelu(self) -> bool:
        """Whether its GELUs are the approximation by tanh."""
        return False

    @property
    def head_input(self) -> HeadInput:
        """The part of the states that is read by heads that predict tokens."""
        scale = self.token_width**-0.5 if self.scale_logits else 1.0
        return HeadInput(self.token_width, scale, self.bias)

    def build_norm(self, width: int) -> nn.Module:
        """Return a new norm of vectors of this width."""
        return build_norm(self.norm, width, self.norm_eps, bias=self.bias)

    def build_embedding(
        self,
        vocab: int,
        *,
        projects: bool = True,
        token: nn.Module | None = None,
        bigrams: int = 0,
    ) -> Embedding:
        """Return the input of the stack.

        Args:
            vocab: number of tokens.
            projects: whether embeddings of another width are projected to d_model.
            token: embeds tokens in place of a table.
            bigrams: rows for pairs of tokens, 0 for none.
        """
        width = self.embedding_width
        return Embedding(
            token or nn.Embedding(vocab, width),
            segments=self.segments,
            norm=self.build_norm(width) if self.normalise_embedding else None,
            dropout=self.dropout,
            project_to=self.d_model if projects and self.d_embedding else None,
            bigrams=bigrams,
        )


class Backbone(nn.Module, ABC):
    """The part below the heads, neural or not: `forward(batch, cache) -> Hidden`."""

    @abstractmethod
    def forward(self, batch: Batch, cache: Any = None) -> Hidden:
        """Return the states of every position of the batch, (batch, length, width)."""

    @abstractmethod
    def build_token_head(self) -> nn.Module:
        """Return the model's own head, which predicts the next token from the states."""

    def set_spellings(self, vocab: Vocab) -> None:
        """Set the spellings of tokens, in a model that reads characters; others ignore them."""

    @property
    def extra_values(self) -> int:
        """Number of learned values that are not parameters, as in a table of counts."""
        return 0

    def save(self, folder: Path) -> None:
        """Write what it has learned besides its parameters into an existing folder."""

    def load(self, folder: Path) -> None:
        """Load what `save` wrote.

        Raises:
            UserError: the files are damaged, or of another recipe.
        """


class NeuralBackbone(Backbone):
    """The network below the heads.

    Attributes:
        settings: the kind it was built from.
        embedding: the embedding of tokens; heads may share it.
        first_contextual_layer: the lowest layer whose state at one position affects later ones; 0
            is the input of the first layer.
        selects_positions: whether it returns the states of `ReadPositions` alone.
        counts: occurrences of each token in the training text, (vocab,) int64; None if
            it keeps none.
    """

    first_contextual_layer: ClassVar[int] = 0

    selects_positions: ClassVar[bool] = False

    settings: ModelSettings
    embedding: Embedding
    counts: Array | None = None

    def layer_modules(self) -> list[nn.Module]:
        """Return the modules of each layer, from the lowest to the highest; none by default.

        What stands above the last layer belongs to it; all else, such as embeddings and position
        schemes, stands below the first. Modules may be views that share the weights.
        """
        return []

    def by_layer(self, batch: Batch, cache: Any = None) -> Hidden:
        """Like `forward`, with the states of each layer in `Hidden.layers`; None if it has none."""
        hidden: Hidden = self(batch, cache)
        return hidden

    def with_layer_gradients(self, batch: Batch) -> Hidden:
        """Like `by_layer`, with `layers` for gradients only, their values being meaningless.

        The gradient with respect to `layers[n][b, t]` is that with respect to the state of layer n
        at position t, along every path from it to later states. Where each layer depends on the
        layer below alone, `by_layer` returns such states.

        Raises:
            UserError: this model offers no such states.
        """
        kind = kinds.name_of(self.settings)
        raise UserError(
            f"'{kind}' offers no gradients with respect to its states; models that can: "
            "recurrent ones and Transformers"
        )

    def build_token_head(self) -> nn.Module:
        """Return the model's own head, which predicts the next token from the states."""
        settings = self.settings
        return settings.lm_head.build(settings.head_input, self.embedding, is_tied=settings.tied)

    def build_softmax_head(self, *, transform: bool = False, bias: bool = False) -> TokenHead:
        """Return a full softmax, for objectives that bring their own head.

        Args:
            transform: put a dense layer, GELU and a norm before the output layer (BERT).
            bias: whether each token has a bias.

        Raises:
            ValueError: the model's settings ask for another output layer.
        """
        settings, width = self.settings, self.embedding.token.embedding_dim
        if not settings.lm_head.is_full_softmax:
            raise ValueError("lm_head: the objective brings its own output layer; use 'softmax'")
        layers = None
        if transform:
            layers = nn.Sequential(
                nn.Linear(settings.token_width, width, bias=settings.bias),
                nn.GELU(approximate="tanh" if settings.uses_tanh_gelu else "none"),
                settings.build_norm(width),
            )
        return TokenHead(
            settings.head_input,
            self.embedding,
            is_tied=settings.tied,
            transform=layers,
            bias=bias,
        )


class SourceBackbone(NeuralBackbone):
    """A backbone with an encoder for a separate source: a kind with `reads_source`."""

    @abstractmethod
    def encode(self, source: Batch) -> Tensor:
        """Return the encoder's states of a source, (batch, length, d_model)."""

    def encoder_modules(self) -> list[nn.Module]:
        """Return those of `layer_modules` that `encode` uses."""
        return self.layer_modules()[: self.settings.layers]


class MemoryBackbone(NeuralBackbone):
    """A backbone that can attend to positions of the previous row: a kind with `memory`."""

    @abstractmethod
    def set_memory_length(self, length: int) -> None:
        """Keep `length` positions of a row as the memory of the next."""


class Model(nn.Module):
    """A backbone and its heads, by name.

    Args:
        backbone: reads batches.
        heads: what an objective's `heads` returned.
        stage_heads: those of the stages of training before the last; some may be the same.
    """

    def __init__(
        self, backbone: Backbone, heads: nn.ModuleDict, stage_heads: Sequence[nn.ModuleDict] = ()
    ) -> None:
        super().__init__()
        self.backbone = backbone
        self.heads = heads
        if stage_heads:
            self.stage_heads = nn.ModuleList(stage_heads)

    def of_stage(self, number: int) -> Model:
        """Return the backbone with the heads of a stage of training, counted from 0."""
        by_stage = [*getattr(self, "stage_heads", ()), self.heads]
        return Model(self.backbone, by_stage[number])

    @property
    def token_head(self) -> TokenHead:
        """The head that predicts tokens."""
        return cast(TokenHead, self.heads["token"])

    def count_parameters(self) -> int:
        """Return the number of learned values: parameters, shared ones once, and `extra_values`."""
        return sum(p.numel() for p in self.parameters()) + self.backbone.extra_values


def neural(backbone: nn.Module) -> NeuralBackbone:
    """Return a backbone that must be neural.

    Raises:
        UserError: it is count-based.
    """
    if not isinstance(backbone, NeuralBackbone):
        raise UserError(_NOT_NEURAL)
    return backbone


def neural_settings(architecture: Architecture) -> ModelSettings:
    """Return the settings of a model that must be neural.

    Raises:
        UserError: it is count-based.
    """
    if not isinstance(architecture, ModelSettings):
        raise UserError(_NOT_NEURAL)
    return architecture
