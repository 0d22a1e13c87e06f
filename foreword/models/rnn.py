"""The plain recurrent network: h' = tanh(W_x x + W_h h + b)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

from torch import nn

from foreword.nn.recurrent import RecurrentSettings


@dataclass(frozen=True)
class RNN(RecurrentSettings):
    """Its gradient shrinks or grows with each step back, by powers of W_h.

    Reference: Elman 1990; Mikolov et al. 2010.
    Differs from the papers: as in cuDNN there are two biases, of which one would do.
    """

    core: ClassVar[Callable[..., nn.RNNBase]] = nn.RNN
