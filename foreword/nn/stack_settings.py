"""The settings that every Transformer has."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from foreword.kinds import part
from foreword.nn.attention_kind import AttentionKind
from foreword.nn.position import PositionKind
from foreword.nn.settings import ModelSettings
from foreword.ranges import Count, CountOrZero, ShareBelowOne


@dataclass(frozen=True)
class StackSettings(ModelSettings):
    """The settings that every Transformer has; a kind in `models/` adds its own.

    Attributes:
        heads: attention heads.
        d_head: width of a head; d_model / heads if unsaid.
        d_ff: width of the feed-forward layer; 4 d_model if unsaid.
        activation: of the feed-forward layer; `geglu` and `swiglu` are gated.
        norm_position: `pre` normalises what enters a part, `post` the sum that leaves it.
        attention_bias: whether attention's linear maps have biases; as `bias` if unsaid.
        position: how a token's place is told.
        local_position: the same in layers whose attention is not dense (ModernBERT); as `position`
            if unsaid. It cannot add to the embeddings.
        attention: how queries meet keys; dense unless said otherwise.
        dense_every: with another attention, layers 0, n, 2n, ... are dense; 0 for none.
        normalise_first: whether what enters the first attention is normalised, with `norm_position`
            `pre`; embeddings that are normalised need it no more (ModernBERT).
        share: what all layers have in common (ALBERT).
        attention_dropout: of attention weights.
        ff_and_output_dropout: `dropout` also of what the feed-forward layer's activation gives, and
            of the states that leave the stack (T5, Transformer-XL, XLNet).
        scale_scores: divide attention scores by sqrt(d_head); T5 does not.
    """

    heads: Count = 4
    d_head: Count | None = None
    d_ff: Count | None = None
    activation: Literal["relu", "gelu", "gelu_tanh", "geglu", "geglu_tanh", "swiglu"] = "gelu"
    norm_position: Literal["pre", "post"] = "pre"
    attention_bias: bool | None = None
    position: PositionKind = part("nn/positions", "learned")
    local_position: PositionKind | None = part("nn/positions", is_optional=True)
    attention: AttentionKind = part("nn/attentions", "dense")
    dense_every: CountOrZero = 0
    normalise_first: bool = True
    share: Literal["none", "all", "attention", "feedforward"] = "none"
    attention_dropout: ShareBelowOne = 0.1
    ff_and_output_dropout: bool = False
    scale_scores: bool = True

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.d_head is None and self.d_model % self.heads:
            near = [h for h in range(1, self.d_model + 1) if self.d_model % h == 0]
            best = min(near, key=lambda h: abs(h - self.heads))
            raise ValueError(
                f"heads: d_model {self.d_model} is not divisible by {self.heads} heads; "
                f"{best} heads would do, or set d_head"
            )
        if not self.normalise_first and (self.norm_position != "pre" or self.share != "none"):
            raise ValueError(
                "normalise_first: false leaves the first of the norms out that stand before each "
                "part, so it wants norm_position 'pre' and share 'none'"
            )

    @property
    def limit(self) -> int | None:
        """The greatest length it can read, or None."""
        components = (self.position, self.local_position, self.attention)
        limits = [part.limit for part in components if part is not None and part.limit is not None]
        return min(limits, default=None)

    @property
    def required_length(self) -> int | None:
        """The one length of row that its attention can be trained on, or None."""
        return self.attention.required_length

    @property
    def supports_document_masking(self) -> bool:
        """Whether its attention can keep the texts of one row apart."""
        return self.attention.supports_document_masking

    @property
    def head_width(self) -> int:
        """d_head, worked out."""
        return self.d_head or self.d_model // self.heads

    @property
    def ff_width(self) -> int:
        """d_ff, worked out."""
        return self.d_ff or 4 * self.d_model
