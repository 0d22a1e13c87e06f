"""Training some rows of a matrix alone, such as the embeddings of new tokens."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import nn

_ROWS = "trained_rows"  # the attribute of such a matrix


def train_rows(matrix: nn.Parameter, rows: Sequence[int]) -> None:
    """Train some rows: the gradient of the others is 0, and weight decay leaves the matrix out.

    Args:
        matrix: (rows, width).
        rows: which of them.
    """
    is_trained = torch.zeros(len(matrix), 1, dtype=torch.bool)
    is_trained[list(rows)] = True
    matrix.requires_grad_(True)
    tensor: Any = matrix
    tensor.register_hook(lambda gradient: gradient * is_trained.to(gradient.device))
    setattr(matrix, _ROWS, len(rows))


def count_trained(parameter: nn.Parameter) -> int:
    """Return how many numbers of a parameter are trained."""
    if not parameter.requires_grad:
        return 0
    rows: int | None = getattr(parameter, _ROWS, None)
    return parameter.numel() if rows is None else rows * parameter.shape[1]


def trains_rows(parameter: nn.Parameter) -> bool:
    """Return whether some rows of a parameter are trained alone."""
    return hasattr(parameter, _ROWS)
