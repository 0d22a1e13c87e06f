"""Pretraining speed next to Hugging Face's Trainer: both in one run, with their ratio.

    python benchmarks/pretrain.py [--family masked causal t5 t5_deshuffle] [--dropout 0.1]
                                  [--rounds 3]
    python benchmarks/pretrain.py --recipe modern_decoder_mini [--set train.batch=4] [--rounds 3]

Sizes, rows of tokens, batch, dropout and number of CPU cores are the same. The Trainer runs in bf16
(if the hardware multiplies it) and in fp32, and the better counts. Both sides read their rows,
corrupt them, and take optimizer steps; the first steps of each are not timed. Each side has a
process of its own, ours set up as the command line does. A machine's speed changes while this runs,
so with more than one round the sides take turns, and the ratio is the median of the rounds' ratios.

With `--recipe`, ours alone on made-up rows of the recipe's shape, optimizer included: the tokens
per second, and their share of the rate that matrix products alone would have, those of forward and
backward, without the optimizer's. `--set` changes settings, as in `foreword pretrain`.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from typing import Any, TypeVar

os.environ["HF_HUB_OFFLINE"] = "1"
# For both sides; otherwise other work on the machine decides the ratio.
os.environ.setdefault("GOMP_SPINCOUNT", "1000")

import numpy as np
import torch

from foreword.cli._process import configure_process
from foreword.data.packing._contract import Packed
from foreword.nn.init import initialise
from foreword.runs.recipe import Recipe, load_recipe
from foreword.runs.setup import compile_blocks, resolve_auto
from foreword.settings import config, kinds
from foreword.train import flops
from foreword.train.device import (
    choose_device,
    choose_precision,
    matmul_flops_per_second,
    multiplies_bf16,
)
from foreword.train.feed import Feed
from foreword.train.step import StepOptions, train_step
from foreword.train.workers import accumulate_on
from foreword.types import Array, Rows, Vocab

Measured = TypeVar("Measured")
WARM_STEPS = 3
SIZES = {
    "mini": {"d_model": 256, "layers": 4, "heads": 4},
    "base": {"d_model": 768, "layers": 12, "heads": 12},
}
FAMILIES: dict[str, dict[str, Any]] = {
    "masked": {
        "length": 128, "batch": 32, "vocab": 30_522, "target": 3.5,
        "model": {"kind": "transformer", "norm_position": "post", "normalise_embedding": True,
                  "segments": 2, "position": {"kind": "learned", "length": 512}},
        "objective": "masked", "layout": "encoder",
    },
    "causal": {
        "length": 256, "batch": 16, "vocab": 32_000, "target": 2.5,
        "model": {"kind": "transformer", "activation": "gelu_tanh", "init": "gpt2",
                  "position": {"kind": "learned", "length": 1024}},
        "objective": "causal", "layout": "decoder",
    },
    "t5": {
        "length": 256, "batch": 16, "vocab": 32_000, "target": 2.5,
        "model": {"kind": "encoder_decoder", "activation": "relu", "norm": "rms", "bias": False,
                  "position": "t5_bias", "scale_scores": False, "scale_logits": True,
                  "ff_and_output_dropout": True, "init": "t5", "d_head": 64},
        "objective": "span_corruption", "layout": "encoder_decoder",
    },
}  # fmt: skip
# With a target as long as its source, the softmax is most of the work, as in causal. In span
# corruption the target is a quarter of the source, and the softmax a third of the work. Both end
# with </s>.
FAMILIES["t5_deshuffle"] = FAMILIES["t5"] | {"objective": "deshuffle", "length": 255}


class ZipfRows(Packed):
    """Rows of tokens with the frequencies of text, the same for both sides."""

    def __init__(self, length: int, vocab: int, rows: int, documents: int = 1) -> None:
        rng = np.random.default_rng(0)
        ranks = np.minimum(rng.zipf(1.2, (rows, length)), vocab - 107) - 1
        self.ids = ranks.astype(np.int64) + 107
        self.documents = np.sort(rng.integers(0, documents, (rows, length)), axis=1)
        self.rows_per_epoch, self.tokens_per_epoch = rows, rows * length

    def rows(self, numbers: Array) -> Rows:
        """Return the rows with these numbers."""
        ids = self.ids[numbers % len(self.ids)]
        documents = self.documents[numbers % len(self.ids)]
        positions = np.broadcast_to(np.arange(ids.shape[1]), ids.shape).copy()
        return Rows(ids, documents, positions, numbers)


def made_up_vocab(size: int) -> Vocab:
    """Return a vocabulary with the special tokens first."""
    names = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "<s>", "</s>"]
    is_special = np.arange(size) < 107
    special = {name: number for number, name in enumerate(names)}
    return Vocab(size, special, np.arange(7, 107), is_special, ~is_special)


def recipe_table(family: dict[str, Any], dropout: float = 0.0) -> dict[str, Any]:
    """Return the settings of our recipe for `family`."""
    model = {**family["size"], **family["model"], "dropout": dropout, "attention_dropout": dropout}
    return {
        "model": model,
        "objective": family["objective"],
        "layout": family["layout"],
        "packing": {"kind": "documents", "length": family["length"]},
        "train": {"batch": family["batch"], "threads": family.get("workers", 0)},
    }


def ours(family: dict[str, Any], steps: int, dropout: float, documents: int) -> tuple[float, float]:
    """Measure a family as `rate_and_bound` does."""
    configure_process()
    recipe = config.build(Recipe, recipe_table(family, dropout))
    return rate_and_bound(recipe, family["vocab"], steps, documents)


def named(name: str, assignments: list[str], steps: int, documents: int) -> tuple[float, float]:
    """Measure a recipe as `rate_and_bound` does."""
    configure_process()
    recipe = load_recipe(name, assignments)
    return rate_and_bound(recipe, recipe.tokenizer.vocab, steps, documents)


def rate_and_bound(
    recipe: Recipe, vocab_size: int, steps: int, documents: int
) -> tuple[float, float]:
    """Measure the tokens per second of Foreword's step, feed included.

    Returns:
        The measured rate, and its upper bound: the rate if matrix products, at the best rate
        measured for a large one, were all the work.
    """
    # Build the model and its feed.
    where = choose_device("auto")
    dtype = choose_precision("auto", where)
    recipe = resolve_auto(recipe, where, dtype)
    vocab, length = made_up_vocab(vocab_size), recipe.packing.length
    built = recipe.build(vocab)
    initialise(built, 1)
    built.to(where).train()
    if where.type == "cuda":
        compile_blocks(built)
    optimizer = recipe.optimizer.build(built)
    packed = ZipfRows(length, vocab_size, 4096, documents)
    feed = Feed(
        packed, recipe.objective, recipe.layout, vocab, rows_per_step=recipe.rows_per_step,
        micro_batch=recipe.train.micro_batch, workers=recipe.train.threads, seed=recipe.train.seed,
    )  # fmt: skip
    # The upper bound, then the steps.
    loss_fn = partial(recipe.objective.loss, built)
    tokens = recipe.rows_per_step * length
    products = sum(flops.count(built, batch, loss_fn) for batch in feed.micro_batches(0))
    bound = tokens * matmul_flops_per_second(where, dtype) / products
    times = []
    options = StepOptions(dtype=dtype, accumulate=accumulate_on(recipe.train.threads))
    batches = feed.ahead(0)
    for step in range(WARM_STEPS + steps):
        start = time.perf_counter()
        parts = next(batches)
        train_step(built, optimizer, parts, loss_fn, range(step, step + len(parts)), options)
        times.append(time.perf_counter() - start)
    batches.close()
    return tokens / statistics.median(times[WARM_STEPS:]), bound


def theirs(name: str, family: dict[str, Any], steps: int, dropout: float, bf16: bool) -> float:
    """Measure the tokens per second of `transformers.Trainer`."""
    import transformers
    from transformers import PrinterCallback, Trainer, TrainerCallback, TrainingArguments

    transformers.logging.set_verbosity_error()
    model, collate = _their_model(name, family, dropout)
    rows = ZipfRows(family["length"], family["vocab"], 4096).ids
    data = [{"input_ids": row} for row in rows]
    stamps: list[float] = []

    class Clock(TrainerCallback):  # type: ignore[misc]
        def on_step_end(self, *_: Any, **__: Any) -> None:
            stamps.append(time.perf_counter())

    with tempfile.TemporaryDirectory() as folder:
        arguments = TrainingArguments(
            folder, per_device_train_batch_size=family["batch"], max_steps=WARM_STEPS + steps + 1,
            bf16=bf16, report_to=[], save_strategy="no", logging_strategy="no", disable_tqdm=True,
            use_cpu=not torch.cuda.is_available(), dataloader_pin_memory=torch.cuda.is_available(),
        )  # fmt: skip
        trainer = Trainer(
            model, arguments, train_dataset=data, data_collator=collate, callbacks=[Clock()]
        )
        trainer.remove_callback(PrinterCallback)
        trainer.train()
    return float(
        family["batch"] * family["length"] / statistics.median(np.diff(stamps)[WARM_STEPS:])
    )


def _their_model(name: str, family: dict[str, Any], dropout: float) -> tuple[Any, Any]:
    """Return the model of `transformers`, and a collator that does what its examples do."""
    import transformers as hf

    vocab, size = family["vocab"], family["size"]
    width, layers, heads = size["d_model"], size["layers"], size["heads"]
    rng = np.random.default_rng(1)
    if name == "masked":
        bert = hf.BertConfig(
            vocab_size=vocab, hidden_size=width, num_hidden_layers=layers,
            intermediate_size=4 * width,
            num_attention_heads=heads, hidden_dropout_prob=dropout,
            attention_probs_dropout_prob=dropout,
        )  # fmt: skip

        def mask(rows: list[dict[str, Any]]) -> dict[str, Any]:
            ids = np.stack([row["input_ids"] for row in rows])
            is_masked, uniform = rng.random(ids.shape) < 0.15, rng.random(ids.shape)
            random_ids = rng.integers(107, vocab, ids.shape)
            inputs = np.where(is_masked & (uniform < 0.8), 4, ids)
            inputs = np.where(is_masked & (uniform > 0.9), random_ids, inputs)
            labels = np.where(is_masked, ids, -100)
            return {"input_ids": torch.from_numpy(inputs), "labels": torch.from_numpy(labels)}

        return hf.BertForMaskedLM(bert), mask
    if name == "causal":
        gpt = hf.GPT2Config(
            vocab_size=vocab, n_embd=width, n_layer=layers, n_head=heads, n_positions=1024,
            resid_pdrop=dropout, embd_pdrop=dropout, attn_pdrop=dropout, use_cache=False,
        )  # fmt: skip

        def copy(rows: list[dict[str, Any]]) -> dict[str, Any]:
            ids = torch.from_numpy(np.stack([row["input_ids"] for row in rows]))
            return {"input_ids": ids, "labels": ids}

        return hf.GPT2LMHeadModel(gpt), copy
    t5 = hf.T5Config(
        vocab_size=vocab, d_model=width, d_kv=64,
        d_ff=4 * width, num_layers=layers, num_heads=heads,
        dropout_rate=dropout, decoder_start_token_id=0, use_cache=False,
    )  # fmt: skip
    corrupt_as_ours = _shared_corruption(family)

    def corrupt(rows: list[dict[str, Any]]) -> dict[str, Any]:
        batch = corrupt_as_ours(np.stack([row["input_ids"] for row in rows]))
        return {
            "input_ids": torch.from_numpy(batch.source.ids),
            "labels": torch.from_numpy(batch.target.ids),
        }

    return hf.T5ForConditionalGeneration(t5), corrupt


def _shared_corruption(family: dict[str, Any]) -> Any:
    """Return our corruption, which both sides get, since theirs is no longer shipped."""
    from foreword.data.rng import RowRng

    objective = kinds.load("objectives", family["objective"])()
    vocab, count = made_up_vocab(family["vocab"]), iter(range(10**9))

    def corrupt(ids: Array) -> Any:
        numbers = np.asarray([next(count) for _ in ids])
        rows = Rows(ids, np.zeros_like(ids), np.zeros_like(ids), numbers)
        return objective.corrupt(rows, RowRng(1, numbers), vocab)

    return corrupt


def in_process(side: Callable[..., Measured], *arguments: Any) -> Measured:
    """Run `side` in a process of its own and return its measurement."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        return pool.submit(side, *arguments).result()


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--family", nargs="*", default=list(FAMILIES), choices=list(FAMILIES))
    parser.add_argument("--steps", type=int, default=15)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--dropout", type=float, nargs="*", default=[0.1, 0.0])
    parser.add_argument("--size", default="mini", choices=list(SIZES))
    parser.add_argument("--length", type=int, help="tokens of a row; default: as in FAMILIES")
    parser.add_argument("--batch", type=int, help="rows of a step; default: as in FAMILIES")
    parser.add_argument("--workers", type=int, default=0, help="threads of ours; 0 chooses")
    parser.add_argument("--documents", type=int, default=1, help="texts packed in a row of ours")
    parser.add_argument("--recipe", nargs="*", help="recipes, of ours alone")
    parser.add_argument("--set", nargs="*", default=[], help="settings of the recipes, a.b=c")
    arguments = parser.parse_args()
    print(f"torch {torch.__version__}, {torch.get_num_threads()} threads; tokens/s, medians")
    if arguments.recipe:
        for _ in range(arguments.rounds):
            for name in arguments.recipe:
                measured = (name, arguments.set, arguments.steps, arguments.documents)
                mine, bound = in_process(named, *measured)
                print(f"{name:<20} {mine:>9,.0f}   {mine / bound:.2f} of the bound", flush=True)
        return
    for name in arguments.family:
        family = {**FAMILIES[name], "size": SIZES[arguments.size]}
        family["workers"] = arguments.workers
        family["length"] = arguments.length or family["length"]
        family["batch"] = arguments.batch or family["batch"]
        for dropout in arguments.dropout:
            rounds = [compare(name, family, dropout, arguments) for _ in range(arguments.rounds)]
            if len(rounds) > 1:
                print(
                    f"{name:<12} dropout {dropout}: median ratio of {len(rounds)} rounds "
                    f"{statistics.median(rounds):.2f} (at least {family['target']})",
                    flush=True,
                )


def compare(
    name: str, family: dict[str, Any], dropout: float, arguments: argparse.Namespace
) -> float:
    """Measure and print one round of both sides; return our rate over their better one."""
    mine, bound = in_process(ours, family, arguments.steps, dropout, arguments.documents)
    precisions = ["fp32"]
    if multiplies_bf16(choose_device("auto")):
        precisions = ["bf16"] if arguments.size == "base" else ["bf16", "fp32"]
    rates = {"bf16": 0.0, "fp32": 0.0} | {
        precision: in_process(theirs, name, family, arguments.steps, dropout, precision == "bf16")
        for precision in precisions
    }
    best = max(rates.values())
    print(
        f"{name:<12} dropout {dropout}: Foreword {mine:>9,.0f}   Trainer bf16 "
        f"{rates['bf16']:>8,.0f}  fp32 {rates['fp32']:>8,.0f}   ratio {mine / best:.2f} "
        f"(at least {family['target']}; {bound / best:.2f} if products were all, of which this is "
        f"{mine / bound:.2f})",
        flush=True,
    )
    return mine / best


if __name__ == "__main__":
    main()
