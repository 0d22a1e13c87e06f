"""Muon: orthogonalised momentum for matrices, AdamW for all other parameters."""

from __future__ import annotations

import functools
import math
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import numpy as np
import torch
from annotated_types import Interval
from torch import Tensor, nn
from torch.optim import Optimizer

from foreword.nn.sharded import gather, is_sharded, local_part, local_rows
from foreword.settings.ranges import Decay, Epsilon, LearningRate, ShareBelowOne
from foreword.train.device import choose_precision
from foreword.train.optimizers._contract import (
    ONE_RATE,
    OptimizerSettings,
    RateFactor,
    RateFactors,
)
from foreword.train.optimizers._decay import decay_groups, rate_groups
from foreword.train.workers import map_in_threads

RMS = 0.2  # AdamW's usual size of an update's entries, in learning rates
NEWTON_SCHULZ = (3.4445, -4.7750, 2.0315)  # coefficients of the odd polynomial
SPREAD = 0.3  # of singular values around 1 after fitted polynomials
BATCHED, BATCHED_ON = 1 << 20, "cuda"  # the largest matrices taken together, and where
MARGIN = 1.01  # of the largest singular value, for rounding
MATRICES = (nn.Linear, nn.RNNBase)  # modules whose two-dimensional weights are maps of states


Polynomials = Literal["jordan", "minimax"]
Polynomial = tuple[float, float, float]  # coefficients of x, x^3 and x^5


@dataclass(frozen=True)
class Muon(OptimizerSettings):
    """Steps of equal size in every direction of a matrix; AdamW for embeddings and vectors.

    The update of a matrix is about the nearest orthogonal matrix to its momentum, by five
    Newton-Schulz iterations (in bfloat16 where the hardware multiplies it, else in float32), scaled
    so that its entries have AdamW's usual size (0.2 times the square root of the longer side), so
    AdamW's learning rates carry over. AdamW updates embeddings, the output layer over the
    vocabulary, biases and norms. A small linear head, such as ELECTRA's, is a matrix too.

    Attributes:
        lr: peak learning rate, of the matrices and of the rest.
        momentum: decay rate of the mean of gradients of matrices, with Nesterov's look-ahead.
        iterations: Newton-Schulz iterations.
        polynomials: those of the iterations: `jordan`, the same each time, or `minimax`, fitted to
            their number: three reach nearly as small singular values as five of `jordan`, from a
            better first scale, in fewer operations; on a GPU matrices of one shape are taken
            together.
        rest: the learning rate of all that AdamW updates, as a multiple of `lr`;
            `embeddings` is a multiple of that.
        beta1: AdamW's decay rate of the mean of gradients.
        beta2: AdamW's decay rate of the mean of squared gradients.
        eps: added to the root of the mean of squares.
        decay: weight decay, multiplied by the learning rate.

    Reference: Jordan et al. 2024, "Muon: An optimizer for hidden layers in neural networks"; the
    scale is Liu et al. 2025, "Muon is Scalable for LLM Training", section 2.2; `minimax` is that of
    Amsel et al. 2025, "The Polar Express".
    Differs from the paper: keys and values are one matrix, as are the gates of a recurrent layer.
    """

    lr: LearningRate = 2e-3
    momentum: ShareBelowOne = 0.95
    iterations: Annotated[int, Interval(ge=1, le=99)] = 5
    polynomials: Polynomials = "jordan"
    rest: RateFactor = 1.0
    beta1: ShareBelowOne = 0.9
    beta2: ShareBelowOne = 0.98
    eps: Epsilon = 1e-8
    decay: Decay = 0.01

    def build(self, model: nn.Module, factors: RateFactors = ONE_RATE) -> Optimizer:
        """Return one optimizer over both kinds of parameters."""
        matrices = hidden_matrices(model)
        rest = _OtherParameters(model, set(matrices))
        others = decay_groups(rest, self.decay, self.lr * self.rest, factors)
        adamw = torch.optim.AdamW(
            others,
            lr=self.lr * self.rest,
            betas=(self.beta1, self.beta2),
            eps=self.eps,
            fused=True,
        )
        if not matrices:
            return adamw
        muon = OrthogonalMomentum(
            rate_groups(matrices, self.lr, factors),
            lr=self.lr,
            weight_decay=self.decay,
            momentum=self.momentum,
            iterations=self.iterations,
            polynomials=self.polynomials,
        )
        return CombinedOptimizer([muon, adamw])


def hidden_matrices(model: nn.Module) -> list[nn.Parameter]:
    """Return the trained matrices of linear maps and recurrent layers.

    Embeddings and the output layer over the vocabulary are neither.
    """
    return [
        parameter
        for module in model.modules()
        if isinstance(module, MATRICES)
        for parameter in module.parameters(recurse=False)
        if parameter.ndim == 2 and parameter.requires_grad
    ]


Move = tuple[dict[str, Any], Tensor]  # a matrix and its group


