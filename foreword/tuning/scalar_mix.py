"""A scalar mix: the weighted mean of all layers' states, with weights learned with the task."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from foreword.errors import UserError


class ScalarMix(nn.Module):
    """The sum gamma * sum over layers j of s_j h_j, with s = softmax(weights).

    Layer 0 is the input of the first layer. At first all s_j are equal and gamma is 1.

    Reference: Peters et al. 2018, equation 1; Tenney et al. 2019, section 3.2.
    Differs from the paper: layers are not normalised first, and the weights have no decay.

    Args:
        layers: number of layers, layer 0 included.
    """

    def __init__(self, layers: int) -> None:
        super().__init__()
        self.weights = nn.Parameter(torch.zeros(layers))
        self.gamma = nn.Parameter(torch.ones(()))

    def forward(self, layers: Tensor) -> Tensor:
        """Return the mix, (layers, ..., width) -> (..., width)."""
        shares = torch.softmax(self.weights, dim=0)
        mean = torch.einsum("j,j...->...", shares, layers)
        return self.gamma * mean

    def learned(self) -> dict[str, float]:
        """Return the weight of each layer, and gamma: `layer_0`, `layer_1`, ..., `layer_gamma`."""
        shares = torch.softmax(self.weights.detach(), dim=0).tolist()
        return {f"layer_{n}": share for n, share in enumerate(shares)} | {
            "layer_gamma": float(self.gamma.detach())
        }


def require_layers(layers: Sequence[Tensor] | None) -> Sequence[Tensor]:
    """Return the layers; raise UserError unless there are several, of one width, to be mixed."""
    if layers is None:
        raise UserError("task.mix_layers: this model returns the states of its last layer only")
    widths = [states.shape[-1] for states in layers]
    if len(set(widths)) > 1:
        raise UserError(
            "task.mix_layers: requires layers of one width; this model's are "
            f"{', '.join(map(str, widths))}"
        )
    return layers
