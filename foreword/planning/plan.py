"""A run on GPUs you do not have: memory by part, time, checkpoints and failures, by arithmetic.

The step is counted (`foreword.runs.counted`), so the plan needs neither text nor GPU. Assumed are
the share of a GPU's peak rate, that communication overlaps with computing, and that blocks are
not compiled; compiled ones keep less for the backward pass. What each process holds of weights and
gradients is what the kinds of `train/parallel/` make (`benchmarks/parallel_memory.py` measures it).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields, replace
from typing import Literal

import torch

from foreword.errors import UserError
from foreword.nn.checkpointing import AMOUNTS, Checkpointing
from foreword.nn.cross_entropy import SLICE
from foreword.nn.model import neural_settings
from foreword.nn.stack_settings import StackSettings
from foreword.planning.estimate import steps_of
from foreword.planning.failures import FAILURE_HOURS, best_interval, expected_time
from foreword.planning.gpus import GPU
from foreword.runs.counted import CountedStep, count_step
from foreword.runs.recipe import Recipe
from foreword.runs.sizes import count_parameters, count_state
from foreword.settings import kinds
from foreword.settings.ranges import Count, NonNegative, Positive, PositiveShare, Ranged
from foreword.train.budget import Budget
from foreword.train.parallel.fsdp import FSDP
from foreword.train.parallel.hsdp import HSDP

Kind = Literal["none", "ddp", "fsdp", "hsdp"]

HALF, SINGLE = 2, 4  # bytes of a number
# Bytes per parameter that AdamW moves: weight, gradient and two moments read, all but the gradient
# written.
UPDATE_BYTES = 28
ABOUT = 0.05  # settings whose times differ by less are equals
HEADS_AND_EMBEDDING = ("embedding", "heads")
CONTEXT = 1_500_000_000  # bytes of CUDA, NCCL and kernels' work space on each GPU


@dataclass(frozen=True)
class Assumptions(Ranged):
    """What a plan assumes.

    Attributes:
        utilisation: share of the GPU's peak rate that a step's products reach.
        storage_gb_s: 10^9 bytes a second to where checkpoints are written.
        failure_hours: mean GPU-hours between failures of a run.
        restart_minutes: from a failure to the next step, without the work that is repeated.
        price: the price of an hour of a GPU, in dollars; 0 for unknown.
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
        weights: the weights, in float32.
        gradients: float32; with `ddp` twice where several micro-batches are added, its buckets
            and their sum.
        optimizer: state of the optimizer.
        average: the second weights of a run that averages them.
        activations: kept for the backward pass of a micro-batch.
        logits: a slice of scores over the vocabulary with its softmax, and the gradient of the
            output layer.
        buffers: copies of weights in the precision of the products; with shards, the weights that
            are gathered from other GPUs and the gradients on their way to them.
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
        kind: the kind of parallelism: one GPU (`none`), whole copies (`ddp`), shards over all GPUs
            (`fsdp`), or over those of each node (`hsdp`).
        checkpointing: what is computed again in the backward pass instead of kept.
        micro_batch: rows computed at once, the most that fit; 1 if none do.
        memory: the memory of each GPU.
        fits: whether it is within the GPU's memory.
        compute_seconds: the time of a step's products.
        network_seconds: the time of a step's communication, if nothing slowed it.
        update_seconds: the time of the optimizer's update.
    """

    kind: Kind
    checkpointing: Checkpointing
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
        parameters: their number, by part of the model.
        rows_per_step: the rows of a step, over all GPUs.
        tokens_per_step: source and target.
        flops_per_step: forward and backward, nothing computed twice.
        steps: the number of steps in the budget, at the speed of the best setting.
        settings: the ways to divide it.
        best: the fastest that fits, the simplest of equals; the one of least memory if none does.
        fits_on: if none fits, the least power of two of GPUs on which one does; None if there is
            none up to the rows of a step.
        checkpoint_bytes: weights, optimizer and average.
        checkpoint_seconds: the time to write it.
        copy_bytes: memory of a node, most of all, for the copy that is written as training goes on.
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
    fits_on: int | None
    checkpoint_bytes: int
    checkpoint_seconds: float
    copy_bytes: int
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
        return self.seconds(self.best) / 86_400

    def seconds(self, setting: Division) -> float:
        """Return the expected time with a setting, as the best one loses to failures."""
        return self.steps * setting.seconds * self.slowdown


def plan(recipe: Recipe, gpu: GPU, gpus: Count, assumptions: Assumptions) -> Plan:
    """Return the plan of a run.

    Raises:
        UserError: the model is trained without gradients, its budget is in epochs, or a step has
            fewer rows than there are GPUs.
    """
    recipe = replace(recipe, train=replace(recipe.train, threads=1))
    if recipe.model.trains_offline:
        raise UserError("--gpus: a model trained offline trains on the CPU of one machine")
    budget = Budget.of(recipe.train)
    if budget.unit == "epochs":
        raise UserError(
            "--gpus: a plan reads no text, so a budget in epochs has no length; give --tokens"
        )
    rows = recipe.rows_per_step
    if gpus > rows:
        raise UserError(
            f"--gpus: a step of {rows:,} rows cannot be divided among {gpus:,} GPUs; plan for "
            f"{rows:,} or fewer, or set a larger train.batch"
        )
    # One counted step serves every setting.
    parameters = count_parameters(recipe)
    counted = count_step(recipe, gpu.dtype)
    planner = _Planner(recipe, gpu, gpus, assumptions, parameters, count_state(recipe), counted)
    settings = tuple(planner.settings())
    fitting = [setting for setting in settings if setting.fits]
    if fitting:
        least = min(setting.seconds for setting in fitting)
        best = next(setting for setting in fitting if setting.seconds <= (1 + ABOUT) * least)
    else:
        best = min(settings, key=lambda setting: setting.memory.total)
    fits_on = None if fitting else planner.fits_on()
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
        fits_on,
        size,
        save,
        planner.copied(best.kind),
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
    state: int
    counted: CountedStep

    @property
    def total(self) -> int:
        return sum(self.parameters.values())

    @property
    def nodes(self) -> int:
        return -(-self.gpus // self.gpu.per_node)

    @property
    def stored(self) -> int:
        """Bytes of a checkpoint."""
        return SINGLE * (self.total * (1 + bool(self.recipe.train.average)) + self.state)

    def copied(self, kind: Kind) -> int:
        """Return the bytes of a checkpoint that a node copies at most: one copy is written."""
        shards = self._shards(kind)
        return round(self.stored * min(shards, self.gpu.per_node) / shards)

    @property
    def outside(self) -> int:
        """Parameters that are gathered for the whole of a step: those of no block."""
        model = self.recipe.model
        if not isinstance(model, StackSettings) or model.share != "none":
            return self.total
        return sum(self.parameters.get(part, 0) for part in HEADS_AND_EMBEDDING)

    def settings(self) -> Iterator[Division]:
        """Yield the settings, from the simplest; only those that the recipe leaves open."""
        ways: list[Kind] = ["none"] if self.gpus == 1 else ["ddp", "fsdp"]
        if self.nodes > 1:
            ways.insert(1, "hsdp")
        chosen = kinds.name_of(self.recipe.parallel)
        amount = self.recipe.train.activation_checkpointing
        for kind in ways:
            if self.gpus > 1 and chosen not in ("auto", kind):
                continue
            for mode in AMOUNTS:
                has_blocks = isinstance(self.recipe.model, StackSettings)
                if mode == amount or (amount == "none" and has_blocks):
                    yield self._setting(kind, mode)

    def fits_on(self) -> int | None:
        """Return the least power of two of GPUs on which a setting fits; None without one."""
        count = 1
        while (count := 2 * count) <= self.recipe.rows_per_step:
            if any(setting.fits for setting in replace(self, gpus=count).settings()):
                return count
        return None

    def _setting(self, kind: Kind, mode: Checkpointing) -> Division:
        rows = -(-self.recipe.rows_per_step // self.gpus)
        most = min(rows, self.recipe.train.micro_batch or rows)
        sizes = [1 << n for n in range(most.bit_length())]
        if self.recipe.train.micro_batch:
            sizes = [most]
        room = 1e9 * self.gpu.memory_gb
        memories = {size: self._memory(kind, mode, size, size < rows) for size in sizes}
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
        group = min(self.gpus, self.gpu.per_node)
        if isinstance(self.recipe.parallel, HSDP):
            group = min(self.gpus, self.recipe.parallel.group or group)
        return {"fsdp": self.gpus, "hsdp": group}.get(kind, 1)

    @property
    def reshards(self) -> bool:
        """Whether shards drop a block's weights between forward and backward."""
        kind = self.recipe.parallel
        return kind.reshard if isinstance(kind, FSDP | HSDP) else True

    def _memory(self, kind: Kind, mode: Checkpointing, rows: int, adds_up: bool) -> GpuMemory:
        """Return the memory of each GPU with this many rows at once.

        Args:
            kind: the kind of parallelism.
            mode: the amount of checkpointing.
            rows: at once.
            adds_up: whether a step adds up several micro-batches.
        """
        fixed, per_row = self.counted.kept[mode]
        shards = self._shards(kind)
        weights = SINGLE * self.total // shards
        buffers = fixed.activations if shards == 1 else self._gathered(fixed.activations)
        average = weights if self.recipe.train.average else 0
        return GpuMemory(
            weights=weights,
            gradients=weights * (2 if kind == "ddp" and adds_up else 1),
            optimizer=SINGLE * self.state // shards,
            average=average,
            activations=round(rows * per_row.activations),
            logits=round(fixed.head + rows * per_row.head + self._slice_bytes(rows)),
            buffers=max(0, round(buffers)),
        )

    def _gathered(self, casts: float) -> float:
        """Return the bytes of whole weights and gradients that a GPU with shards holds at once.

        Blocks count in the precision of the products: two with a buffer to gather into, and the
        gradients of one, also as float32 to be sent. Everything else counts in float32: weights
        and gradients, and gradients to be sent if there are no blocks.

        Args:
            casts: bytes of weights that autocast keeps in another precision.
        """
        size, outside = self.gpu.dtype.itemsize, self.outside
        if outside == self.total:
            return 3 * SINGLE * outside + casts
        block = self._block()
        blocks = (3 * size + SINGLE + (size if size < SINGLE else 0)) * block
        if not self.reshards:
            blocks += size * max(0, self.total - outside - 2 * block)
        return blocks + 2 * SINGLE * outside

    def _block(self) -> int:
        """Return the parameters of the largest block."""
        layers = neural_settings(self.recipe.model).layers
        inside = [n for part, n in self.parameters.items() if part not in HEADS_AND_EMBEDDING]
        return max(inside, default=0) // max(1, layers)

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

        All-reduce sends twice the gradients. Sharding gathers the weights of blocks before each
        forward and backward pass, all others once, and sends each gradient, for each micro-batch.
        """
        link, network = 1e9 * self.gpu.link_gb_s, 1e9 * self.gpu.network_gb_s
        gradients, shards = SINGLE * self.total, self._shards(kind)
        around = link if self.nodes == 1 else network
        blocks = self.gpu.dtype.itemsize * (self.total - self.outside) * (1 + self.reshards)
        sharded = (blocks + SINGLE * self.outside + gradients) * (1 - 1 / shards)
        if kind == "fsdp":
            return micro_batches * sharded / around
        if kind == "hsdp":
            copies = self.gpus / shards
            reduced = 2 * gradients / shards * (1 - 1 / copies)
            return micro_batches * (sharded / link + reduced / network)
        return 2 * gradients * (1 - 1 / self.gpus) / around


def precision_name(dtype: torch.dtype) -> str:
    """Return the precision as a recipe has it."""
    return "bf16" if dtype == torch.bfloat16 else "fp32"
