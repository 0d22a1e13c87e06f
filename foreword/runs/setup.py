"""Everything that training needs, built from a recipe and shards, for this machine."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace

import numpy as np
import torch

from foreword.data.packing._contract import Packed
from foreword.data.prepared_text import PreparedText
from foreword.data.shards import Shards
from foreword.errors import UserError
from foreword.formatting import rounded
from foreword.nn.attention import has_triton
from foreword.nn.block import Block
from foreword.nn.checkpointing import checkpoint_blocks
from foreword.nn.init import initialise, shapes_only, without_weights
from foreword.nn.model import Model
from foreword.objectives._contract import ModelWithLoss, Objective
from foreword.runs.counted import row_bytes
from foreword.runs.dry_run import shallow
from foreword.runs.recipe import Recipe
from foreword.runs.sizes import fits, least_memory, memory_of
from foreword.runs.sources import mixed_rows
from foreword.settings import kinds
from foreword.text.tokenizer import Tokenizer
from foreword.train import flops, processes
from foreword.train.budget import Budget
from foreword.train.device import autocast, choose_device, choose_precision, describe
from foreword.train.feed import Feed
from foreword.train.hooks import Hook
from foreword.train.loop import Batches, Loop
from foreword.train.parallel._contract import TrainingDivision
from foreword.train.step import StepOptions
from foreword.train.workers import accumulate_on, choose_workers
from foreword.types import Vocab

DROPOUT = 0xD0  # mixed into the run's seed for dropout
COUNTED_ROWS = 8  # rows whose FLOPs are counted on a GPU


@dataclass(frozen=True)
class SourceFeed:
    """The held-out text of a source in a mixture.

    Attributes:
        name: the name of the source.
        share: the share of the training rows.
        epochs: how many times training reads it.
        heldout: batches of its held-out text; None if it is shorter than a row.
    """

    name: str
    share: float
    epochs: float
    heldout: Feed | None


@dataclass(frozen=True)
class TrainingSetup:
    """Everything that training needs, built from a recipe and shards.

    Attributes:
        recipe: recipe of the run, with every `auto` resolved.
        tokenizer: tokenizer of the run.
        vocab: the vocabulary of the tokenizer.
        model: initialised, on its device.
        feed: batches of the training text.
        heldout: batches of the held-out text; None if it is shorter than a row.
        device: device of the model.
        dtype: precision of the computation.
        sources: the held-out text of each source of a mixture.
        sharded: the model with its objective, if this process holds only a part of it.
    """

    recipe: Recipe
    tokenizer: Tokenizer
    vocab: Vocab
    model: Model
    feed: Feed
    heldout: Feed | None
    device: torch.device
    dtype: torch.dtype
    sources: tuple[SourceFeed, ...] = ()
    sharded: ModelWithLoss | None = None

    @property
    def loss_fn(self) -> ModelWithLoss:
        """The module from a batch to its loss."""
        return self.sharded or ModelWithLoss(self.model, self.recipe.objective)

    @contextmanager
    def computing(self, objective: Objective, model: Model) -> Iterator[ModelWithLoss]:
        """Provide `loss_fn` for a stage's objective, and the model with the heads of the stage."""
        loss_fn = self.loss_fn
        before, loss_fn.uses = loss_fn.uses, (objective, model)
        try:
            yield loss_fn
        finally:
            loss_fn.uses = before

    def notes(self, prepared: PreparedText) -> list[str]:
        """Return what the user should know of how the text became rows, one line each."""
        notes, tokens = list(self.feed.packed.notes), prepared.counts["heldout"].tokens
        if (epochs := self.feed.epochs(1)) > 1:
            notes.append(
                f"one step of {self.feed.rows_per_step:,} rows reads the text {rounded(epochs)} "
                "times: give more text, or set a smaller train.batch"
            )
        if self.heldout is None and tokens:
            notes.append(
                f"{tokens:,} tokens of held-out text do not fill one row of "
                f"{self.recipe.packing.length}: no held-out loss is measured"
            )
        return notes


