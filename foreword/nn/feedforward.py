"""The feed-forward layer of a block: one hidden layer, gated or not."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from torch import Tensor, nn
from torch.nn import functional as F

from foreword.nn.dropout import Dropout
from foreword.nn.linear import Linear

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": F.relu,
    "gelu": F.gelu,
    "gelu_tanh": partial(F.gelu, approximate="tanh"),
    "geglu": F.gelu,
    "geglu_tanh": partial(F.gelu, approximate="tanh"),
    "swiglu": F.silu,
}


class FeedForward(nn.Module):
    """Up projection to d_ff, activation, dropout, down projection to d_model.

    Gated variants (GeGLU, SwiGLU; Shazeer 2020) multiply the activation by a second linear map of
    the input, the gate; `up` holds both maps, the activation's first.
    """

    def __init__(
        self, d_model: int, d_ff: int, activation: str, *, bias: bool, dropout: float = 0.0
    ) -> None:
        super().__init__()
        self.is_gated = activation in ("geglu", "geglu_tanh", "swiglu")
        self.activation = ACTIVATIONS[activation]
        self.up = Linear(d_model, d_ff * (2 if self.is_gated else 1), bias=bias)
        self.dropout = Dropout(dropout)
        self.down = Linear(d_ff, d_model, bias=bias)

    def forward(self, x: Tensor) -> Tensor:
        """Return (..., d_model) -> (..., d_model)."""
        hidden = self.up(x)  # (..., d_ff) or (..., 2 d_ff)
        if self.is_gated:
            hidden, gate = hidden.chunk(2, dim=-1)
            hidden = self.activation(hidden) * gate
        else:
            hidden = self.activation(hidden)
        output: Tensor = self.down(self.dropout(hidden))
        return output