class OrthogonalMomentum(Optimizer):
    """Muon for matrices: torch's `torch.optim.Muon`, for shards too, and fast without bfloat16.

    Torch's computes in bfloat16 alone, which a processor without its instructions emulates at a
    hundredth of the speed of float32. Of a matrix of which each process holds some rows, the
    momentum stays divided; what it would move by is gathered, and each process makes it orthogonal.

    Args:
        params: groups of matrices.
        lr: learning rate.
        weight_decay: share of the rate by which weights shrink.
        momentum: decay rate of the mean of gradients.
        iterations: the iterations of `orthogonalise`.
        polynomials: their kind, as in `Muon`.
    """

    def __init__(
        self,
        params: list[dict[str, Any]],
        lr: float,
        weight_decay: float,
        momentum: float,
        iterations: int,
        polynomials: Polynomials = "jordan",
    ) -> None:
        settings = {"lr": lr, "weight_decay": weight_decay, "momentum": momentum}
        super().__init__(params, {**settings, "iterations": iterations})
        self.polynomials = polynomials

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        """Take a step on every matrix that has a gradient.

        On a CPU threads take one matrix after another, with cores of their own: products of small
        matrices do not gain from several cores. One thread takes the step of shards, which all
        processes must gather in the same order.
        """
        moved = [
            (group, matrix)
            for group in self.param_groups
            for matrix in group["params"]
            if matrix.grad is not None
        ]
        if not moved:
            return
        moved.sort(key=lambda pair: _cost(pair[1]), reverse=True)
        first = moved[0][1]
        is_threaded = first.device.type == "cpu" and not is_sharded(first)
        threads = min(len(moved), torch.get_num_threads()) if is_threaded else 1
        dtype = choose_precision("auto", first.device)
        # On a GPU small products are slower to launch than to compute: matrices of one shape are
        # taken together. Jordan's are not, whose last bits this might change.
        is_batched = self.polynomials == "minimax" and first.device.type == BATCHED_ON
        is_batched = is_batched and not is_sharded(first)
        units: dict[Any, list[Move]] = {}
        for n, move in enumerate(moved):
            is_small = move[1].numel() <= BATCHED
            units.setdefault(move[1].shape if is_batched and is_small else n, []).append(move)
        map_in_threads(lambda unit: self._update(unit, dtype), list(units.values()), threads)

    @torch.no_grad()
    def _update(self, unit: list[Move], dtype: torch.dtype) -> None:
        """Move matrices of one shape, with the settings of their groups."""
        ahead = [self._ahead(group, matrix, dtype) for group, matrix in unit]
        iterations = unit[0][0]["iterations"]
        if self.polynomials == "jordan":
            orthogonal = [orthogonalise(matrix, iterations) for matrix in ahead]
        elif len(ahead) == 1:
            orthogonal = [orthogonalise_together(ahead[0], iterations)]
        else:
            orthogonal = list(orthogonalise_together(torch.stack(ahead), iterations))
        for (group, matrix), move in zip(unit, orthogonal, strict=True):
            lr, scale = group["lr"], RMS * math.sqrt(max(move.shape))
            part = local_part(matrix).mul_(1 - lr * group["weight_decay"])
            part.add_(move[local_rows(matrix)], alpha=-lr * scale)

    def _ahead(self, group: dict[str, Any], matrix: Tensor, dtype: torch.dtype) -> Tensor:
        """Return what a matrix would move by with Nesterov's look-ahead, whole in each process."""
        momentum, grad, state = group["momentum"], matrix.grad, self.state[matrix]
        assert grad is not None
        if "momentum_buffer" not in state:
            state["momentum_buffer"] = torch.zeros_like(grad)
        mean = state["momentum_buffer"].lerp_(grad, 1 - momentum)
        return gather(grad.lerp(mean, momentum).to(dtype))


def _cost(matrix: Tensor) -> int:
    """Return the multiplications of an iteration, up to a factor."""
    short, long = sorted(matrix.shape)
    return short * short * (2 * long + short)


def orthogonalise(matrix: Tensor, iterations: int) -> Tensor:
    """Return about the nearest matrix with singular values of 1, in the dtype of this one.

    Newton-Schulz iterations, with Jordan's coefficients: after five, singular values are between
    0.7 and 1.2, but for the smallest.

    Args:
        matrix: (rows, columns).
        iterations: 1, 2, ...
    """
    is_tall = matrix.shape[0] > matrix.shape[1]
    x = matrix.T if is_tall else matrix
    x = x / x.norm().clamp(min=1e-7)  # the largest singular value is at most 1
    first, third, fifth = NEWTON_SCHULZ
    for _ in range(iterations):
        gram = x @ x.T
        x = torch.addmm(x, torch.addmm(gram, gram, gram, beta=third, alpha=fifth), x, beta=first)
    return x.T if is_tall else x


