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
    vector = [torch.randn(p.shape, generator=generator).to(p) for p in parameters]
    vector = _scaled(vector, 1 / _norm(vector))
    before = [torch.zeros_like(v) for v in vector]
    diagonal: list[float] = []
    beside: list[float] = []
    largest = np.nan
    for _ in range(min(PRODUCTS, sum(p.numel() for p in parameters))):
        product = hessian_product(loss, parameters, vector)
        diagonal.append(_dot(product, vector))
        past = beside[-1] if beside else 0.0
        rest = [
            h - diagonal[-1] * v - past * b for h, v, b in zip(product, vector, before, strict=True)
        ]
        previous, largest = largest, float(eigvalsh_tridiagonal(diagonal, beside)[-1])
        length = _norm(rest)
        if abs(largest - previous) <= TOLERANCE * abs(largest) or length <= 1e-9 * abs(largest):
            break
        beside.append(length)
        before, vector = vector, _scaled(rest, 1 / length)
    return largest


def hessian_product(
    loss: Callable[[], Tensor], parameters: Sequence[Tensor], vector: Sequence[Tensor]
) -> list[Tensor]:
    """Return the product of the Hessian with a vector of length 1."""
    origin = [p.detach().clone() for p in parameters]
    gradients = []
    try:
        for sign in (1.0, -1.0):
            _move(parameters, origin, vector, sign * STEP)
            grads = torch.autograd.grad(loss(), list(parameters), allow_unused=True)
            gradients.append(
                [
                    torch.zeros_like(p) if g is None else g
                    for p, g in zip(origin, grads, strict=True)
                ]
            )
    finally:
        _move(parameters, origin, vector, 0.0)
    return [(plus - minus) / (2 * STEP) for plus, minus in zip(*gradients, strict=True)]


def _move(
    parameters: Sequence[Tensor], origin: Sequence[Tensor], vector: Sequence[Tensor], step: float
) -> None:
    """Set the parameters to `origin` plus a step along the vector."""
    with torch.no_grad():
        for parameter, start, direction in zip(parameters, origin, vector, strict=True):
            parameter.copy_(start + step * direction if step else start)


def _dot(first: Sequence[Tensor], second: Sequence[Tensor]) -> float:
    return sum(float((a.double() * b.double()).sum()) for a, b in zip(first, second, strict=True))


def _norm(vector: Sequence[Tensor]) -> float:
    return float(np.sqrt(_dot(vector, vector)))


def _scaled(vector: Sequence[Tensor], factor: float) -> list[Tensor]:
    return [v * factor for v in vector]
