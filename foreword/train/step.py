"""One training step: accumulate gradients, divide once, clip, check, update."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any, Protocol

import torch
from torch import Tensor, distributed, nn
from torch.nn.parallel import DistributedDataParallel
from torch.optim import Optimizer

from foreword.nn.dropout import seeded
from foreword.nn.evaluation_mode import evaluation_mode
from foreword.nn.precision import widest
from foreword.nn.sharded import gather, is_sharded, keep_shards
from foreword.train import processes
from foreword.train.device import autocast
from foreword.train.processes import Memory
from foreword.types import Batch, Loss, TermCounts

LossFunction = Callable[[Batch], Loss]


@dataclass(frozen=True)
class StepResult:
    """The losses and gradient norm of one step.

    Attributes:
        loss: nats per prediction; nan without predictions.
        count: number of predictions; without any the step is skipped.
        grad_norm: the norm of the mean gradient, before clipping.
        is_finite: False if the step was skipped.
        components: nats per prediction of each named term.
        memory: what each micro-batch leaves for the same streams of the next step.
    """

    loss: float
    count: float
    grad_norm: float
    is_finite: bool
    components: dict[str, float]
    memory: tuple[Memory, ...] = ()


@dataclass(frozen=True)
class MicroBatch:
    """A part of a step's batch, with all it needs to be computed.

    Attributes:
        batch: numpy or torch.
        loss_fn: the sum and count of a batch.
        device: the model's device.
        dtype: the precision to compute in.
        seed: the seed of dropout.
    """

    batch: Batch
    loss_fn: LossFunction
    device: torch.device
    dtype: torch.dtype
    seed: int

    def loss(self, *, keeps_casts: bool = True) -> Loss:
        """Run the forward pass.

        Args:
            keeps_casts: see `autocast`.
        """
        with (
            seeded(self.seed, self.device),
            autocast(self.device, self.dtype, keeps_casts=keeps_casts),
        ):
            return self.loss_fn(self.batch.to(self.device))


class Accumulate(Protocol):
    """A way to add the gradients of micro-batches to `parameter.grad`."""

    def __call__(
        self, micro_batches: Sequence[MicroBatch], parameters: Sequence[nn.Parameter]
    ) -> Iterable[Loss]:
        """Return the loss of each micro-batch, in their order."""


def accumulate_sequentially(
    micro_batches: Sequence[MicroBatch], parameters: Sequence[nn.Parameter]
) -> Iterable[Loss]:
    """Run forward and backward on one micro-batch after another (`Accumulate`)."""
    del parameters  # autograd knows them
    for n, micro_batch in enumerate(micro_batches, 1):
        with nullcontext() if n == len(micro_batches) else _unsynchronised(micro_batch.loss_fn):
            loss = micro_batch.loss()
            loss.total.backward()  # type: ignore[no-untyped-call]
        yield loss


def _unsynchronised(loss_fn: LossFunction) -> AbstractContextManager[Any]:
    """Return a context in which gradients are not averaged over processes.

    Sharded ones are, after each micro-batch: whole ones would have to be kept.
    """
    return loss_fn.no_sync() if isinstance(loss_fn, DistributedDataParallel) else nullcontext()


@dataclass(frozen=True)
class StepOptions:
    """The settings of a training step.

    Attributes:
        clip: greatest norm of the gradient; 0 for none.
        dtype: the precision to compute in.
        dropout_seed: the run's seed of dropout.
        max_nonfinite_steps: number of non-finite steps in a row that ends the training.
        flops: the FLOPs of one step; 0 if they are not counted.
        accumulate: how gradients are added over micro-batches.
        average: the last share of the budget, over which weights are averaged; 0 for none.
    """

    clip: float = 1.0
    dtype: torch.dtype = torch.float32
    dropout_seed: int = 0
    max_nonfinite_steps: int = 5
    flops: float = 0.0
    accumulate: Accumulate = accumulate_sequentially
    average: float = 0.0


def train_step(
    model: nn.Module,
    optimizer: Optimizer,
    batches: Sequence[Batch],
    loss_fn: LossFunction,
    seeds: Sequence[int],
    options: StepOptions = StepOptions(),
) -> StepResult:
    """Take one optimizer step: the same gradient as one big batch.

    Several processes may share a step's rows, with `DistributedDataParallel` around the loss and
    one thread each (`accumulate_sequentially`). Micro-batches and processes may hold different
    numbers of predictions, so sums and counts are added and divided once. A step is skipped if its
    loss or gradient is not finite, or if nothing is predicted (mean loss nan).

    Args:
        model: the parameters to train; their gradients are cleared.
        optimizer: over the model's parameters.
        batches: the micro-batches of this process, numpy or torch.
        loss_fn: the sum and count of a micro-batch; a module, perhaps wrapped in
            `DistributedDataParallel`, or a function.
        seeds: the seeds of dropout, one per micro-batch; they should differ between processes.
        options: clipping, precision, and how gradients are added over micro-batches.

    Raises:
        ValueError: several threads in one of several processes.
    """
    if processes.count() > 1 and options.accumulate is not accumulate_sequentially:
        raise ValueError("a step over several processes takes one worker in each")
    parameters = [p for p in model.parameters() if p.requires_grad]
    device = parameters[0].device
    jobs = [
        MicroBatch(batch, loss_fn, device, options.dtype, seed)
        for batch, seed in zip(_counted_over_processes(batches, device), seeds, strict=True)
    ]

    # Accumulate: gradients in `.grad`, sums and counts in `sums`.
    optimizer.zero_grad(set_to_none=True)
    sums, memory = LossSums(device), []
    for loss in options.accumulate(jobs, parameters):
        sums.add(loss)
        memory.append(loss.memory)

    # Reduce: the sums of all processes. DDP has averaged their gradients already.
    sums.reduce()
    averaged_over = processes.count()
    grads = [p.grad for p in parameters if p.grad is not None]
    norm = gather(torch.nn.utils.get_total_norm(grads)) * averaged_over

    # Divide once. All values are read together, since each read waits for the device.
    total, count, norm_of_sum, *components = sums.read(norm)
    divisor = max(count, 1.0)
    loss_value, grad_norm = total / divisor if count else math.nan, norm_of_sum / divisor

    # Clip, and step if all is finite.
    is_finite = math.isfinite(loss_value) and math.isfinite(grad_norm)
    if is_finite:
        clipped = min(1.0, options.clip / (grad_norm + 1e-6)) if options.clip else 1.0
        torch._foreach_mul_(grads, clipped * averaged_over / divisor)
        optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    return StepResult(
        loss_value, count, grad_norm, is_finite, sums.means(components), tuple(memory)
    )


def _counted_over_processes(batches: Sequence[Batch], device: torch.device) -> Sequence[Batch]:
    """Return the batches with their `TermCounts` summed over all processes."""
    if processes.count() == 1:  # the batches of fine-tuning have no parts
        return batches
    local = batches[0].part(TermCounts)
    if local is None:
        return batches
    counts = torch.as_tensor(local.counts, device=device).clone()
    distributed.all_reduce(counts)
    return [batch.with_part(TermCounts(counts)) for batch in batches]


class LossSums:
    """Sums and counts of losses, on the device until they are read.

    Args:
        device: where the losses are.
    """

    def __init__(self, device: torch.device) -> None:
        self._total, self._count = (
            torch.zeros((), device=device, dtype=widest(device)) for _ in range(2)
        )
        self._components: dict[str, list[Tensor]] = {}

    def add(self, loss: Loss) -> None:
        """Add the loss of a micro-batch."""
        self._total += loss.total.detach()
        self._count += loss.count
        for name, (total, count) in loss.components.items():
            sums = self._components.setdefault(
                name, [torch.zeros_like(self._total), torch.zeros_like(self._total)]
            )
            sums[0] += total.detach()
            sums[1] += count

    def reduce(self) -> None:
        """Add up the sums of all processes."""
        if processes.count() > 1:
            sums = (self._total, self._count, *chain(*self._components.values()))
            together = torch.stack(sums)
            distributed.all_reduce(together)
            for tensor, total in zip(sums, together.unbind(), strict=True):
                tensor.copy_(total)

    def read(self, *others: Tensor) -> list[float]:
        """Return total, count, `others`, then sum and count of each component."""
        numbers = [self._total, self._count, *others, *chain(*self._components.values())]
        values: list[float] = torch.stack([n.to(self._total) for n in numbers]).tolist()
        return values

    def means(self, components: Sequence[float]) -> dict[str, float]:
        """Return the mean of each component from its sum and count, as `read` gives them."""
        pairs = zip(self._components, components[::2], components[1::2], strict=True)
        return {name: total / max(count, 1.0) for name, total, count in pairs}


@dataclass(frozen=True)
class Evaluation:
    """The loss of an objective on some batches.

    Attributes:
        total: sum in nats.
        count: number of predictions.
        components: nats per prediction of each named term, and other means that it reports.
        batches: sum and count of each batch.
    """

    total: float
    count: float
    components: dict[str, float]
    batches: tuple[tuple[float, float], ...] = ()

    @property
    def loss(self) -> float:
        """Nats per prediction; nan without predictions."""
        return self.total / max(self.count, 1.0) if self.count else math.nan


def evaluate(
    model: nn.Module, batches: Iterable[Batch], loss_fn: LossFunction, dtype: torch.dtype
) -> Evaluation:
    """Measure the loss on batches, in evaluation mode and without gradients.

    Each batch receives the memory of the batch before it; the last may have fewer streams.
    """
    device = next(model.parameters()).device
    sums = LossSums(device)
    each: list[Tensor] = []
    memory: Memory = None
    # Shards are gathered into storage that training uses too.
    has_shards = any(map(is_sharded, model.parameters()))
    without_grad = torch.no_grad() if has_shards else torch.inference_mode()
    with evaluation_mode(model), without_grad:
        for batch in batches:
            if memory is not None:
                batch = replace(batch, memory=tuple(m[: len(batch.ids)] for m in memory))
            with autocast(device, dtype):
                loss = loss_fn(batch.to(device))
            memory = loss.memory
            sums.add(loss)
            each.append(torch.stack([part.to(widest(device)) for part in (loss.total, loss.count)]))
        total, count, *components = sums.read()
    if has_shards and isinstance(loss_fn, nn.Module):
        keep_shards(loss_fn)
    of_batches = tuple((row[0], row[1]) for row in torch.stack(each).tolist()) if each else ()
    return Evaluation(total, count, sums.means(components), of_batches)
