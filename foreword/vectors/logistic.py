"""The error of a logistic regression, in place."""

from __future__ import annotations

import numpy as np
import torch

from foreword.types import Array


def error_of(scores: Array, right: int) -> None:
    """Replace scores by the gradients of their log-likelihood: 1 - s(x) if right, else -s(x).

    Args:
        scores: (..., columns) float32, overwritten.
        right: the number of first columns that are right; the others are wrong.
    """
    np.negative(scores, out=scores)
    torch.from_numpy(scores).sigmoid_()  # 1 - s(x) = s(-x)
    scores[..., right:] -= 1
