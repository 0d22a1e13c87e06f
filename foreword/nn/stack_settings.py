"""The settings of every Transformer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from foreword.nn.attentions._contract import MixerKind, RecurrenceKind
from foreword.nn.attentions.dense import Dense
from foreword.nn.model import ModelSettings
from foreword.nn.positions._contract import PositionKind
from foreword.settings.kinds import part
from foreword.settings.ranges import Count, CountOrZero, Positive, PrefixLengthOrZero, ShareBelowOne


@dataclass(frozen=True)
class StackSettings(ModelSettings):
    """The settings of every Transformer; a kind in `models/` adds its own.

    Attributes:
        heads: attention heads.
        d_head: width of a head; default d_model / heads.
        d_ff: width of the feed-forward layer; default 4 d_model.
        activation: activation of the feed-forward layer; `geglu` and `swiglu` are gated.
        feedforward: give each block a feed-forward layer; without, it is attention alone, and d_ff
            and the activation have no effect.
        residuals: add the input of each sublayer to its output; without, layers of attention alone
            make all tokens of a text alike (Dong et al. 2021).
        residual_scale: a factor of the output of each sublayer before it is added; the layers of a
            base model over those of this one let a deeper model keep its rate (CompleteP, Dey et
            al. 2025).
        norm_position: `pre` normalises the input of each sublayer, `post` the sum after it, `none`
            nothing.
        attention_bias: whether attention's linear maps have biases; default `bias`.
        qk_norm: normalise each query and key, by RMSNorm with weights (d_head,), before they are
            rotated (Henry et al. 2020; Qwen3).
        attention_gate: multiply what each query gathers by a sigmoid of a linear map of its state,
            number by number (Qiu et al. 2025; Qwen3-Next).
        position: position scheme.
        local_position: position scheme of layers whose attention is not dense (ModernBERT); default
            `position`. It cannot add to the embeddings.
        attention: attention mechanism, or a recurrence in its place (`gated_deltanet`).
        dense_every: with another attention than dense, every n-th layer is dense, from
            `first_dense` on; 0 for none.
        first_dense: the first of these layers, from 0; 3 of every 4 makes each fourth dense.
        normalise_first: normalise the input of the first attention, with `norm_position` `pre`;
            unnecessary if embeddings are normalised (ModernBERT).
        share: modules that all layers share (ALBERT).
        attention_dropout: share of attention weights dropped.
        ff_and_output_dropout: apply `dropout` also after the feed-forward layer's activation and to
            the stack's output (T5, Transformer-XL, XLNet).
        embedding_shortcut: mix the embedding into the input of each block after the first, with two
            learned scalars each, at first 1 for the states and 0 for the embedding (modded-nanogpt,
            "x0 lambdas").
        scale_scores: divide attention scores by sqrt(d_head); not in T5.
        attention_prefix: number of learned keys and values of each attention besides those of the
            text, 0 for none; strategy `prefix_tuning` adds them to a trained model.
    """

    heads: Count = 4
    d_head: Count | None = None
    d_ff: Count | None = None
    activation: Literal["relu", "gelu", "gelu_tanh", "geglu", "geglu_tanh", "swiglu"] = "gelu"
    feedforward: bool = True
    residuals: bool = True
    residual_scale: Positive = 1.0
    norm_position: Literal["pre", "post", "none"] = "pre"
    attention_bias: bool | None = None
    qk_norm: bool = False
    attention_gate: bool = False
    position: PositionKind = part("nn/positions", "learned")
    local_position: PositionKind | None = part("nn/positions", is_optional=True)
    attention: MixerKind = part("nn/attentions", "dense")
    dense_every: CountOrZero = 0
    first_dense: CountOrZero = 0
    normalise_first: bool = True
    share: Literal["none", "all", "attention", "feedforward"] = "none"
    attention_dropout: ShareBelowOne = 0.1
    ff_and_output_dropout: bool = False
    embedding_shortcut: bool = False
    scale_scores: bool = True
    attention_prefix: PrefixLengthOrZero = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.d_head is None and self.d_model % self.heads:
            near = [h for h in range(1, self.d_model + 1) if self.d_model % h == 0]
            best = min(near, key=lambda h: abs(h - self.heads))
            raise ValueError(
                f"heads: d_model {self.d_model} is not divisible by {self.heads} heads; "
                f"use {best} heads, or set d_head"
            )
        if not self.normalise_first and (self.norm_position != "pre" or self.share != "none"):
            raise ValueError(
                "normalise_first: false skips the first layer's pre-norm; it requires "
                "norm_position='pre' and share='none'"
            )
        if self.dense_every and self.first_dense >= self.layers:
            raise ValueError(
                f"first_dense: none of {self.layers} layers is dense; set it below that"
            )
        if self.share in ("all", "attention") and 0 < self._recurrences < self.layers:
            raise ValueError(
                f"share: '{self.share}' requires attention of one kind in all layers; use "
                "dense_every=0, or share 'feedforward' or 'none'"
            )

    @property
    def limit(self) -> int | None:
        """The maximum length it can read, or None."""
        components = (self.position, self.local_position, self.attention)
        limits = [part.limit for part in components if part is not None and part.limit is not None]
        return min(limits, default=None)

    @property
    def required_length(self) -> int | None:
        """The only row length its attention can be trained on, or None."""
        return self.attention.required_length

    @property
    def supports_document_masking(self) -> bool:
        """Whether its attention can keep the texts of one row separate."""
        return self.attention.supports_document_masking

    @property
    def has_segments(self) -> bool:
        """Whether its embeddings or its position scheme tell the texts of a pair apart."""
        return super().has_segments or self.position.segments

    @property
    def uses_tanh_gelu(self) -> bool:
        """Whether its GELUs are the approximation by tanh."""
        return self.activation.endswith("_tanh")

    def attention_of(self, layer: int) -> MixerKind:
        """Return the attention of a layer, from 0."""
        after = layer - self.first_dense
        is_dense = self.dense_every and after >= 0 and after % self.dense_every == 0
        return Dense() if is_dense else self.attention

    @property
    def head_width(self) -> int:
        """d_head, or its default."""
        return self.d_head or self.d_model // self.heads

    @property
    def cache_width(self) -> int:
        """Numbers in the key-value cache per position: keys and values of all layers."""
        have_keys = self.layers - self._recurrences
        return 2 * self.heads * self.head_width * have_keys

    @property
    def cache_can_be_ragged(self) -> bool:
        """Whether rows of one batch may have caches of different lengths: dense ones and states."""
        return self.attention.is_dense or 0 < self._recurrences < self.layers

    @property
    def reads_ahead(self) -> bool:
        """Whether a position may depend on later ones: not where a layer reads left to right."""
        return not self._recurrences

    @property
    def _recurrences(self) -> int:
        """Number of layers that have a state in place of keys."""
        if not isinstance(self.attention, RecurrenceKind):
            return 0
        after = max(0, self.layers - self.first_dense)
        return self.layers - (-(-after // self.dense_every) if self.dense_every else 0)

    @property
    def ff_width(self) -> int:
        """d_ff, or its default."""
        return self.d_ff or 4 * self.d_model
