"""The settings of training: budget, batch, precision, evaluations and checkpoints."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from foreword.settings.ranges import (
    Count,
    CountOrZero,
    EpochsOfText,
    Flops,
    Hours,
    NonNegative,
    Ranged,
    Seed,
    Share,
    Total,
    Workers,
)


@dataclass(frozen=True)
class TrainSettings(Ranged):
    """The budget, the batch, and how often to measure and save.

    The budget is the first one set of `hours`, `flops`, `tokens`, `epochs`, `steps`.

    Attributes:
        batch: sequences per step, over all micro-batches.
        batch_tokens: tokens per step instead, rounded to whole rows; 0 for `batch`.
        micro_batch: sequences computed at once; 0 chooses the most that fit in memory.
        workers: threads that share a micro-batch, each on its part of the CPU's cores; 0 chooses.
        steps: budget in steps.
        epochs: budget in readings of the whole text.
        tokens: budget in tokens read, of source and target; padding is not counted.
        flops: budget in floating-point operations.
        hours: budget in hours of wall-clock time, evaluation included.
        clip: greatest norm of the gradient; 0 for none.
        seed: of weights, order, corruption and dropout.
        precision: `auto` is bf16 where the hardware multiplies it faster, else fp32.
        device: `auto` is CUDA where there is one, else the CPU; `mps` is untried.
        compile: compile the blocks with torch.compile; `auto` on CUDA.
        evaluations: how many times the held-out loss is measured.
        heldout_rows: maximum rows of held-out text measured each time.
        checkpoints: how many checkpoints are written.
        keep: how many of the last checkpoints are kept, besides the best.
        patience: number of non-finite steps in a row that stops the run.
        average: share of the budget at whose end the model is the mean of its weights after each
            step, which is what is measured and saved; 0 for none.
        word_vectors: the embeddings begin as word vectors from counts of neighbours in this many
            tokens of the text (of a mixture's sources by their shares), in place of random numbers
            (`foreword.vectors.cooccurrence`); 0 for none. It is part of the budget in FLOPs or
            hours. Characters, and other vocabularies too small for it, keep random ones.
        checkpointing: activations of Transformer blocks that are computed again in backward, to
            save memory: `selective` keeps the results of linear maps, `full` the blocks' inputs
            alone.
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
    average: Share = 0.0
    word_vectors: CountOrZero = 0
    checkpointing: Literal["none", "selective", "full"] = "none"
