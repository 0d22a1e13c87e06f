"""Gated DeltaNet: a matrix of associations per head in place of attention, linear in the length."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from foreword.errors import UserError
from foreword.nn.attentions._contract import Recurrence, RecurrenceKind
from foreword.nn.cache import LayerState
from foreword.nn.delta_rule import DeltaInputs, gated_delta_rule
from foreword.nn.linear import Linear
from foreword.nn.masks import AndMask, CausalMask, DocumentMask, Mask, RaggedCausalMask
from foreword.nn.norm import RMSNorm
from foreword.nn.precision import upcast
from foreword.nn.sharded import set_values
from foreword.nn.short_convolution import ShortConvolution
from foreword.settings.ranges import Count

SLOWEST, FASTEST = 0.001, 0.1  # the steps that decays begin from, as in Mamba-2
MOST_RATE = 16.0  # of a decay, at first


@dataclass(frozen=True)
class GatedDeltaNet(RecurrenceKind):
    """A layer that reads from left to right into a state of one size: time linear in the length.

    Each head has a matrix that maps keys to values. At each position it decays by a learned share,
    the value under the position's key is replaced by a learned share, and the query reads. What is
    remembered is at most d_key associations per head, so long texts are forgotten in part; full
    attention in every fourth layer (`dense_every`, `first_dense`) recalls what is.

    Queries, keys and values pass a short convolution and SiLU, queries and keys have length 1, and
    the output is normalised per head and gated. There are no biases and no positions: the order is
    that of reading. Documents of a row are kept apart; caches hold the state and a few positions.
    On a GPU the kernels of `flash-linear-attention` compute it where that is installed.

    Attributes:
        heads: heads; default the model's.
        d_key: width of a query or key; default the model's d_head.
        d_value: width of a value; default the model's d_head.
        convolution: positions of the short convolution.
        chunk: positions that are computed at once; it changes no result.

    Also called: gated delta rule, linear attention.
    Reference: Yang, Kautz & Hatamizadeh 2024, "Gated Delta Networks: Improving Mamba2 with Delta
    Rule"; Yang et al. 2024, "Parallelizing Linear Transformers with the Delta Rule over Sequence
    Length".
    Differs from the paper: values as wide as keys by default, not twice, which makes the layer
    about as large as attention's.
    """

    heads: Count | None = None
    d_key: Count | None = None
    d_value: Count | None = None
    convolution: Count = 4
    chunk: Literal[16, 32, 64, 128] = 64

    def prepare(
        self,
        mask: Mask,
        bias: Tensor | None,
        shape: tuple[int, int, int],
        like: Tensor,
        *,
        flex: bool,
    ) -> Tensor | None:
        """Return the documents of a row, (batch, length) int64; None if it is one.

        Raises:
            UserError: the mask lets a position see later ones.
        """
        first, last = (mask.left, mask.right) if isinstance(mask, AndMask) else (mask, None)
        if not isinstance(first, CausalMask | RaggedCausalMask) or not isinstance(
            last, DocumentMask | None
        ):
            raise UserError(
                "model.attention: 'gated_deltanet' reads from left to right only; use layout "
                "'decoder'"
            )
        documents: Tensor | None = None if last is None else last.queries
        return documents

    def build(self, d_model: int, heads: int, d_head: int, norm_eps: float) -> Recurrence:
        """Return one layer."""
        sizes = self.heads or heads, self.d_key or d_head, self.d_value or d_head
        return GatedDeltaLayer(self, d_model, sizes, norm_eps)


class GatedDeltaLayer(Recurrence):
    """One layer of gated DeltaNet.

    Args:
        settings: choices.
        d_model: width of the states.
        sizes: heads, width of a key, width of a value.
        norm_eps: added to the variance by the norm of each head.
    """

    def __init__(
        self, settings: GatedDeltaNet, d_model: int, sizes: tuple[int, int, int], norm_eps: float
    ) -> None:
        super().__init__()
        self.chunk = settings.chunk
        self.heads, self.d_key, self.d_value = heads, d_key, d_value = sizes
        channels = heads * (2 * d_key + d_value)
        self.query_key_value = Linear(d_model, channels, bias=False)
        self.convolution = ShortConvolution(channels, settings.convolution)
        self.decay_write = Linear(d_model, 2 * heads, bias=False)
        self.log_rate = nn.Parameter(torch.empty(heads))
        self.step_bias = nn.Parameter(torch.empty(heads))
        self.norm = RMSNorm(d_value, norm_eps)
        self.gate = Linear(d_model, heads * d_value, bias=False)
        self.output = Linear(heads * d_value, d_model, bias=False)

    def forward(
        self, x: Tensor, prepared_mask: Tensor | None, before: LayerState | None
    ) -> tuple[Tensor, LayerState]:
        """Return (batch, length, d_model), and the state after the last position."""
        if torch.compiler.is_exporting():
            raise UserError(
                "model.attention: 'gated_deltanet' has no graph for texts of any length"
            )
        state, recent = (None, None) if before is None else before.parts
        # Queries, keys and values, each knowing a few positions before.
        convolved, recent = self.convolution(self.query_key_value(x), recent, prepared_mask)
        widths = [self.heads * width for width in (self.d_key, self.d_key, self.d_value)]
        q, k, v = torch.split(F.silu(convolved), widths, -1)
        # In float32, as a recurrence: the rule, and what its gates are made of.
        rate, write = self.decay_write(x).chunk(2, -1)
        with torch.autocast(x.device.type, enabled=False):
            q, k, v = (torch.unflatten(upcast(x), -1, (self.heads, -1)) for x in (q, k, v))
            q = _unit(q) * self.d_key**-0.5
            step = F.softplus(upcast(rate) + upcast(self.step_bias))
            log_decay = -upcast(self.log_rate).exp() * step
            given = (q, _unit(k), v, log_decay, upcast(write).sigmoid())
            inputs = DeltaInputs(*(each.transpose(1, 2) for each in given))
            read, state = gated_delta_rule(inputs, prepared_mask, state, self.chunk)
        # Each head normalised, gated, and mapped back.
        normalised = self.norm(read.transpose(1, 2).to(x.dtype)).flatten(2)
        out: Tensor = self.output(normalised * F.silu(self.gate(x)))
        return out, LayerState((state, recent))

    @torch.no_grad()
    def initialise(self, random: torch.Generator) -> None:
        """Draw decays and convolution as published, whatever the scheme of the model."""
        rate = torch.rand(self.heads, generator=random).mul_(MOST_RATE).clamp_(min=0.01)
        set_values(self.log_rate, rate.log_())
        share = torch.rand(self.heads, generator=random)
        step = torch.exp(share * math.log(FASTEST / SLOWEST) + math.log(SLOWEST))
        set_values(self.step_bias, step.expm1().log_())  # whose softplus is the step
        weight = self.convolution.weight
        bound = weight.shape[2] ** -0.5
        drawn = torch.rand(weight.shape, generator=random)
        set_values(weight, drawn.mul_(2 * bound).sub_(bound))


def _unit(x: Tensor) -> Tensor:
    """Return vectors of length 1, (..., width)."""
    return x * torch.rsqrt(x.square().sum(-1, keepdim=True) + 1e-6)
