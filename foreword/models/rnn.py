"""The plain recurrent network: h' = tanh(W_x x + W_h h + b)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

from torch import nn

from foreword.nn.recurrent import RecurrentSettings


@dataclass(frozen=True)
class RNN(RecurrentSettings):
    """Simple recurrent network, whose gradient shrinks or grows by powers of W_h over steps.

    Also called: vanilla RNN.
    Reference: Elman 1990; Mikolov et al. 2010.
    Differs from the papers: as in cuDNN there are two biases, one of them redundant.
    """

    core: ClassVar[Callable[..., nn.RNNBase]] = nn.RNN
