"""What a step would hold and compute, counted without computing it.

A step of the real model is run on fake tensors, which have shapes and no numbers; what autograd
keeps and the products it asks for are counted. So every family is counted by its own code, at any
size. Only ids, positions and weights of the dummy batch are real, since the number of predictions
depends on them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode, unset_fake_temporarily
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from foreword.nn.checkpointing import AMOUNTS, Checkpointing
from foreword.nn.init import shapes_only
from foreword.nn.stack_settings import StackSettings
from foreword.objectives._contract import ModelWithLoss
from foreword.runs.activation_bytes import ActivationBytes, ActivationCounter
from foreword.runs.dry_run import dummy_example, dummy_vocab, shallow
from foreword.runs.gpu_kernels import gpu_kernels
from foreword.runs.recipe import Recipe
from foreword.train import flops
from foreword.train.device import autocast
from foreword.train.feed import count_tokens
from foreword.train.settings import TrainSettings
from foreword.types import Batch, Loss, TermCounts, Vocab

CPU = torch.device("cpu")
FEW_ROWS = 4  # counted together, for what does not grow with the rows
PARTS = ("activations", "head")
aten = torch.ops.aten
INDEXING = (
    aten.index.Tensor,
    aten.index_put.default,
    aten.index_put_.default,
    aten._index_put_impl_.default,
)


@dataclass(frozen=True)
class CountedStep:
    """A step, counted. The lines are in rows: a constant, and what each row adds.

    Attributes:
        kept: for each amount of checkpointing, the bytes kept without rows (weights in another
            dtype, gradient of the output layer) and for each further row.
        tokens_per_row: tokens that the model reads, source and target.
        predictions_per_row: predictions of tokens.
        flops_per_row: forward and backward, nothing recomputed.
    """

    kept: dict[Checkpointing, tuple[ActivationBytes, ActivationBytes]]
    tokens_per_row: float
    predictions_per_row: float
    flops_per_row: float


def count_step(
    recipe: Recipe,
    dtype: torch.dtype = torch.bfloat16,
    vocab: Vocab | None = None,
    *,
    on_gpu: bool = True,
) -> CountedStep:
    """Count a step of a recipe; of one that was counted, but for its rate and length, at once.

    Deep models are counted with few layers; what another period of layers adds is multiplied.

    Args:
        recipe: the recipe of a neural model.
        dtype: the precision to compute in.
        vocab: the vocabulary of its tokenizer, if it exists.
        on_gpu: whether attention and dropout keep what they keep on a GPU, else as on the CPU.
    """
    vocab = vocab or dummy_vocab(recipe.tokenizer)
    parts = (recipe.model, recipe.objective, recipe.layout, recipe.packing, recipe.tokenizer)
    key = (*parts, repr(recipe.stages), vocab.size, vocab.is_special.tobytes(), dtype, on_gpu)
    if key not in _COUNTED:
        _COUNTED[key] = _count_step(recipe, dtype, vocab, on_gpu)
    return _COUNTED[key]


_COUNTED: dict[tuple[Any, ...], CountedStep] = {}


def _count_step(recipe: Recipe, dtype: torch.dtype, vocab: Vocab, on_gpu: bool) -> CountedStep:
    period = _period(recipe)
    few, deep = shallow(recipe, period)
    rows_of = partial(_counts, dtype=dtype, vocab=vocab, on_gpu=on_gpu)
    one, two = (rows_of(few, rows) for rows in (1, 2))
    totals = np.stack([one, two])
    for name, layers in deep.items():
        deeper: Any = replace(few.model, **{name: 2 * period})
        more = [rows_of(replace(few, model=deeper), rows) for rows in (1, 2)]
        totals = totals + (np.stack(more) - np.stack([one, two])) * ((layers - period) / period)
    first, per_row = totals[0], totals[1] - totals[0]
    kept_by_mode = {}
    for n, mode in enumerate(AMOUNTS):
        part = slice(2 * n, 2 * n + 2)
        kept_by_mode[mode] = (
            ActivationBytes(*(first - per_row)[part]),
            ActivationBytes(*per_row[part]),
        )
    tokens, predictions, operations = totals[0][-3:]
    return CountedStep(kept_by_mode, float(tokens), float(predictions), float(operations))


def row_bytes(recipe: Recipe, dtype: torch.dtype) -> int:
    """Return the bytes that backward needs of a row at most, as the kernels of a GPU keep them.

    What does not grow with the rows is shared by few. Of a kind that needs numbers to be computed,
    such as a plug-in's, nothing is known: 0.

    Args:
        recipe: the recipe of the run, whose tokenizer has as many tokens as it may.
        dtype: the precision to compute in.
    """
    train = TrainSettings(activation_checkpointing=recipe.train.activation_checkpointing)
    return max(
        _row_bytes(
            Recipe(
                *(stage.model, stage.objective, stage.layout),
                tokenizer=recipe.tokenizer,
                packing=recipe.packing,
                train=train,
            ),
            dtype,
        )
        for stage in recipe.extremes()
    )


@cache
def _row_bytes(recipe: Recipe, dtype: torch.dtype) -> int:
    """Return `row_bytes` of a recipe that has nothing but what it depends on."""
    vocab, amount = dummy_vocab(recipe.tokenizer), recipe.train.activation_checkpointing
    period = _period(recipe)
    few, deep = shallow(recipe, period)

    def bytes_of(few: Recipe) -> float:
        counts = _counts(few, FEW_ROWS, [amount], dtype=dtype, vocab=vocab)
        return float(sum(counts[: len(PARTS)])) / FEW_ROWS

    try:
        total = first = bytes_of(few)
        for name, layers in deep.items():
            deeper: Any = replace(few.model, **{name: 2 * period})
            total += (bytes_of(replace(few, model=deeper)) - first) * (layers - period) / period
    except (RuntimeError, TypeError):
        return 0
    return round(total)


def _period(recipe: Recipe) -> int:
    """Return a number of layers, at least two, that holds each kind of layer equally often."""
    model = recipe.model
    if not isinstance(model, StackSettings) or not model.dense_every:
        return 2
    return model.dense_every * math.ceil(max(2, model.first_dense + 1) / model.dense_every)


def _counts(
    recipe: Recipe,
    rows: int,
    amounts: Sequence[Checkpointing] = AMOUNTS,
    *,
    dtype: torch.dtype,
    vocab: Vocab,
    on_gpu: bool = True,
) -> np.ndarray:
    """Return bytes by checkpointing and part, then tokens, predictions and FLOPs of these rows."""
    batch = recipe.layout.arrange(dummy_example(recipe, vocab, rows), vocab)
    counts = recipe.objective.count_terms(batch)
    if counts is not None:
        batch = batch.with_part(TermCounts(counts))
    predictions = 0.0 if batch.weights is None else float((batch.weights > 0).sum())
    with fake_tensors():
        with shapes_only(device="cpu"):
            model = recipe.build(vocab).train()
        loss_fn = ModelWithLoss(model, recipe.objective)
        tracker = ActivationCounter(model, amounts)

        def tracked(inputs: Batch) -> Loss:
            with ExitStack() as stack:
                stack.enter_context(gpu_kernels() if on_gpu else nullcontext())
                stack.enter_context(autocast(CPU, dtype))
                stack.enter_context(tracker)
                loss: Loss = loss_fn(inputs)
                return loss

        _with_memory(tracked, batch.to(CPU))
        operations = 0
        if rows == 1:
            with gpu_kernels():
                operations = flops.count(model, batch, loss_fn)
    bytes_kept = [getattr(tracker.kept(mode), part) for mode in amounts for part in PARTS]
    return np.array([*bytes_kept, count_tokens(batch), predictions, operations], float)


def _with_memory(loss_fn: Callable[[Batch], Loss], batch: Batch) -> Loss:
    """Return the loss of a batch that has the memory of a row before, where there is one."""
    loss = loss_fn(batch)
    before, after = ([t.shape for t in memory or ()] for memory in (batch.memory, loss.memory))
    return loss if before == after else _with_memory(loss_fn, replace(batch, memory=loss.memory))


@contextmanager
def fake_tensors() -> Iterator[None]:
    """Make numbers of the network fake within the context; what comes of integers alone is real."""
    real: Any = _RealIntegers()  # type: ignore[no-untyped-call]
    with FakeTensorMode(allow_non_fake_inputs=True), real:
        yield


class _RealIntegers(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Computes what depends on no fake tensor; new tensors of floats are fake."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        tensors = [t for t in tree_leaves((args, kwargs)) if isinstance(t, Tensor)]
        if any(isinstance(tensor, FakeTensor) for tensor in tensors):
            if func is aten._pack_padded_sequence.default:
                return _packed(*args)
            if func in INDEXING:
                args = (args[0], [i for index in args[1] for i in _positions(index)], *args[2:])
            return func(*args, **kwargs)
        if not tensors:
            output = func(*args, **kwargs)
            if not isinstance(output, Tensor) or output.dtype.is_floating_point:
                return output
        with unset_fake_temporarily():
            return func(*args, **kwargs)


def _positions(index: Tensor | None) -> tuple[Tensor | None, ...]:
    """Return a real mask as the positions where it is true, by dimension; other indices as is."""
    if index is None or isinstance(index, FakeTensor) or index.dtype != torch.bool:
        return (index,)
    with unset_fake_temporarily():
        return index.nonzero(as_tuple=True)


def _packed(padded: Tensor, lengths: Tensor, batch_first: bool) -> tuple[Tensor, Tensor]:
    """Return sequences packed as recurrent layers take them, which fake tensors cannot be."""
    with unset_fake_temporarily():
        steps = torch.arange(int(lengths.max()))
        batch_sizes = (lengths[None] > steps[:, None]).sum(1)
        total = int(lengths.sum())
    return padded.new_empty(total, *padded.shape[2:]), batch_sizes
