"""The bytes that a forward pass keeps for backward, counted storage by storage."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn
from torch.autograd.graph import saved_tensors_hooks
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from foreword.nn.block import Block
from foreword.nn.checkpointing import AMOUNTS, Checkpointing, is_saved, without_checkpointing
from foreword.nn.heads import VocabularyHead


@dataclass(frozen=True)
class ActivationBytes:
    """Bytes that the forward pass of some rows keeps for backward.

    Attributes:
        activations: bytes of the network; with checkpointing, also what a block computes again.
        head: the bytes of the heads that predict tokens, with the gradient of the output layer.
    """

    activations: float
    head: float


class ActivationCounter:
    """A context that counts the bytes kept for backward, each storage once.

    Blocks compute once within it, whatever their checkpointing, and what each amount of it would
    keep is counted.

    Args:
        model: whose parameters are not counted.
        amounts: the amounts of checkpointing to count.
    """

    def __init__(self, model: nn.Module, amounts: Sequence[Checkpointing] = AMOUNTS) -> None:
        self._parameters = {storage_of(p) for p in model.parameters()}
        self._open: list[nn.Module] = []
        hooked = (Block, VocabularyHead)
        self._modules = [module for module in model.modules() if isinstance(module, hooked)]
        self._amounts = amounts

    def __enter__(self) -> None:
        self._stores: dict[Checkpointing, _Store] = {amount: _Store() for amount in self._amounts}
        self._alive: list[Tensor] = []  # so that no storage takes the place of another
        with ExitStack() as stack:
            stack.enter_context(without_checkpointing())
            for module in self._modules:
                before = module.register_forward_pre_hook(self._enter, with_kwargs=True)
                stack.callback(before.remove)
                stack.callback(module.register_forward_hook(self._leave).remove)
            if "selective" in self._amounts:
                stack.enter_context(_Results(self._keep_result))
            stack.enter_context(saved_tensors_hooks(self._keep, lambda tensor: tensor))
            self._stack = stack.pop_all()

    def __exit__(self, *error: object) -> None:
        self._stack.close()
        self._alive.clear()

    def kept(self, amount: Checkpointing) -> ActivationBytes:
        """Return the bytes kept."""
        store = self._stores[amount]
        return ActivationBytes(
            sum(store.outside.values()) + store.most_inside, sum(store.head.values())
        )

    def _keep(self, tensor: Tensor) -> Tensor:
        """Count a tensor that an operation keeps."""
        if storage_of(tensor) not in self._parameters:
            is_head = any(isinstance(module, VocabularyHead) for module in self._open)
            for store in self._stores.values():
                self._add(tensor, store, store.head if is_head else None)
        return tensor.detach()  # an operation's own result would be a reference cycle

    def _keep_result(self, tensor: Tensor) -> None:
        """Count what `selective` keeps of a block."""
        store = self._stores["selective"]
        if store.inside is not None:
            self._add(tensor, store, store.outside)

    def _add(self, tensor: Tensor, store: _Store, into: dict[int, int] | None) -> None:
        self._alive.append(tensor.detach())
        store.add(storage_of(tensor), tensor.untyped_storage().nbytes(), into)

    def _enter(self, module: nn.Module, args: Any, kwargs: Any) -> None:
        self._open.append(module)
        if not isinstance(module, Block):
            return
        inputs = [t for t in tree_leaves((args, kwargs)) if isinstance(t, Tensor)]
        for amount, store in self._stores.items():
            if amount != "none":
                for tensor in inputs:
                    if tensor.requires_grad:
                        self._add(tensor, store, store.outside)
                store.inside = {}

    def _leave(self, module: nn.Module, args: Any, output: Any) -> None:
        self._open.pop()
        if isinstance(module, Block):
            for store in self._stores.values():
                store.most_inside = max(store.most_inside, sum((store.inside or {}).values()))
                store.inside = None


class _Store:
    """The storages kept under one amount of checkpointing: outside of blocks, and in the heads."""

    def __init__(self) -> None:
        self.outside: dict[int, int] = {}
        self.head: dict[int, int] = {}
        self.inside: dict[int, int] | None = None  # of the block that is running
        self.most_inside = 0

    def add(self, storage: int, size: int, into: dict[int, int] | None) -> None:
        """Add a storage, unless it is kept already; by default to the block that is running."""
        if storage in self.outside or storage in self.head:
            return
        if into is None:
            into = self.outside if self.inside is None else self.inside
        elif self.inside is not None:
            self.inside.pop(storage, None)
        into[storage] = size


class _Results(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Calls a function with the results of the operations that `selective` keeps."""

    supports_higher_order_operators = True  # FlexAttention

    def __init__(self, keep: Any) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._keep = keep

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        if is_saved(func):
            for tensor in tree_leaves(result):
                if isinstance(tensor, Tensor):
                    self._keep(tensor)
        return result


def storage_of(tensor: Tensor) -> int:
    """Return a number that tells the storages of living tensors apart."""
    return int(tensor.untyped_storage()._cdata)
