"""The settings of training: budget, batch, precision, evaluations and checkpoints."""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, ClassVar, Literal

from foreword.settings import config
from foreword.settings.kinds import part
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
from foreword.train.embedding_init._contract import EmbeddingInit


def _embedding_init(word_vectors: Any) -> tuple[str, Any]:
    """Return the setting that says what `word_vectors`, a number of tokens, said."""
    counted = {"kind": "cooccurrence", "tokens": word_vectors}
    return "embedding_init", counted if word_vectors else "random"


@dataclass(frozen=True)
class TrainSettings(Ranged):
    """The budget, the batch, and how often to measure and save.

    The budget is the first one set of `hours`, `flops`, `tokens`, `epochs`, `steps`.

    Attributes:
        batch: sequences per step, over all micro-batches.
        batch_tokens: tokens per step instead, rounded to whole rows; 0 for `batch`.
        micro_batch: sequences computed at once; 0 chooses the most that fit in memory.
        threads: threads that share a micro-batch, each on its part of the CPU's cores; 0 chooses.
        steps: budget in steps.
        epochs: budget in readings of the whole text.
        tokens: budget in tokens read, of source and target; padding is not counted.
        flops: budget in floating-point operations.
        hours: budget in hours of wall-clock time, evaluation included.
        clip: greatest norm of the gradient; 0 for none.
        seed: the seed of weights, order, corruption and dropout.
        precision: `auto` is bf16 where the hardware multiplies it faster, else fp32.
        device: `auto` is CUDA where there is one, else the CPU; `mps` is untried.
        compile: compile the blocks with torch.compile; `auto` on CUDA.
        evaluations: how many times the held-out loss is measured.
        heldout_rows: maximum rows of held-out text measured each time.
        checkpoints: how many checkpoints are written.
        kept_checkpoints: how many of the last checkpoints are kept, besides the best.
        max_nonfinite_steps: number of non-finite steps in a row that stops the run.
        average: share of the budget at whose end the model is the mean of its weights after each
            step, which is what is measured and saved; 0 for none.
        embedding_init: how the embeddings of tokens begin, a kind in `train/embedding_init/`.
        activation_checkpointing: which activations of Transformer blocks backward computes again,
            to save memory: `selective` keeps the results of linear maps, `full` the blocks' inputs
            alone.
    """

    batch: Count = 32
    batch_tokens: CountOrZero = 0
    micro_batch: CountOrZero = 0
    threads: Workers = 0
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
    kept_checkpoints: Count = 2
    max_nonfinite_steps: Count = 5
    average: Share = 0.0
    embedding_init: EmbeddingInit = part("train/embedding_init", "random")
    activation_checkpointing: Literal["none", "selective", "full"] = "none"

    RENAMED: ClassVar[config.Renamed] = MappingProxyType(
        {
            "workers": "threads",
            "keep": "kept_checkpoints",
            "patience": "max_nonfinite_steps",
            "checkpointing": "activation_checkpointing",
            "word_vectors": _embedding_init,
        }
    )