def orthogonalise_together(matrices: Tensor, iterations: int) -> Tensor:
    """Return about the nearest matrices with singular values of 1, in the dtype of these.

    Iterations with the polynomials of `minimax`. The first scale is the fourth root of the sum of
    fourth powers of the singular values, from the first product, much nearer to the largest than
    the norm. In float32 flat matrices stay out of the iterations, which are in the space of the
    short side; rounding of bfloat16 would not allow it.

    Args:
        matrices: (rows, columns) or (count, rows, columns).
        iterations: 1, 2, ...
    """
    is_tall = matrices.shape[-2] > matrices.shape[-1]
    x = matrices.mT if is_tall else matrices
    # The norm comes first, so that squares neither overflow nor vanish.
    x = x / _norm(x).clamp(min=1e-7)
    gram = x @ x.mT
    square = _norm(gram).clamp(min=1e-14)
    gram = gram / square
    polynomials = minimax(iterations)
    factor = _polynomial(gram, polynomials[0])
    if matrices.dtype != torch.bfloat16 and x.shape[-1] > 1.5 * x.shape[-2]:
        product = factor
        for polynomial in polynomials[1:]:
            gram = factor @ gram @ factor
            factor = _polynomial(gram, polynomial)
            product = factor @ product
        x = (product / square.sqrt()) @ x
    else:
        x = (factor / square.sqrt()) @ x
        for polynomial in polynomials[1:]:
            x = _polynomial(x @ x.mT, polynomial) @ x
    return x.mT if is_tall else x


def _norm(x: Tensor) -> Tensor:
    """Return the norm of each matrix, (..., 1, 1)."""
    norms: Tensor = x.flatten(-2).norm(dim=-1)
    return norms[..., None, None]


def _polynomial(gram: Tensor, polynomial: Polynomial) -> Tensor:
    """Return first + third * gram + fifth * gram^2."""
    first, third, fifth = polynomial
    product = torch.addmm if gram.ndim == 2 else torch.baddbmm
    factor: Tensor = product(gram, gram, gram, beta=third, alpha=fifth)
    factor.diagonal(dim1=-2, dim2=-1).add_(first)
    return factor


@functools.cache
def minimax(iterations: int) -> tuple[Polynomial, ...]:
    """Return the odd polynomials whose composition is nearest to 1 on [least, 1].

    `least` is the lowest bound for which that is within `SPREAD`. Each polynomial is the best of
    the fifth degree on the interval that the one before it leaves (Amsel et al. 2025, theorem 3.1).
    """
    low, high = 1e-12, 1.0
    for _ in range(60):
        least = math.sqrt(low * high)
        low, high = (low, least) if _minimax_from(least, iterations)[1] < SPREAD else (least, high)
    return _minimax_from(high, iterations)[0]


def _minimax_from(least: float, iterations: int) -> tuple[tuple[Polynomial, ...], float]:
    """Return the polynomials for an interval from `least` to 1, and the error of the last."""
    low, high, error, found = least, 1.0, 1.0, []
    for _ in range(iterations):
        high *= MARGIN
        (first, third, fifth), error = best_on(low / high)
        found.append((first / high, third / high**3, fifth / high**5))
        low, high = 1 - error, 1 + error
    return tuple(found), error


def best_on(low: float) -> tuple[Polynomial, float]:
    """Return the odd polynomial of degree 5 nearest to 1 on [low, 1], and its error.

    The exchange algorithm of Remez, with both inner extremes by a formula.
    """
    if low > 1 - 1e-3:  # the error is below 1e-9, and its equations singular
        return (15 / 8, -10 / 8, 3 / 8), 0.0
    inner, before = [0.75 * low + 0.25, 0.25 * low + 0.75], 2.0
    while True:
        points = np.array([low, *inner, 1.0])
        rows = np.stack([points, points**3, points**5, [1, -1, 1, -1]], axis=1)
        first, third, fifth, error = np.linalg.solve(rows, np.ones(4)).tolist()
        if abs(before - error) < 1e-14:
            return (first, third, fifth), error
        root = math.sqrt(9 * third**2 - 20 * first * fifth)
        inner = [math.sqrt((-3 * third + sign * root) / (10 * fifth)) for sign in (-1, 1)]
        before = error


class _OtherParameters(nn.Module):
    """A model without some of its parameters, as `decay_groups` sees one."""

    def __init__(self, model: nn.Module, left_out: set[nn.Parameter]) -> None:
        super().__init__()
        self._model, self._left_out = [model], left_out  # in a list, so that it is not a submodule

    def modules(self, *args: Any, **kwargs: Any) -> Any:
        return self._model[0].modules(*args, **kwargs)

    def parameters(self, recurse: bool = True) -> Any:
        return (p for p in self._model[0].parameters(recurse) if p not in self._left_out)


class CombinedOptimizer(Optimizer):
    """Optimizers of separate parameters as one.

    Args:
        parts: the optimizers; it has the groups and the states of all.
    """

    def __init__(self, parts: list[Optimizer]) -> None:
        groups = [group for part in parts for group in part.param_groups]
        super().__init__([{"params": group["params"]} for group in groups], {})
        self.param_groups = groups
        self.parts = parts
        self.state: defaultdict[Tensor, Any] = defaultdict(dict)
        for part in parts:
            part.state = self.state

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        """Take the step of each part."""
        for part in self.parts:
            part.step()
