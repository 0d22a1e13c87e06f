"""Steps of a recipe on made-up rows: their speed and memory; see `gpu.py`."""

from __future__ import annotations

import gc
import json
import statistics
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from foreword.data.packing._contract import Packed
from foreword.nn.checkpointing import checkpoint_blocks
from foreword.nn.init import initialise
from foreword.runs.recipe import Recipe
from foreword.runs.setup import TrainingSetup, compile_blocks, resolve_auto
from foreword.settings import config
from foreword.train import flops
from foreword.train.device import choose_precision, matmul_flops_per_second, wait
from foreword.train.feed import Feed
from foreword.train.step import StepOptions, train_step
from foreword.train.workers import accumulate_on
from foreword.types import Array, Batch, PairLabels, Rows, Vocab

# Dense bf16 products by the vendors' data sheets, TFLOP/s; the first matching name counts.
PEAKS = {
    "B200": 2250, "GH200": 990, "H200": 989, "H100 PCIe": 756, "H100": 989, "A100": 312,
    "A10G": 70, "A10": 125, "L40S": 362, "L40": 181, "L4": 121, "RTX 4090": 165, "RTX 3090": 71,
}  # fmt: skip
# Rows computed at once, about 32,000 tokens of base size.
ROWS = {"bert_base": 64, "gpt2_small": 32, "t5_base": 56}
WARM_STEPS = 4


@dataclass(frozen=True)
class Job:
    """The arguments of a part.

    Attributes:
        records: the file that it appends to.
        device: `cuda` or `cpu`.
        size: `base` or `tiny`.
        seconds: its time limit.
    """

    records: Path
    device: torch.device
    size: str
    seconds: float

    @property
    def is_tiny(self) -> bool:
        """Whether this only tries the part out."""
        return self.size == "tiny"

    def note(self, kind: str, **record: Any) -> None:
        """Append a record to the file."""
        with self.records.open("a", encoding="utf-8") as file:
            file.write(json.dumps({"kind": kind, **record}) + "\n")


