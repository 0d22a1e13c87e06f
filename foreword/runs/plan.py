"""A run on GPUs that are not here: memory by part, time, checkpoints and failures, by arithmetic.

The step is counted (`foreword.runs.counted`), so the plan needs neither text nor GPU. Assumed are
the share of a GPU's peak rate, that communication overlaps with computing, and that blocks are
not compiled; compiled ones keep less for the backward pass.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields, replace
from typing import Literal

import torch

from foreword.errors import UserError
from foreword.nn.cross_entropy import SLICE
from foreword.nn.model import ModelSettings, neural_settings
from foreword.nn.stack_settings import StackSettings
from foreword.ranges import Count, NonNegative, Positive, PositiveShare, Ranged
from foreword.runs.counted import Counted, count_step
from foreword.runs.estimate import steps_of
from foreword.runs.failures import FAILURE_HOURS, best_interval, expected_time
from foreword.runs.gpus import GPU
from foreword.runs.kept_bytes import RECOMPUTE, Recompute
from foreword.runs.recipe import Recipe
from foreword.runs.sizes import count_parameters, state_per_weight
from foreword.train.budget import Budget

Kind = Literal["none", "ddp", "fsdp", "hsdp"]

CONTEXT = 1_500_000_000  # bytes of CUDA, NCCL and kernels' work space on each GPU
HALF, SINGLE = 2, 4  # bytes of a number
# Bytes per parameter that AdamW moves: weight, gradient and two moments read, all but the gradient
# written.
UPDATE_BYTES = 28
ABOUT = 0.05  # settings whose times differ by less are equals
HEADS_AND_EMBEDDING = ("embedding", "heads")


@dataclass(frozen=True)
class Assumptions(Ranged):
    """What a plan assumes.

    Attributes:
        utilisation: share of the GPU's peak rate that a step's products reach.
        storage_gb_s: 10^9 bytes a second to where checkpoints are written.
        failure_hours: mean GPU-hours between failures of a run.
        restart_minutes: from a failure to the next step, without the work that is repeated.
        price: of an hour of a GPU, in dollars; 0 for unknown.
    """

    utilisation: PositiveShare = 0.4
    storage_gb_s: Positive = 1.0
    failure_hours: Positive = round(FAILURE_HOURS, -3)
    restart_minutes: Positive = 10.0
    price: NonNegative = 0.0


@dataclass(frozen=True)
class GpuMemory:
    """Bytes on each GPU at the peak of a step.

    Attributes:
        weights: in float32.
        gradients: in float32.
        optimizer: state of the optimizer.
        average: the second weights of a run that averages them.
        activations: kept for the backward pass of a micro-batch.
        logits: a slice of scores over the vocabulary with its softmax, and the gradient of the
            output layer.
        buffers: weights in the precision of the products: copies of all, or with sharding two
            blocks gathered from other GPUs and a gradient on its way to them.
        context: CUDA, NCCL, kernels' work space.
    """

    weights: int
    gradients: int
    optimizer: int
    average: int
    activations: int
    logits: int
    buffers: int
    context: int = CONTEXT

    @property
    def parts(self) -> dict[str, int]:
        """Bytes by part."""
        return {f.name: getattr(self, f.name) for f in fields(self)}

    @property
    def total(self) -> int:
        """Bytes of all parts together."""
        return sum(self.parts.values())


@dataclass(frozen=True)
class Division:
    """One way to divide a run.

    Attributes:
        kind: of parallelism: one GPU (`none`), whole copies (`ddp`), shards over all GPUs
            (`fsdp`), or over those of each node (`hsdp`).
        recompute: what is computed again in the backward pass instead of kept.
        micro_batch: rows computed at once, the most that fit; 1 if none do.
        memory: of each GPU.
        fits: whether it is within the GPU's memory.
        compute_seconds: of a step's products.
        network_seconds: of a step's communication, if nothing slowed it.
        update_seconds: of the optimizer's update.
    """

    kind: Kind
    recompute: Recompute
    micro_batch: int
    memory: GpuMemory
    fits: bool
    compute_seconds: float
    network_seconds: float
    update_seconds: float

    @property
    def seconds(self) -> float:
        """Seconds of a step."""
        return max(self.compute_seconds, self.network_seconds) + self.update_seconds


@dataclass(frozen=True)
class Plan:
    """A run on GPUs.

    Attributes:
        parameters: by part of the model.
        rows_per_step: of all GPUs.
        tokens_per_step: source and target.
        flops_per_step: forward and backward, nothing computed twice.
        steps: of the whole budget, at the speed of the best setting.
        settings: the ways to divide it.
        best: the fastest that fits, the simplest of equals; the one of least memory if none does.
        checkpoint_bytes: weights, optimizer and average.
        checkpoint_seconds: to write it.
        hours_between_failures: expected, of all GPUs.
        checkpoint_interval: seconds of work between checkpoints that lose the least time.
        slowdown: expected time with failures and checkpoints over that without.
        dollars: None if no price is given.
    """

    parameters: Mapping[str, int]
    rows_per_step: int
    tokens_per_step: float
    flops_per_step: float
    steps: int
    settings: tuple[Division, ...]
    best: Division
    checkpoint_bytes: int
    checkpoint_seconds: float
    hours_between_failures: float
    checkpoint_interval: float
    slowdown: float
    dollars: float | None

    @property
    def tokens_per_second(self) -> float:
        """Speed of all GPUs together."""
        return self.tokens_per_step / self.best.seconds

    @property
    def days(self) -> float:
        """Expected time, with failures and checkpoints."""
        return self.steps * self.best.seconds * self.slowdown / 86_400


def plan(recipe: Recipe, gpu: GPU, gpus: Count, assumptions: Assumptions) -> Plan:
    """Return the plan of a run.

    Raises:
        UserError: the model is trained without gradients, or its budget is in epochs.
    """
    recipe = replace(recipe, train=replace(recipe.train, workers=1))
    if recipe.model.trains_offline:
        raise UserError("--gpus: a model trained offline trains on the CPU of one machine")
    budget = Budget.of(recipe.train)
    if budget.unit == "epochs":
        raise UserError(
            "--gpus: a plan reads no text, so a budget in epochs has no length; give --tokens"
        )
    # One counted step serves every setting.
    parameters = count_parameters(recipe)
    counted = count_step(recipe, gpu.dtype)
    planner = _Planner(recipe, gpu, gpus, assumptions, parameters, counted)
    settings = tuple(planner.settings())
    fitting = [setting for setting in settings if setting.fits]
    if fitting:
        least = min(setting.seconds for setting in fitting)
        best = next(setting for setting in fitting if setting.seconds <= (1 + ABOUT) * least)
    else:
        best = min(settings, key=lambda setting: setting.memory.total)
    rows = recipe.rows_per_step
    tokens, operations = counted.tokens_per_row * rows, counted.flops_per_row * rows
    steps = steps_of(budget, tokens, operations, best.seconds, epochs=0.0)
    # Checkpoints and failures.
    size = planner.stored
    save = size / (1e9 * assumptions.storage_gb_s)
    between = 3600 * assumptions.failure_hours / gpus
    work = steps * best.seconds
    interval = min(best_interval(save, between), work)
    restart = 60 * assumptions.restart_minutes
    slowdown = expected_time(work, interval, save, restart, between) / work
    hours = work * slowdown / 3600
    return Plan(
        parameters,
        rows,
        tokens,
        operations,
        steps,
        settings,
        best,
        size,
        save,
        between / 3600,
        interval,
        slowdown,
        hours * gpus * assumptions.price if assumptions.price else None,
    )


@dataclass(frozen=True)
class _Planner:
    """The settings of one plan; fields as in `plan`, with what was counted."""

    recipe: Recipe
    gpu: GPU
    gpus: int
    assumptions: Assumptions
    parameters: Mapping[str, int]
    counted: Counted

    @property
    def total(self) -> int:
        return sum(self.parameters.values())

    @property
    def nodes(self) -> int:
        return -(-self.gpus // self.gpu.per_node)

    @property
    def stored(self) -> int:
        """Bytes of a checkpoint."""
        state = 1 + state_per_weight(self.recipe.optimizer) + bool(self.recipe.train.average)
        return round(SINGLE * self.total * state)

    def settings(self) -> Iterator[Division]:
        """Yield the settings, from the simplest."""
        kinds: list[Kind] = ["none"] if self.gpus == 1 else ["ddp", "fsdp"]
        if self.nodes > 1:
            kinds.insert(1, "hsdp")
        for kind in kinds:
            for mode in RECOMPUTE:
                if mode == "none" or isinstance(self.recipe.model, StackSettings):
                    yield self._setting(kind, mode)

    def _setting(self, kind: Kind, mode: Recompute) -> Division:
        rows = -(-self.recipe.rows_per_step // self.gpus)
        most = min(rows, self.recipe.train.micro_batch or rows)
        sizes = [1 << n for n in range(most.bit_length())]
        if self.recipe.train.micro_batch:
            sizes = [most]
        room = 1e9 * self.gpu.memory_gb
        memories = {size: self._memory(kind, mode, size) for size in sizes}
        micro = max((size for size in sizes if memories[size].total <= room), default=sizes[0])
        # Full recomputation repeats the forward pass, a third of the products.
        products = rows * self.counted.flops_per_row * (4 / 3 if mode == "full" else 1)
        rate = self.gpu.flops_per_second * self.assumptions.utilisation
        update = UPDATE_BYTES * self.total / self._shards(kind) / (1e9 * self.gpu.bandwidth_gb_s)
        network = self._network_seconds(kind, math.ceil(rows / micro))
        memory = memories[micro]
        fits = memory.total <= room
        return Division(kind, mode, micro, memory, fits, products / rate, network, update)

    def _shards(self, kind: Kind) -> int:
        """Return how many GPUs share one copy of the weights."""
        return {"fsdp": self.gpus, "hsdp": min(self.gpus, self.gpu.per_node)}.get(kind, 1)

    def _memory(self, kind: Kind, mode: Recompute, rows: int) -> GpuMemory:
        """Return the memory of each GPU with this many rows at once."""
        fixed, each = self.counted.kept[mode]
        shards = self._shards(kind)
        weights = SINGLE * self.total // shards
        size = self.gpu.dtype.itemsize
        buffers = fixed.activations
        if shards > 1:
            # Two blocks gathered, the gradient of one, and all that is in no block.
            outside = sum(self.parameters.get(part, 0) for part in HEADS_AND_EMBEDDING)
            buffers = (2 * size + SINGLE) * self._block() + (size + SINGLE) * outside
        average = weights if self.recipe.train.average else 0
        return GpuMemory(
            weights=weights,
            gradients=weights,
            optimizer=round(weights * state_per_weight(self.recipe.optimizer)),
            average=average,
            activations=round(rows * each.activations),
            logits=round(fixed.head + rows * each.head + self._slice_bytes(rows)),
            buffers=max(0, round(buffers)),
        )

    def _block(self) -> int:
        """Return the parameters of the largest block."""
        model = neural_settings(self.recipe.model)
        inside = [n for part, n in self.parameters.items() if part not in HEADS_AND_EMBEDDING]
        return max(inside, default=0) // max(1, _layers_of_a_stack(model))

    def _slice_bytes(self, rows: int) -> int:
        """Return the bytes of logits and probabilities that exist at once, and of the weights.

        As in `foreword.nn.cross_entropy` on CUDA: a slice of the predictions, in the precision of
        the products, with the output layer and a slice's gradient of it in that precision.
        """
        vocab = self.recipe.tokenizer.vocab
        predictions = math.ceil(rows * self.counted.predictions_per_row)
        at_once = min(predictions, max(1, SLICE["cuda"] // vocab))
        width = neural_settings(self.recipe.model).embedding_width
        return self.gpu.dtype.itemsize * 2 * vocab * (at_once + width)

    def _network_seconds(self, kind: Kind, micro_batches: int) -> float:
        """Return the seconds in which a GPU sends what a step needs, by rings.

        All-reduce sends twice the gradients; sharding gathers the weights before each forward and
        backward pass and sends each gradient once.
        """
        link, network = 1e9 * self.gpu.link_gb_s, 1e9 * self.gpu.network_gb_s
        gradients, shards = SINGLE * self.total, self._shards(kind)
        around = link if self.nodes == 1 else network
        weights = self.gpu.dtype.itemsize * self.total
        sharded = micro_batches * (2 * weights + gradients) * (1 - 1 / shards)
        if kind == "fsdp":
            return sharded / around
        if kind == "hsdp":
            return sharded / link + 2 * gradients / shards * (1 - 1 / self.nodes) / network
        return 2 * gradients * (1 - 1 / self.gpus) / around


def _layers_of_a_stack(model: ModelSettings) -> int:
    """Return the layers of the part of a model whose parameters are counted together."""
    shared = isinstance(model, StackSettings) and model.share == "all"
    return 1 if shared else model.layers


def precision_name(dtype: torch.dtype) -> str:
    """Return the precision as a recipe has it."""
    return "bf16" if dtype == torch.bfloat16 else "fp32"