def set_up_training(
    recipe: Recipe, tokenizer: Tokenizer, prepared: PreparedText, *, or_shape: bool = False
) -> TrainingSetup:
    """Build model and feeds, make a batch of one row, and resolve every `auto`.

    Args:
        recipe: the recipe of the run.
        tokenizer: the tokenizer of the run.
        prepared: its text.
        or_shape: whether to build a model too large for this machine in part, without weights: a
            few layers on torch's meta device.

    Raises:
        UserError: the text is shorter than a row, or the tokenizer lacks what the objective needs.
    """
    vocab = tokenizer.vocab
    recipe = resolved(recipe)
    device = choose_device(recipe.train.device, "train.device")
    dtype = choose_precision(recipe.train.precision, device)
    sources: tuple[SourceFeed, ...] = ()
    if prepared.sources:
        mixed = mixed_rows(recipe, prepared, vocab)
        feed = _feed(recipe, prepared.train, vocab, mixed, recipe.train.micro_batch)
        plan = mixed.plan
        per_source = zip(prepared.sources.items(), plan.shares(), plan.epochs(), strict=True)
        sources = tuple(
            SourceFeed(name, float(share), float(epochs), _heldout(recipe, source.heldout, vocab))
            for (name, source), share, epochs in per_source
        )
    else:
        feed = training_feed(recipe, prepared.train, vocab)
    feed.batch(torch.arange(1).numpy(), recipe.train.seed)
    heldout = _heldout(recipe, prepared.heldout, vocab)
    if or_shape and not fits(recipe, vocab):
        with shapes_only():
            shape = shallow(recipe)[0].build(vocab)
        return TrainingSetup(recipe, tokenizer, vocab, shape, feed, heldout, device, dtype, sources)
    kind = parallelism(recipe, vocab, device)
    division = kind if kind is not None and kind.shards else None
    whole = build_model(recipe, vocab, device, division)
    sharded = None if division is None else whole
    return TrainingSetup(
        recipe, tokenizer, vocab, whole.model, feed, heldout, device, dtype, sources, sharded
    )


def parallelism(recipe: Recipe, vocab: Vocab, device: torch.device) -> TrainingDivision | None:
    """Return how several processes share the training; None for a process alone."""
    if processes.count() == 1:
        return None
    sharing = processes.local_count() if device.type == "cpu" else 1
    return recipe.parallel.choose(
        sum(least_memory(recipe, vocab).values()), memory_of(device) // sharing
    )


def build_model(
    recipe: Recipe, vocab: Vocab, device: torch.device, division: TrainingDivision | None = None
) -> ModelWithLoss:
    """Return the model with its objective and first weights, the same on any number of processes.

    Args:
        recipe: the recipe of the run.
        vocab: the vocabulary of its tokenizer.
        device: where it is computed.
        division: divides it among the processes, so that each never holds more than its share of
            the weights and one parameter; None if each holds the whole.

    Raises:
        UserError: parts of the recipe do not fit, or the model cannot be divided.
    """
    with nullcontext() if division is None else without_weights():
        whole = ModelWithLoss(recipe.build(vocab), recipe.objective)
    _checkpoint_activations(whole.model, recipe)
    if division is not None:
        division.wrap(whole, device, choose_precision(recipe.train.precision, device))
    initialise(whole.model, recipe.train.seed)
    return whole if division is not None else whole.to(device)


def _checkpoint_activations(model: Model, recipe: Recipe) -> None:
    """Let blocks compute activations again in backward, if the recipe says so.

    Raises:
        UserError: the model has no blocks, or they are compiled for a CPU.
    """
    train, amount = recipe.train, recipe.train.activation_checkpointing
    if not checkpoint_blocks(model, amount) and amount != "none":
        raise UserError(
            f"train.activation_checkpointing={amount}: this model has no Transformer blocks; "
            "use 'none'"
        )
    if amount != "none" and train.compile == "on" and train.device == "cpu":
        raise UserError(
            f"train.activation_checkpointing={amount} cannot be combined with train.compile=on on "
            "a CPU"
        )


