"""The gradient of logistic regression, in place."""

from __future__ import annotations

import numpy as np
import torch

from foreword.types import Array


def to_log_likelihood_gradients(scores: Array, positives: int) -> None:
    """Replace scores by gradients of the log-likelihood: 1 - s(x) of positives, -s(x) of negatives.

    Args:
        scores: (..., columns) float32, overwritten.
        positives: the number of first columns that are positives; the others are negatives.
    """
    np.negative(scores, out=scores)
    torch.from_numpy(scores).sigmoid_()  # 1 - s(x) = s(-x)
    scores[..., positives:] -= 1
