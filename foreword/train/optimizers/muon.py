"""Muon: orthogonalised momentum for matrices, AdamW for all other parameters."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any

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
MATRICES = (nn.Linear, nn.RNNBase)  # modules whose two-dimensional weights are maps of states


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
        rest: the learning rate of all that AdamW updates, as a multiple of `lr`;
            `embeddings` is a multiple of that.
        beta1: AdamW's decay rate of the mean of gradients.
        beta2: AdamW's decay rate of the mean of squared gradients.
        eps: added to the root of the mean of squares.
        decay: weight decay, multiplied by the learning rate.

    Reference: Jordan et al. 2024, "Muon: An optimizer for hidden layers in neural networks"; the
    scale is Liu et al. 2025, "Muon is Scalable for LLM Training", section 2.2.
    Differs from the paper: keys and values are one matrix, as are the gates of a recurrent layer.
    """

    lr: LearningRate = 2e-3
    momentum: ShareBelowOne = 0.95
    iterations: Annotated[int, Interval(ge=1, le=99)] = 5
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
    """

    def __init__(
        self,
        params: list[dict[str, Any]],
        lr: float,
        weight_decay: float,
        momentum: float,
        iterations: int,
    ) -> None:
        settings = {"lr": lr, "weight_decay": weight_decay, "momentum": momentum}
        super().__init__(params, {**settings, "iterations": iterations})

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
        map_in_threads(lambda pair: self._update(*pair, dtype), moved, threads)

    @torch.no_grad()
    def _update(self, group: dict[str, Any], matrix: Tensor, dtype: torch.dtype) -> None:
        """Move one matrix, with the settings of its group."""
        lr, momentum, grad, state = group["lr"], group["momentum"], matrix.grad, self.state[matrix]
        assert grad is not None
        if "momentum_buffer" not in state:
            state["momentum_buffer"] = torch.zeros_like(grad)
        mean = state["momentum_buffer"].lerp_(grad, 1 - momentum)
        # What it would move by with Nesterov's look-ahead, whole in each process.
        ahead = gather(grad.lerp(mean, momentum).to(dtype))
        move = orthogonalise(ahead, group["iterations"])[local_rows(matrix)]
        scale = RMS * math.sqrt(max(ahead.shape))
        local_part(matrix).mul_(1 - lr * group["weight_decay"]).add_(move, alpha=-lr * scale)


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