def _heldout(recipe: Recipe, shards: Shards, vocab: Vocab) -> Feed | None:
    """Return the batches of held-out text; None if it is shorter than a row."""
    if shards.tokens_total < recipe.packing.length:
        return None
    return heldout_feed(recipe, shards, vocab)


def training_feed(recipe: Recipe, shards: Shards, vocab: Vocab) -> Feed:
    """Return the batches of a recipe over training shards.

    Raises:
        UserError: the text is shorter than a row, or the tokenizer lacks a special token.
    """
    rows = recipe.rows_per_step
    packed = recipe.packing.open(shards, vocab, recipe.train.seed, rows)
    return _feed(recipe, shards, vocab, packed, recipe.train.micro_batch or rows)


def heldout_feed(recipe: Recipe, shards: Shards, vocab: Vocab, streams: int = 0) -> Feed:
    """Return the batches of a recipe over held-out shards, read once and to their end.

    Args:
        recipe: packing, objective, layout and seed.
        shards: the documents.
        vocab: the vocabulary of the tokenizer.
        streams: maximum rows read side by side, fewer if the text does not fill them; 0 for as
            many as in training.

    Raises:
        UserError: as `training_feed`.
    """
    most = streams or recipe.train.micro_batch or recipe.rows_per_step
    rows = max(1, min(most, shards.tokens_total // recipe.packing.length))
    packed = recipe.packing.open(shards, vocab, recipe.train.seed, rows, once=True)
    return replace(_feed(recipe, shards, vocab, packed, rows), reads_whole=True)


def _feed(recipe: Recipe, shards: Shards, vocab: Vocab, packed: Packed, micro_batch: int) -> Feed:
    train = recipe.train
    if any(stage.objective.needs_counts for _, stage in recipe.in_stages()):
        vocab = replace(vocab, counts=shards.counts(vocab.size))
    return Feed(
        packed=packed,
        objective=recipe.objective,
        layout=recipe.layout,
        vocab=vocab,
        rows_per_step=recipe.rows_per_step,
        micro_batch=micro_batch or recipe.rows_per_step,
        workers=max(1, train.threads),
        seed=train.seed,
        rank=processes.rank(),
        processes=processes.count(),
    )


def training_loop(
    setup: TrainingSetup,
    hooks: Sequence[Hook],
    note: Callable[[str], None],
    warn: Callable[[str], None],
    batches: Batches | None = None,
) -> Loop:
    """Return the loop that trains the setup's model, on its feed's batches by default."""
    recipe = setup.recipe
    counted = step_flops(setup)  # before DDP, which would expect a gradient of all heads used here
    kind = parallelism(recipe, setup.vocab, setup.device)
    loss_fn: torch.nn.Module = setup.loss_fn
    if kind is not None and not kind.shards:
        loss_fn = kind.wrap(loss_fn, setup.device, setup.dtype)
    options = StepOptions(
        clip=recipe.train.clip,
        dtype=setup.dtype,
        dropout_seed=recipe.train.seed ^ DROPOUT,
        max_nonfinite_steps=recipe.train.max_nonfinite_steps,
        flops=counted,
        accumulate=accumulate_on(recipe.train.threads if kind is None else 1),
        average=recipe.train.average,
    )
    return Loop(
        setup.model,
        loss_fn,
        batches or setup.feed,
        recipe.optimizer.build_for(setup.model),
        recipe.schedule,
        Budget.of(recipe.train),
        options,
        hooks,
        note,
        warn,
    )


def step_flops(
    setup: TrainingSetup, feed: Feed | None = None, loss_fn: ModelWithLoss | None = None
) -> float:
    """Return the FLOPs of a step, counted on its first micro-batch and scaled to its rows.

    Args:
        setup: the run.
        feed: batches of a stage; default the last one's.
        loss_fn: the loss of a stage; default the last one's.
    """
    # Uncompiled and in fp32, a whole batch might not fit into memory.
    rows = setup.recipe.rows_per_step
    most = COUNTED_ROWS if setup.device.type == "cuda" else rows
    first = (feed or setup.feed).batches(np.arange(min(most, rows)))[0]
    with autocast(setup.device, setup.dtype):  # the precision of sharded weights
        counted = flops.count(setup.model, first, loss_fn or setup.loss_fn)
    return float(counted) * rows / len(first.ids)


def resolved(recipe: Recipe) -> Recipe:
    """Return the recipe with every `auto` resolved for this machine.

    Raises:
        UserError: there is no such device, or a step has fewer rows than there are processes.
    """
    device = choose_device(recipe.train.device, "train.device")
    return resolve_auto(recipe, device, choose_precision(recipe.train.precision, device))


def resolve_auto(recipe: Recipe, device: torch.device, dtype: torch.dtype) -> Recipe:
    """Return the recipe with every `auto` resolved for a device and a precision.

    A resumed run finds them resolved, so it computes as before.

    Raises:
        UserError: a step has fewer rows than there are processes.
    """
    train, sharing = recipe.train, processes.count()
    if recipe.rows_per_step < sharing:
        raise UserError(
            f"train.batch: a step of {recipe.rows_per_step} rows cannot be divided among {sharing} "
            f"processes; set train.batch={sharing} or more, or start fewer"
        )
    compiles = train.compile
    if compiles == "auto":
        compiles = "on" if device.type == "cuda" and has_triton() else "off"
    rows = -(-recipe.rows_per_step // sharing)
    micro = train.micro_batch
    if not micro:
        room = memory_of(device) // (1 if device.type == "cuda" else sharing)
        micro = min(rows, rows_that_fit(room, row_bytes(recipe, dtype)))
    micro = min(micro, recipe.rows_per_step)
    workers = train.threads or (1 if sharing > 1 else 0)
    train = replace(
        train,
        device="cuda" if device.type == "cuda" else "mps" if device.type == "mps" else "cpu",
        precision="bf16" if dtype == torch.bfloat16 else "fp32",
        compile=compiles,
        micro_batch=micro,
        threads=choose_workers(workers, device, micro, recipe.packing.length),
    )
    return replace(recipe, train=train)


def on_cpu_in_fp32(recipe: Recipe) -> Recipe:
    """Return the recipe on the CPU in fp32, where models are trained offline."""
    train = replace(recipe.train, device="cpu", precision="fp32", compile="off")
    return replace(recipe, train=train)


def rows_that_fit(memory: int, each: int) -> int:
    """Return the power of two of rows whose activations take an eighth of the memory.

    Gradients and slack take as much again.

    Args:
        memory: the memory of the device, or of a process's share of it.
        each: bytes of the activations of a row.
    """
    rows = max(1, memory // 8 // max(1, each))
    return 1 << (rows.bit_length() - 1)


def compile_blocks(model: Model) -> None:
    """Compile each Transformer block in place; blocks of one shape share the code.

    With position weights for each layer, each layer compiles to its own code, more often than
    torch's limit for one function; past it, blocks would run uncompiled.
    """
    from torch._dynamo import config

    blocks = [module for module in model.modules() if isinstance(module, Block)]
    config.recompile_limit = max(config.recompile_limit, 4 * len(blocks))
    for block in blocks:
        block.compile()


def describe_run(setup: TrainingSetup) -> str:
    """Return a line that describes the run."""
    recipe, precision = setup.recipe, setup.recipe.train.precision
    pieces = -(-recipe.rows_per_step // recipe.train.micro_batch)
    tokens = recipe.rows_per_step * recipe.packing.length
    kind, sharing = parallelism(recipe, setup.vocab, setup.device), ""
    if kind is not None:
        sharing = f"{processes.count()} processes ({kinds.name_of(kind)}), "
    return (
        f"{setup.model.count_parameters():,} parameters, vocabulary {setup.vocab.size:,}; "
        f"{tokens:,} tokens a step ({recipe.rows_per_step} rows of {recipe.packing.length}"
        f"{f', in {pieces} micro-batches' if pieces > 1 else ''}); "
        f"{precision} on {sharing}{describe(setup.device)}"
    )
