"""One step: gradients summed over micro-batches, divided once by the count, clipped, applied.

Micro-batches may be computed side by side (`workers`); their sums are added in their order, so a
step is the same step each time.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from foreword.nn.dropout import seeded
from foreword.train.device import autocast
from foreword.train.workers import side_by_side
from foreword.types import Batch, Loss

Carried = tuple[Tensor, ...] | None  # of one micro-batch; see `foreword.types.Hidden`


@dataclass(frozen=True)
class StepResult:
    """What one step did.

    Attributes:
        loss: nats per prediction.
        weight: number of predictions.
        grad_norm: of the mean gradient, before clipping.
        is_finite: false where the step was skipped.
        parts: nats per prediction of each named term.
        carried: what each micro-batch leaves for the same lanes of the next step.
    """

    loss: float
    weight: float
    grad_norm: float
    is_finite: bool
    parts: dict[str, float]
    carried: tuple[Carried, ...] = ()


def take(
    model: nn.Module,
    optimizer: Optimizer,
    batches: Sequence[Batch],
    loss_of: Callable[[Batch], Loss],
    *,
    clip: float,
    dtype: torch.dtype,
    seeds: Sequence[int],
    workers: int = 1,
) -> StepResult:
    """Takes a step on the micro-batches: the same gradient as one big batch.

    Micro-batches may hold different numbers of predictions, so sums and counts are added and
    divided once. A step whose loss or gradient is not finite changes nothing.

    Args:
        model: trained; its gradients are cleared.
        optimizer: over the model's parameters.
        batches: the micro-batches, numpy or torch.
        loss_of: the sum and count of a micro-batch.
        clip: greatest norm of the mean gradient; 0 for none.
        dtype: to compute in.
        seeds: of dropout, one per micro-batch.
        workers: so many micro-batches are computed side by side, on a processor.
    """
    parameters = [p for p in model.parameters() if p.requires_grad]
    device = parameters[0].device
    carried: list[Carried] = []
    total = torch.zeros((), device=device, dtype=torch.float64)
    weight = torch.zeros((), device=device, dtype=torch.float64)
    parts: dict[str, list[Tensor]] = {}

    def compute(job: tuple[Batch, int]) -> tuple[Loss, list[Tensor | None]]:
        batch, seed = job
        with seeded(seed, device), autocast(device, dtype, keeps_casts=workers == 1):
            loss = loss_of(batch.to(device))
        return loss, _gradients(loss.total, parameters)

    optimizer.zero_grad(set_to_none=True)
    jobs = list(zip(batches, seeds, strict=True))
    for start in range(0, len(jobs), workers):
        for loss, found in side_by_side(compute, jobs[start : start + workers], workers):
            for parameter, grad in zip(parameters, found, strict=True):
                if grad is not None:
                    parameter.grad = grad if parameter.grad is None else parameter.grad.add_(grad)
            total += loss.total.detach()
            weight += loss.weight
            carried.append(loss.carried)
            for name, (part, count) in loss.parts.items():
                both = parts.setdefault(name, [torch.zeros_like(total), torch.zeros_like(total)])
                both[0] += part.detach()
                both[1] += count
    grads = [p.grad for p in parameters if p.grad is not None]
    norm = torch.nn.utils.get_total_norm(grads).to(total)
    # All numbers at once: each one asked for makes the host wait for the device.
    numbers = torch.stack([total, weight, norm, *chain.from_iterable(parts.values())]).tolist()
    count = max(numbers[1], 1.0)
    loss_value, norm_value = numbers[0] / count, numbers[2] / count
    is_finite = math.isfinite(loss_value) and math.isfinite(norm_value)
    if is_finite:
        factor = min(1.0, clip / (norm_value + 1e-6)) if clip else 1.0
        torch._foreach_mul_(grads, factor / count)
        optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    sums = zip(numbers[3::2], numbers[4::2], strict=True)
    means = {name: a / max(b, 1.0) for name, (a, b) in zip(parts, sums, strict=True)}
    return StepResult(loss_value, count, norm_value, is_finite, means, tuple(carried))


def _gradients(total: Tensor, parameters: Sequence[Tensor]) -> list[Tensor | None]:
    """Of each parameter, laid out as it is and in a place of its own; None where it had no part.

    What autograd hands out may be a view, or one tensor for two parameters: neither may be scaled
    in place.
    """
    places: set[int] = set()

    def own(grad: Tensor | None, parameter: Tensor) -> Tensor | None:
        if grad is None:
            return None
        if grad.stride() != parameter.stride() or grad.untyped_storage().data_ptr() in places:
            grad = torch.empty_like(parameter).copy_(grad)
        places.add(grad.untyped_storage().data_ptr())
        return grad

    found = torch.autograd.grad(total, parameters, allow_unused=True)
    return [own(grad, parameter) for grad, parameter in zip(found, parameters, strict=True)]


class Evaluation(NamedTuple):
    """What an objective says of batches.

    Attributes:
        total: sum in nats.
        weight: number of predictions.
        parts: nats per prediction of each named term, and the other means that it reports.
    """

    total: float
    weight: float
    parts: dict[str, float]

    @property
    def loss(self) -> float:
        """Nats per prediction."""
        return self.total / max(self.weight, 1.0)


def evaluate(
    model: nn.Module,
    batches: Iterable[Batch],
    loss_of: Callable[[Batch], Loss],
    dtype: torch.dtype,
) -> Evaluation:
    """What the objective says of the batches, in evaluation mode and without gradients.

    Each batch gets what the one before it carried over; the last may have fewer lanes.
    """
    device = next(model.parameters()).device
    was_training = model.training
    model.eval()
    total = weight = 0.0
    sums: dict[str, list[float]] = {}
    carried: Carried = None
    with torch.inference_mode():
        for batch in batches:
            if carried is not None:
                batch = replace(batch, carried=tuple(c[: len(batch.ids)] for c in carried))
            with autocast(device, dtype):
                loss = loss_of(batch.to(device))
            carried = loss.carried
            total, weight = total + float(loss.total), weight + float(loss.weight)
            for name, (part, count) in loss.parts.items():
                before = sums.get(name, [0.0, 0.0])
                sums[name] = [before[0] + float(part), before[1] + float(count)]
    model.train(was_training)
    return Evaluation(total, weight, {name: a / max(b, 1.0) for name, (a, b) in sums.items()})
