"""The states of all layers as one, by weights that are learned with the task."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from foreword.errors import UserError


class ScalarMix(nn.Module):
    """gamma * sum over layers j of s_j h_j, the shares s by softmax; at first all alike, gamma 1.

    Layer 0 is what enters the first layer.

    Reference: Peters et al. 2018, equation 1; Tenney et al. 2019, section 3.2.
    Differs from the paper: layers are not normalised before, and their weights not decayed.

    Args:
        layers: how many there are, layer 0 included.
    """

    def __init__(self, layers: int) -> None:
        super().__init__()
        self.weights = nn.Parameter(torch.zeros(layers))
        self.gamma = nn.Parameter(torch.ones(()))

    def forward(self, layers: Tensor) -> Tensor:
        """(layers, ..., width) -> (..., width)."""
        shares = torch.softmax(self.weights, dim=0)
        mean = torch.einsum("j,j...->...", shares, layers)
        return self.gamma * mean

    def learned(self) -> dict[str, float]:
        """The share of each layer, and gamma: `layer_0`, `layer_1`, ..., `layer_gamma`."""
        shares = torch.softmax(self.weights.detach(), dim=0).tolist()
        return {f"layer_{n}": share for n, share in enumerate(shares)} | {
            "layer_gamma": float(self.gamma.detach())
        }


def require_layers(layers: Sequence[Tensor] | None) -> Sequence[Tensor]:
    """The layers, where they can be mixed.

    Raises:
        UserError: the model shows none, or they differ in width.
    """
    if layers is None:
        raise UserError("task.mix_layers: this model shows the states of its last layer alone")
    widths = [states.shape[-1] for states in layers]
    if len(set(widths)) > 1:
        said = ", ".join(map(str, widths))
        raise UserError(
            f"task.mix_layers: the layers must be of one width, and this model's are {said}"
        )
    return layers
