"""The memory that a plan says of each process beside what two processes take.

    python benchmarks/parallel_memory.py [--processes 2] [--families gpt2 albert lstm]
                                         [--set model.d_model=256 ...]

`foreword check --gpus` plans by arithmetic what each GPU holds. Here small models of wide layers
and short rows are trained for two steps in several processes (Gloo, on the CPU), so that most of
their memory is weights, gradients and what is gathered of them. Taken is the peak of a process's
resident set in the second step, less what it had before the model was built.
"""

from __future__ import annotations

import argparse
import gc
import os
import socket
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import torch

from foreword.planning.gpus import GPU
from foreword.planning.plan import Assumptions, plan
from foreword.planning.resident import Peak
from foreword.process import allocator
from foreword.runs.dry_run import dummy_example, dummy_vocab
from foreword.runs.recipe import Recipe, load_recipe
from foreword.runs.setup import build_model
from foreword.train import processes
from foreword.train.joining import joined
from foreword.train.parallel._contract import TrainingDivision
from foreword.train.step import StepOptions, train_step
from foreword.types import TermCounts

CPU = torch.device("cpu")
SETTINGS = ("tokenizer.vocab=1000", "model.layers=12", "model.d_model=256", "packing.length=8")
NARROW = ("model.d_model=32",)  # of a model that loads all code first
# Kind, precision, checkpointing, micro-batches a step, optimizer.
CASES = (
    "ddp fp32 none 1 adamw",
    "ddp bf16 none 1 adamw",
    "ddp bf16 none 2 adamw",
    "ddp bf16 full 1 muon",
    "fsdp fp32 none 1 adamw",
    "fsdp bf16 none 1 adamw",
    "fsdp bf16 full 2 adamw",
    "fsdp bf16 selective 1 adamw",
    "fsdp bf16 none 1 muon",
)


def main(words: Sequence[str] | None = None) -> None:
    """Measure each case and print a line for it."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--families", nargs="+", default=["gpt2", "albert"])
    parser.add_argument("--cases", nargs="+", default=list(CASES))
    parser.add_argument("--set", action="append", default=[])
    given = parser.parse_args(words)
    if "RANK" in os.environ:
        with joined():
            measure_all(given)
        return
    print(f"{'family':10}{'case':30}{'weights':>10}{'planned':>10}{'taken':>10}{'ratio':>7}")
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port = str(listener.getsockname()[1])
    known = {**os.environ, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "LOCAL_RANK": "0"}
    known |= {"WORLD_SIZE": str(given.processes), "OMP_NUM_THREADS": "1"}
    # Freed blocks are returned at once, so that the resident set is what is held.
    known |= {"MALLOC_MMAP_THRESHOLD_": "65536", "PYTHONPATH": str(Path(__file__).parents[1])}
    known |= {"TORCH_CPP_LOG_LEVEL": "ERROR"}
    command = [sys.executable, __file__, *(sys.argv[1:] if words is None else words)]
    running = [
        subprocess.Popen(command, env={**known, "RANK": str(rank)})
        for rank in range(given.processes)
    ]
    statuses = [process.wait() for process in running]
    if any(statuses):
        raise SystemExit("a process failed")


def measure_all(given: argparse.Namespace) -> None:
    """Measure each case in this process; the first prints."""
    for family in given.families:
        for case in given.cases:
            _, settings = settings_of(case, given.processes)
            settings = [*SETTINGS, *settings, *given.set]
            take_steps(load_recipe(f"{family}_tiny", [*settings, *NARROW]), case)
            recipe = load_recipe(f"{family}_tiny", settings)
            planned, taken = planned_bytes(recipe, case, given.processes), take_steps(recipe, case)
            weights, total = planned
            if processes.is_first():
                sizes = "".join(f"{size / 1e6:>7.1f} MB" for size in (weights, total, taken))
                print(f"{family:10}{case:30}{sizes}{total / taken:7.2f}", flush=True)


def settings_of(case: str, count: int) -> tuple[torch.dtype, list[str]]:
    """Return the precision of a case, and its settings."""
    kind, precision, amount, micro_batches, optimizer = case.split()
    settings = [f"parallel.kind={kind}", f"train.precision={precision}", "train.micro_batch=1"]
    settings += [
        f"train.activation_checkpointing={amount}",
        f"train.batch={count * int(micro_batches)}",
    ]
    return torch.bfloat16 if precision == "bf16" else torch.float32, [
        *settings,
        f"optimizer.kind={optimizer}",
    ]


def planned_bytes(recipe: Recipe, case: str, count: int) -> tuple[int, int]:
    """Return the bytes of all weights, and those that the plan says of a process."""
    dtype, _ = settings_of(case, count)
    gpu = GPU(memory_gb=80, bf16_tflops=float(dtype == torch.bfloat16), fp32_tflops=1)
    made = plan(recipe, gpu, count, Assumptions())
    return 4 * sum(made.parameters.values()), made.best.memory.total - made.best.memory.context


def take_steps(recipe: Recipe, case: str) -> int:
    """Train for two steps; return the bytes at the peak of the second, less those before both."""
    dtype, _ = settings_of(case, processes.count())
    gc.collect()
    allocator.return_freed()
    with Peak(CPU) as before:
        pass
    vocab, kind = dummy_vocab(recipe.tokenizer), recipe.parallel
    assert isinstance(kind, TrainingDivision)
    whole = build_model(recipe, vocab, CPU, kind if kind.shards else None)
    loss_fn = whole if kind.shards else kind.wrap(whole, CPU, dtype)
    optimizer = recipe.optimizer.build(whole.model)
    batch = recipe.layout.arrange(dummy_example(recipe, vocab, 1), vocab)
    counts = recipe.objective.count_terms(batch)
    batches = [batch if counts is None else batch.with_part(TermCounts(counts))]
    batches *= recipe.rows_per_step // processes.count()
    for _ in range(2):
        with Peak(CPU) as peak:
            train_step(
                whole.model,
                optimizer,
                batches,
                loss_fn,
                range(len(batches)),
                StepOptions(dtype=dtype),
            )
    return peak.peak - (before.start or 0)


if __name__ == "__main__":
    main()
