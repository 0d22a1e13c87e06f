"""Everything that training needs, built from a recipe and shards, for this machine."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch

from foreword.data.prepared import Prepared
from foreword.nn.attention import has_triton
from foreword.nn.block import Block
from foreword.nn.init import initialise
from foreword.nn.model import Model
from foreword.text.tokenizer import Tokenizer
from foreword.train.device import choose_device, choose_precision, describe
from foreword.train.feed import Feed
from foreword.train.recipe import Recipe
from foreword.train.sizes import fits, memory_of
from foreword.train.trial import shallow
from foreword.train.workers import choose_workers
from foreword.types import Vocab


@dataclass(frozen=True)
class Ready:
    """Everything that training needs, built from a recipe and shards.

    Attributes:
        recipe: with every `auto` resolved.
        tokenizer: the run's.
        vocab: of the tokenizer.
        model: initialised, on its device.
        feed: of the training text.
        heldout: of the held-out text, or None where it is shorter than a row.
        device: where it runs.
        dtype: what it computes in.
    """

    recipe: Recipe
    tokenizer: Tokenizer
    vocab: Vocab
    model: Model
    feed: Feed
    heldout: Feed | None
    device: torch.device
    dtype: torch.dtype


def make_ready(
    recipe: Recipe, tokenizer: Tokenizer, prepared: Prepared, *, or_shape: bool = False
) -> Ready:
    """Builds model and feeds, tries the objective on one row, resolves every `auto`.

    Args:
        recipe: of the run.
        tokenizer: of the run.
        prepared: its text.
        or_shape: of a model that this machine is too small for, give the shape alone: a few
            layers on torch's meta device.

    Raises:
        UserError: the text is shorter than a row, or the tokenizer lacks what the objective needs.
    """
    vocab = tokenizer.vocab
    device = choose_device(recipe.train.device)
    dtype = choose_precision(recipe.train.precision, device)
    recipe = resolve(recipe, device, dtype)
    feed = Feed.of(recipe, prepared.train, vocab)
    feed.batch(torch.arange(1).numpy(), recipe.train.seed)
    heldout = None
    if prepared.heldout.tokens_total >= recipe.packing.length:
        heldout = Feed.of(recipe, prepared.heldout, vocab, for_training=False)
    if or_shape and not fits(recipe, vocab):
        with torch.device("meta"):
            shape = shallow(recipe)[0].build(vocab)
        return Ready(recipe, tokenizer, vocab, shape, feed, heldout, device, dtype)
    model = recipe.build(vocab)
    initialise(model, recipe.train.seed)
    return Ready(recipe, tokenizer, vocab, model.to(device), feed, heldout, device, dtype)


def resolve(recipe: Recipe, device: torch.device, dtype: torch.dtype) -> Recipe:
    """The recipe with every choice that it leaves to the machine made.

    A resumed run finds them chosen, so it computes as it did before.
    """
    train = recipe.train
    compiles = train.compile
    if compiles == "auto":
        compiles = "on" if device.type == "cuda" and has_triton() else "off"
    micro = min(train.micro_batch or _rows_that_fit(recipe, device), recipe.rows_per_step)
    train = replace(
        train,
        device="cuda" if device.type == "cuda" else "mps" if device.type == "mps" else "cpu",
        precision="bf16" if dtype == torch.bfloat16 else "fp32",
        compile=compiles,
        micro_batch=micro,
        workers=choose_workers(train.workers, device, micro, recipe.packing.length),
    )
    return replace(recipe, train=train)


def settled(recipe: Recipe) -> Recipe:
    """The recipe on the processor and in fp32, where models that are fitted learn."""
    train = replace(recipe.train, device="cpu", precision="fp32", compile="off")
    return replace(recipe, train=train)


def _rows_that_fit(recipe: Recipe, device: torch.device) -> int:
    """Sequences whose activations take a quarter of the memory, in a power of two.

    About 34 d_model values of 2 bytes a layer and token are kept for backward (Korthikanti et al.
    2022, section 4.1), and as much again of gradients and slack.
    """
    model = recipe.model
    row = 2 * 34 * 2 * model.d_model * model.depth * recipe.packing.length
    rows = max(1, memory_of(device) // 4 // row)
    return 1 << (int(rows).bit_length() - 1)


def compile_blocks(model: Model) -> None:
    """Compiles each Transformer block in place; blocks of one shape share the code.

    Where positions have weights for each layer, each layer has code of its own: more than torch
    would make of one function, and past its limit blocks run uncompiled.
    """
    from torch._dynamo import config

    blocks = [module for module in model.modules() if isinstance(module, Block)]
    config.recompile_limit = max(config.recompile_limit, 4 * len(blocks))
    for block in blocks:
        block.compile()


def describe_run(ready: Ready) -> str:
    """One line on what is about to run."""
    recipe, precision = ready.recipe, ready.recipe.train.precision
    pieces = -(-recipe.rows_per_step // recipe.train.micro_batch)
    tokens = recipe.rows_per_step * recipe.packing.length
    return (
        f"{ready.model.count_parameters():,} parameters, vocabulary {ready.vocab.size:,}; "
        f"{tokens:,} tokens a step ({recipe.rows_per_step} rows of {recipe.packing.length}"
        f"{f', in {pieces} micro-batches' if pieces > 1 else ''}); "
        f"{precision} on {describe(ready.device)}"
    )
