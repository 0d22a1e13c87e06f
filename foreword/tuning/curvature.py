"""The curvature of a loss: the largest eigenvalue of its Hessian, by the Lanczos algorithm."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import torch
from scipy.linalg import eigvalsh_tridiagonal
from torch import Tensor

STEP = 0.01  # length of the step over which gradients are compared
TOLERANCE = 1e-3  # of the eigenvalue, relative
PRODUCTS = 40  # the most to compute
SEED = 1
CURVED = 64  # examples that the loss of a tuned network is looked at on


def largest_eigenvalue(loss: Callable[[], Tensor], parameters: Sequence[Tensor]) -> float:
    """Return the largest eigenvalue of the Hessian of a loss at the parameters' values.

    The Hessian is never formed: Lanczos needs its product with vectors alone, and a product is the
    central difference of gradients along the vector, which works for every kernel. The largest
    eigenvalue converges first; the vectors are not kept orthogonal, which repeats eigenvalues but
    makes up none.

    Args:
        loss: computes the loss, with a graph, from the parameters.
        parameters: where the loss is looked at; they are changed and restored.

    Reference: Lanczos 1950; Pearlmutter 1994 (products without a Hessian); Yao et al. 2020.
    """
    generator = torch.Generator().manual_seed(SEED)
    vector = _flat([torch.randn(p.shape, generator=generator).to(p) for p in parameters])
    vector = vector / vector.double().norm().item()
    before = torch.zeros_like(vector)
    diagonal: list[float] = []
    beside: list[float] = []
    largest = np.nan
    for _ in range(min(PRODUCTS, len(vector))):
        product = hessian_product(loss, parameters, vector)
        diagonal.append((product.double() @ vector.double()).item())
        past = beside[-1] if beside else 0.0
        rest = product - diagonal[-1] * vector - past * before
        previous, largest = largest, float(eigvalsh_tridiagonal(diagonal, beside)[-1])
        length = rest.double().norm().item()
        if abs(largest - previous) <= TOLERANCE * abs(largest) or length <= 1e-9 * abs(largest):
            break
        beside.append(length)
        before, vector = vector, rest / length
    return largest


def hessian_product(
    loss: Callable[[], Tensor], parameters: Sequence[Tensor], vector: Tensor
) -> Tensor:
    """Return the product of the Hessian with a vector of length 1, (numbers,) each."""
    origin = _flat([p.detach() for p in parameters])
    gradients = []
    try:
        for sign in (1.0, -1.0):
            _set(parameters, origin + sign * STEP * vector)
            grads = torch.autograd.grad(loss(), list(parameters), allow_unused=True)
            pairs = zip(parameters, grads, strict=True)
            gradients.append(_flat([torch.zeros_like(p) if g is None else g for p, g in pairs]))
    finally:
        _set(parameters, origin)
    return (gradients[0] - gradients[1]) / (2 * STEP)


def _flat(tensors: Sequence[Tensor]) -> Tensor:
    return torch.cat([tensor.flatten() for tensor in tensors])


def _set(parameters: Sequence[Tensor], values: Tensor) -> None:
    """Give parameters the values of a vector of all of them."""
    with torch.no_grad():
        parts = torch.split(values, [parameter.numel() for parameter in parameters])
        for parameter, part in zip(parameters, parts, strict=True):
            parameter.copy_(part.view_as(parameter))
