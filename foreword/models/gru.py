"""Gated recurrent units: an LSTM's long reach with a single state and fewer gates."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

from torch import nn

from foreword.nn.recurrent import RecurrentSettings


@dataclass(frozen=True)
class GRU(RecurrentSettings):
    """Gated recurrent units, stacked.

    Reference: Cho et al. 2014.
    Differs from the paper: the reset gate is applied after the recurrent map, as in cuDNN.
    """

    core: ClassVar[Callable[..., nn.RNNBase]] = nn.GRU