class MadeUpTexts(Packed):
    """Made-up rows with the frequencies of text: several texts to a row, or pairs of them.

    Args:
        recipe: has the length, the document mask, and whether texts are pairs.
        vocab: number of ids, those below 107 special.
    """

    def __init__(self, recipe: Recipe, vocab: int) -> None:
        rows, length = 512, recipe.packing.length
        rng = np.random.default_rng(0)
        first = min(107, vocab // 2)
        ranks = np.minimum(rng.zipf(1.2, (rows, length)), vocab - first) - 1
        self.ids = ranks.astype(np.int64) + first
        self.are_pairs = recipe.packing.labels_pairs
        is_masked = recipe.packing.document_mask or self.are_pairs
        cuts = np.sort(rng.integers(1, length, (rows, 3)), axis=1)  # four texts to a row
        columns = np.arange(length)
        self.documents = (columns >= cuts[:, :, None]).sum(1) if is_masked else 0 * self.ids
        self.rows_per_epoch, self.tokens_per_epoch = rows, rows * length

    def rows(self, numbers: Array) -> Rows:
        """Return the rows with these numbers."""
        at = numbers % len(self.ids)
        ids, documents = self.ids[at], self.documents[at]
        is_first = np.ones(ids.shape, bool)
        is_first[:, 1:] = documents[:, 1:] != documents[:, :-1]
        columns = np.broadcast_to(np.arange(ids.shape[1]), ids.shape)
        positions = columns - np.maximum.accumulate(np.where(is_first, columns, 0), axis=1)
        if not self.are_pairs:
            return Rows(ids, documents, positions, numbers)
        segments = (positions > 20).astype(np.int64)
        labels = PairLabels(np.where(is_first, ids % 2, -1))
        return Rows(ids, documents, positions, numbers, segments, (labels,))


class released:  # noqa: N801 - a context manager
    """A context that frees the device's memory at its end, and compiled code at its start."""

    def __init__(self, device: torch.device) -> None:
        self.device = device

    def __enter__(self) -> None:
        torch.compiler.reset()

    def __exit__(self, *_: object) -> None:
        gc.collect()
        if self.device.type == "cuda":
            torch.cuda.empty_cache()


def speed(job: Job, name: str) -> None:
    """Measure steps of a recipe as published and with FlexAttention, compiled and not."""
    peak_rate = matmul_flops_per_second(job.device, choose_precision("auto", job.device))
    base: dict[str, Any] = {} if not job.is_tiny else {"model": {"layers": 2}}
    for case, over, compiles in cases(name):
        if job.is_tiny and job.device.type == "cpu" and compiles:
            continue  # minutes of compilation
        with released(job.device), kept_going(job, case):
            measure(job, name, case, config.merge(base, over), peak_rate, compiles=compiles)
    for amount in ("none", "selective", "full"):
        with released(job.device), kept_going(job, f"check, {amount}"):
            check(job, name, amount)


@contextmanager
def kept_going(job: Job, case: str) -> Iterator[None]:
    """A context whose error is recorded, so that what follows is measured all the same."""
    try:
        yield
    except Exception as error:
        job.note("failed", case=case, why=f"{type(error).__name__}: {error}"[:400])


def cases(name: str) -> list[tuple[str, dict[str, Any], bool]]:
    """Return what is measured of a recipe: a name, the settings, and whether it is compiled.

    What the aims are about comes first, since the time may end.
    """
    no_dropout: dict[str, Any] = {"model": {"dropout": 0.0, "attention_dropout": 0.0}}
    masked = {**no_dropout, "packing": {"document_mask": True}}
    return [
        ("as published, compiled", {}, True),
        ("no dropout, compiled", no_dropout, True),
        *([("no dropout, document mask, compiled", masked, True)] * (name == "gpt2_small")),
        *(
            (f"no dropout, {amount} checkpointing, {'' if compiles else 'un'}compiled",
             {**no_dropout, "train": {"activation_checkpointing": amount}}, compiles)
            for compiles in (True, False)
            for amount in ("selective", "full")
        ),
        ("as published, uncompiled", {}, False),
    ]  # fmt: skip


def measure(
    job: Job, name: str, case: str, over: dict[str, Any], peak_rate: float, *, compiles: bool
) -> None:
    """Record the speed of steps, with half the rows if they do not fit into memory."""
    rows = 2 if job.is_tiny else ROWS[name]
    while True:
        try:
            record = timed_steps(job, build_setup(job, name, over, rows), compiles=compiles)
        except torch.OutOfMemoryError:
            rows //= 2
            if not rows:
                raise
            torch.cuda.empty_cache()
            continue
        sheet = data_sheet(gpu_name(job.device))
        rate = record["flops"] / record["seconds"]
        job.note(
            "steps", case=case, rows=rows, tokens_per_second=record["tokens_per_second"],
            seconds=record["seconds"], tflops=rate / 1e12,
            share_of_products=rate / peak_rate,
            share_of_peak=rate / 1e12 / sheet if sheet else None,
            peak_gib=record["peak_gib"], graphs=record["graphs"], breaks=record["breaks"],
            first_step=record["first_step"], loss=record["loss"],
        )  # fmt: skip
        return


def gpu_name(device: torch.device) -> str:
    """Return the GPU's name; "" on a CPU."""
    return torch.cuda.get_device_name() if device.type == "cuda" else ""


def data_sheet(name: str) -> float | None:
    """Return the vendor's peak of bf16 products in TFLOP/s; None if unknown."""
    return next((float(value) for word, value in PEAKS.items() if word in name), None)


def build_setup(
    job: Job, name: str, over: dict[str, Any], rows: int | None = None
) -> TrainingSetup:
    """Return a recipe's set-up on made-up rows, with one micro-batch to a step.

    Args:
        job: the part.
        name: of the recipe.
        over: settings other than the recipe's.
        rows: of a step; by default `ROWS`, or the recipe's own.
    """
    # The recipe, narrow if it is only to be tried out.
    table = config.read(config.RECIPES.find(name))
    if job.is_tiny:
        narrow = {"model": {"d_model": 32, "heads": 2, "d_ff": 64, "layers": 2}}
        if name == "t5_base":
            narrow["model"]["d_head"] = 16
        table = config.merge(table, {**narrow, "tokenizer": {"vocab": 512}})
        table = config.merge(table, {"packing": {"length": 64}})
    rows = rows or (2 if job.is_tiny else ROWS.get(name, table["train"]["batch"]))
    train = {"batch": rows, "micro_batch": rows, "device": job.device.type, **over.get("train", {})}
    table = config.merge(table, {**over, "train": train})
    size = table["tokenizer"]["vocab"]
    dtype = choose_precision("auto", job.device)
    recipe = resolve_auto(config.build(Recipe, table), job.device, dtype)
    # Model and feed.
    vocab = vocab_of(size)
    model = recipe.build(vocab)
    initialise(model, 1)
    checkpoint_blocks(model, recipe.train.activation_checkpointing)
    model.to(job.device).train()
    feed = Feed(
        MadeUpTexts(recipe, size), recipe.objective, recipe.layout, vocab, rows_per_step=rows,
        micro_batch=rows, workers=recipe.train.threads, seed=recipe.train.seed,
    )  # fmt: skip
    tokenizer: Any = None  # not used
    return TrainingSetup(recipe, tokenizer, vocab, model, feed, None, job.device, dtype)


def vocab_of(size: int) -> Vocab:
    """Return a vocabulary with the special tokens first."""
    names = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "<s>", "</s>"]
    special = {name: number for number, name in enumerate(names)}
    first = min(107, size // 2)
    is_special = np.arange(size) < first
    return Vocab(size, special, np.arange(len(names), first), is_special, ~is_special)


def timed_steps(job: Job, of: TrainingSetup, *, compiles: bool) -> dict[str, Any]:
    """Return the time of the median step, and facts on compilation and memory."""
    from torch._dynamo.utils import counters

    # The FLOPs of a step, counted before compilation.
    counters.clear()
    loss_fn = partial(of.recipe.objective.loss, of.model)
    few = of.feed.batches(np.arange(min(4, of.recipe.rows_per_step)))
    counted = sum(flops.count(of.model, batch, loss_fn) for batch in few)
    operations = counted * of.recipe.rows_per_step / sum(len(batch.ids) for batch in few)
    # The steps, until there are enough or the time is over.
    if compiles:
        compile_blocks(of.model)
    optimizer = of.recipe.optimizer.build(of.model)
    if job.device.type == "cuda":
        torch.cuda.reset_peak_memory_stats()
    times, losses, batches = [], [], of.feed.ahead(0)
    enough = 0.0
    try:
        for number in range(WARM_STEPS + (2 if job.is_tiny else 30)):
            start = time.perf_counter()
            losses.append(run_step(of, optimizer, next(batches), loss_fn, number))
            times.append(time.perf_counter() - start)
            if len(times) == WARM_STEPS:  # compiled
                enough = time.perf_counter() + job.seconds / 25
            if len(times) > WARM_STEPS + 5 and time.perf_counter() > enough:
                break
    finally:
        batches.close()
    seconds = statistics.median(times[WARM_STEPS:])
    is_cuda = job.device.type == "cuda"
    return {
        "seconds": seconds,
        "flops": operations,
        "tokens_per_second": round(of.recipe.rows_per_step * of.recipe.packing.length / seconds),
        "peak_gib": torch.cuda.max_memory_allocated() / 2**30 if is_cuda else None,
        "graphs": counters["stats"]["unique_graphs"],
        "breaks": sum(counters["graph_break"].values()),
        "first_step": times[0],
        "loss": f"{losses[0]:.3f} to {losses[-1]:.3f}",
    }


def run_step(
    of: TrainingSetup,
    optimizer: torch.optim.Optimizer,
    batches: list[Batch],
    loss_fn: Any,
    number: int,
) -> float:
    """Take one training step and return its loss in nats."""
    seeds = range(number, number + len(batches))
    options = StepOptions(dtype=of.dtype, accumulate=accumulate_on(of.recipe.train.threads))
    result = train_step(of.model, optimizer, batches, loss_fn, seeds, options)
    wait(of.device)
    return result.loss


def check(job: Job, name: str, checkpointing: str) -> None:
    """Record the estimates of `foreword check` next to what a step takes."""
    from foreword.planning.estimate import estimate

    over = {"train": {"compile": "off", "activation_checkpointing": checkpointing}}
    of = build_setup(job, name, over, 2 if job.is_tiny else ROWS[name] // 2)
    of = replace(of, recipe=replace(of.recipe, train=replace(of.recipe.train, compile="off")))
    if job.device.type == "cuda":
        torch.cuda.reset_peak_memory_stats()
    estimated = estimate(of)
    is_cuda = job.device.type == "cuda"
    job.note(
        "check, uncompiled", checkpointing=checkpointing, rows=of.recipe.train.micro_batch,
        estimated_gib=estimated.memory.total / 2**30,
        estimated_seconds=estimated.seconds_per_step,
        peak_gib=torch.cuda.max_memory_allocated() / 2**30 if is_cuda else None,
    )  # fmt: skip
