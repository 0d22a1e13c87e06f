"""A softmax over outputs that belong together: the options of a question, a window's positions."""

from __future__ import annotations

import torch
from torch import Tensor

from foreword.types import Loss


def cross_entropy_over_groups(outputs: Tensor, targets: Tensor, numbers: Tensor) -> Loss:
    """Return the cross-entropy of the right output of each group, a mean over columns, in nats.

    Args:
        outputs: scores, (outputs, columns); each column has a softmax of its own.
        targets: 1 for the right output of its group and 0 for others, (outputs, columns) float32.
        numbers: the group of each output, (outputs,) int64, in ascending order.

    Returns:
        The sum over groups, and their number.
    """
    groups, index = torch.unique_consecutive(numbers, return_inverse=True)
    index = index[:, None].expand_as(outputs)
    greatest = outputs.new_full((len(groups), outputs.shape[1]), -torch.inf)
    greatest = greatest.scatter_reduce(0, index, outputs.detach(), "amax")
    shifted = outputs - greatest.gather(0, index)
    sums = torch.zeros_like(greatest).scatter_add(0, index, shifted.exp())
    total = (sums.log().sum() - (shifted * targets).sum()) / outputs.shape[1]
    return Loss(total, total.new_tensor(float(len(groups))))
