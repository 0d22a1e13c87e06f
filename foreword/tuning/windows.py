"""Windows over long texts: where they begin, which are read in a step, and how they become one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal

import numpy as np
import torch
from torch import Tensor, nn

from foreword.types import Array

OVERLAP = 4  # neighbouring windows of a pooled text share at least 1 / OVERLAP of their tokens
STEP_WINDOWS = 8  # the most windows of one text in a step of training

Windows = Literal["mean", "max", "attention", "cut"]


def window_begins(length: int, room: int, step: int) -> range:
    """Return where windows of `room` tokens begin, `step` apart, so that all tokens are read."""
    return range(0, max(length - room, 0) + step, step)


def overlapping(ids: Sequence[int], room: int) -> Iterator[Sequence[int]]:
    """Yield as few windows of `room` tokens as overlap by 1 / OVERLAP or more, evenly spaced."""
    count = len(window_begins(len(ids), room, max(room - room // OVERLAP, 1)))
    for begin in np.linspace(0, max(len(ids) - room, 0), count).astype(int).tolist():
        yield ids[begin : begin + room]


def drawn(windows: Array, epoch: int | None) -> Array:
    """Return the windows of a text that a step of training reads, at most STEP_WINDOWS.

    They are evenly spaced, and others in each epoch, so that memory is bounded and all of a long
    text is read in time.

    Args:
        epoch: the epoch; None to read all, as in scoring and prediction.
    """
    if epoch is None or len(windows) <= STEP_WINDOWS:
        return windows
    shift = epoch * (5**0.5 - 1) / 2 % 1  # of the golden ratio: epochs fall between each other
    places = (np.arange(STEP_WINDOWS) + shift) * len(windows) / STEP_WINDOWS
    return np.asarray(windows[places.astype(int)])


class WindowPooling(nn.Module):
    """Reduces the pooled states of a text's windows to one, in float32.

    They are reduced to their mean, to their greatest value in each dimension (`max`), or to their
    mean with weights softmax(w . state) (`attention`), with w = 0 at first, which is the mean. The
    state of a single window stays as it is, bit for bit.
    """

    def __init__(self, how: Windows, width: int) -> None:
        super().__init__()
        self.reduction = "max" if how == "max" else "mean"
        self.attention = nn.Linear(width, 1, bias=False) if how == "attention" else None
        if self.attention is not None:
            nn.init.zeros_(self.attention.weight)

    def forward(self, states: Tensor, windows: Tensor) -> Tensor:
        """Return a state for each text, (windows, width) -> (texts, width).

        Args:
            windows: how many consecutive ones are of each text, (texts,).
        """
        if self.attention is None:
            return torch.segment_reduce(states, self.reduction, lengths=windows)
        scores = self.attention(states)
        greatest = torch.segment_reduce(scores.detach(), "max", lengths=windows)
        weights = (scores - greatest.repeat_interleave(windows, dim=0)).exp()
        total = torch.segment_reduce(weights, "sum", lengths=windows)
        shares = weights / total.repeat_interleave(windows, dim=0)
        return torch.segment_reduce(shares * states, "sum", lengths=windows)
