"""Activation checkpointing: blocks that compute their activations again in backward.

Memory for time: `full` keeps the input of each block alone and computes each block twice;
`selective` also keeps what linear maps and fused attention give, the slowest part, and computes
the rest twice: norms, activations, dropout (Korthikanti et al. 2022, section 5).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from functools import partial
from typing import Any, Literal, get_args

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import (
    CheckpointPolicy,
    checkpoint,
    create_selective_checkpoint_contexts,
    noop_context_fn,
)

from foreword.nn.attention import AttentionInputs
from foreword.nn.block import Block
from foreword.nn.cache import LayerCache
from foreword.nn.delta_rule import Recomputation
from foreword.nn.dropout import repeated_draws

Checkpointing = Literal["none", "selective", "full"]
AMOUNTS: tuple[Checkpointing, ...] = get_args(Checkpointing)
Contexts = tuple[AbstractContextManager[Any], AbstractContextManager[Any]]

# What `selective` keeps, by the names of torch's operations: linear maps and fused attention. Not
# products of queries and keys (`bmm`), which are large, and to which a bias is added in place.
KEPT = ("mm", "addmm")


def checkpoint_blocks(model: nn.Module, amount: Checkpointing) -> int:
    """Make each Transformer block recompute in backward the activations that it does not keep.

    The results are those without, bit for bit, dropout included.

    Args:
        model: the model, changed in place; a memory or a key-value cache is as before outside of
            training.
        amount: what is computed again.

    Returns:
        The number of blocks.
    """
    blocks = {module for module in model.modules() if isinstance(module, Block)}
    if amount != "none":
        for block in blocks:
            block.forward = _Checkpointed(block, amount)  # type: ignore[method-assign, assignment]
    return len(blocks)


@contextmanager
def without_checkpointing() -> Iterator[None]:
    """Compute blocks and recurrences once, such as to count operations."""
    _Checkpointed.is_off = Recomputation.is_off = True
    try:
        yield
    finally:
        _Checkpointed.is_off = Recomputation.is_off = False


class _Checkpointed:
    """The `forward` of a block that keeps few of its activations for backward.

    Attributes:
        is_off: whether all compute once.
    """

    is_off = False

    def __init__(self, block: Block, amount: Checkpointing) -> None:
        self._forward = block.forward
        self._is_selective = amount == "selective"

    def __call__(
        self, x: Tensor, inputs: AttentionInputs, *others: Any
    ) -> tuple[Tensor, LayerCache | None, Tensor | None]:
        if not torch.is_grad_enabled() or self.is_off:
            return self._forward(x, inputs, *others)

        def states(*given: Any) -> tuple[Tensor, Tensor | None]:
            with _without_cast_cache(given[0].device.type):
                new, _, g = self._forward(*given)  # the cache is for generation
            return new, g

        given = (x, inputs, *others)
        if x.device.type == "cpu":
            contexts = _selective if self._is_selective else noop_context_fn
            repeating = partial(_repeating, contexts)
            x, g = checkpoint(states, *given, use_reentrant=False, context_fn=repeating)
        elif self._is_selective:  # torch repeats the draws of devices
            x, g = checkpoint(states, *given, use_reentrant=False, context_fn=_selective)
        else:
            x, g = checkpoint(states, *given, use_reentrant=False)
        return x, None, g


def _without_cast_cache(device: str) -> AbstractContextManager[Any]:
    """Return a context in which autocast keeps no copies of weights from block to block.

    Kept ones would take memory, and a weight that a block finds cast would be cast again in
    backward: other operations than the first time.
    """
    if torch.compiler.is_compiling() or not torch.is_autocast_enabled(device):
        return nullcontext()
    return torch.autocast(device, torch.get_autocast_dtype(device), cache_enabled=False)


def _selective() -> Contexts:
    """Return the contexts that keep the results of some operations."""
    first, again = create_selective_checkpoint_contexts(_policy)  # type: ignore[no-untyped-call]
    return first, again


def _repeating(contexts: Callable[[], Contexts]) -> Contexts:
    """Return contexts in which dropout draws the same numbers again."""
    first, again = map(_Both, repeated_draws(), contexts())
    return first, again


class _Both(AbstractContextManager[None]):
    """Two contexts as one, entered when it is."""

    def __init__(
        self, first: AbstractContextManager[Any], second: AbstractContextManager[Any]
    ) -> None:
        self._contexts, self._stack = (first, second), ExitStack()

    def __enter__(self) -> None:
        for context in self._contexts:
            self._stack.enter_context(context)

    def __exit__(self, *error: Any) -> None:
        self._stack.__exit__(*error)


def _policy(context: Any, operation: Any, *args: Any, **kwargs: Any) -> CheckpointPolicy:
    """Return whether to keep or recompute the results of an operation."""
    return CheckpointPolicy.MUST_SAVE if is_saved(operation) else CheckpointPolicy.PREFER_RECOMPUTE


def is_saved(operation: Any) -> bool:
    """Return whether `selective` keeps an operation's results: linear maps, fused attention."""
    name: str = operation.name().rpartition("::")[2].partition(".")[0]
    return name in KEPT or "attention" in name
