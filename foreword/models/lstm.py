"""Long short-term memory: a gated cell lets gradients reach further back."""

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
    Differs from the papers: as in cuDNN each gate has two biases, one of them redundant.
    """

    core: ClassVar[Callable[..., nn.RNNBase]] = nn.LSTM
