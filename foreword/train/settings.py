"""The settings of training: budget, batch, precision, evaluations and checkpoints."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from foreword.ranges import (
    Count,
    CountOrZero,
    EpochsOfText,
    Flops,
    Hours,
    NonNegative,
    Ranged,
    Seed,
    Total,
    Workers,
)


@dataclass(frozen=True)
class TrainSettings(Ranged):
    """The settings of the training loop.

    The budget is the first given of `hours`, `flops`, `tokens`, `epochs`, `steps`.

    Attributes:
        batch: sequences per step, over all micro-batches.
        batch_tokens: tokens per step instead, rounded to whole rows; 0 for `batch`.
        micro_batch: sequences computed at once; 0 for as many as fit into memory.
        workers: threads that share a micro-batch, each with its share of the CPU's cores; 0 for
            the fastest number.
        steps: budget in steps.
        epochs: budget in passes over the text.
        tokens: budget in tokens read.
        flops: budget in floating-point operations.
        hours: budget in hours of wall-clock time, evaluations included.
        clip: maximum norm of the gradient; 0 for none.
        seed: of weights, order, corruption and dropout.
        precision: `auto` is bf16 if the hardware multiplies it faster, else fp32.
        device: `auto` is CUDA if available, else the CPU; `mps` is untested.
        compile: compile the blocks with torch.compile; `auto` on CUDA.
        evaluations: number of times that the held-out loss is measured.
        heldout_rows: maximum rows of held-out text that are scored each time.
        checkpoints: number of checkpoints written.
        keep: number of the last checkpoints that are kept, besides the best.
        patience: number of non-finite steps in a row that stops the run.
    """

    batch: Count = 32
    batch_tokens: CountOrZero = 0
    micro_batch: CountOrZero = 0
    workers: Workers = 0
    steps: Count = 10_000
    epochs: EpochsOfText | None = None
    tokens: Total | None = None
    flops: Flops | None = None
    hours: Hours | None = None
    clip: NonNegative = 1.0
    seed: Seed = 1
    precision: Literal["auto", "bf16", "fp32"] = "auto"
    device: Literal["auto", "cpu", "cuda", "mps"] = "auto"
    compile: Literal["auto", "on", "off"] = "auto"
    evaluations: Count = 10
    heldout_rows: Count = 512
    checkpoints: Count = 10
    keep: Count = 2
    patience: Count = 5
