"""The error of a logistic regression, in place."""

from __future__ import annotations

import numpy as np
import torch

from foreword.types import Array


def error_of(scores: Array, right: int) -> None:
    """Makes scores the gradients of their log-likelihood: 1 - s(x) where right, -s(x) elsewhere.

    Args:
        scores: (..., columns) float32, overwritten.
        right: so many of the first columns are right, the others wrong.
    """
    np.negative(scores, out=scores)
    torch.from_numpy(scores).sigmoid_()  # 1 - s(x) = s(-x)
    scores[..., right:] -= 1
