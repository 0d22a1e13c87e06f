"""The recurrent network with a cell that gates open and close: gradients reach further back."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

from torch import nn

from foreword.nn.recurrent import RecurrentSettings


@dataclass(frozen=True)
class LSTM(RecurrentSettings):
    """Long short-term memory, stacked.

    Reference: Hochreiter & Schmidhuber 1997; Zaremba et al. 2014.
    Differs from the papers: as in cuDNN there are two biases a gate, of which one would do.
    """

    core: ClassVar[Callable[..., nn.RNNBase]] = nn.LSTM
