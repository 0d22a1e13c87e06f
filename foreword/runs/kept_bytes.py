"""The bytes that a forward pass keeps for backward, counted storage by storage."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, get_args

from torch import Tensor, nn
from torch.autograd.graph import saved_tensors_hooks
from torch.utils._pytree import tree_leaves

from foreword.nn.attentions._contract import AttentionMechanism
from foreword.nn.block import Block
from foreword.nn.heads import VocabularyHead

# What is computed again in the backward pass instead of kept: nothing, the interior of attention
# (Korthikanti et al. 2022, section 4.2), whole blocks.
Recompute = Literal["none", "selective", "full"]
RECOMPUTE: tuple[Recompute, ...] = get_args(Recompute)
UNITS: dict[Recompute, type[nn.Module]] = {"selective": AttentionMechanism, "full": Block}


@dataclass(frozen=True)
class Kept:
    """Bytes that the forward pass of some rows keeps for backward.

    Attributes:
        activations: of the network, with the interior of one recomputed part.
        head: of the heads that predict tokens, with the gradient of the output layer.
    """

    activations: float
    head: float


class KeptBytes:
    """A context that counts the bytes kept for backward, each storage once.

    Args:
        model: whose parameters are not counted.
    """

    def __init__(self, model: nn.Module) -> None:
        self._parameters = {storage_of(p) for p in model.parameters()}
        self._open: list[nn.Module] = []
        hooked: Any = (*UNITS.values(), VocabularyHead)
        self._modules = [module for module in model.modules() if isinstance(module, hooked)]

    def __enter__(self) -> None:
        self._stores: dict[Recompute, _Store] = {mode: _Store() for mode in RECOMPUTE}
        self._alive: list[Tensor] = []  # so that no storage takes the place of another
        self._handles: list[Any] = []
        for module in self._modules:
            self._handles.append(module.register_forward_pre_hook(self._enter, with_kwargs=True))
            self._handles.append(module.register_forward_hook(self._leave))
        self._hooks = saved_tensors_hooks(self._keep, lambda tensor: tensor)
        self._hooks.__enter__()

    def __exit__(self, *error: object) -> None:
        self._hooks.__exit__(*error)
        for handle in self._handles:
            handle.remove()
        self._alive.clear()

    def kept(self, mode: Recompute) -> Kept:
        """Return the bytes kept."""
        store = self._stores[mode]
        return Kept(sum(store.outside.values()) + store.most_inside, sum(store.head.values()))

    def _keep(self, tensor: Tensor) -> Tensor:
        storage = storage_of(tensor)
        if storage not in self._parameters:
            self._alive.append(tensor.detach())
            is_head = any(isinstance(module, VocabularyHead) for module in self._open)
            for store in self._stores.values():
                store.add(storage, tensor.untyped_storage().nbytes(), is_head=is_head)
        return tensor.detach()  # an operation's own result would be a reference cycle

    def _enter(self, module: nn.Module, args: Any, kwargs: Any) -> None:
        self._open.append(module)
        for mode, unit in UNITS.items():
            if isinstance(module, unit):
                given = [t for t in tree_leaves((args, kwargs)) if isinstance(t, Tensor)]
                for tensor in given:
                    if tensor.requires_grad:
                        self._alive.append(tensor.detach())
                        size = tensor.untyped_storage().nbytes()
                        self._stores[mode].add(storage_of(tensor), size, is_head=False)
                self._stores[mode].inside = {}

    def _leave(self, module: nn.Module, args: Any, output: Any) -> None:
        self._open.pop()
        for mode, unit in UNITS.items():
            store = self._stores[mode]
            if isinstance(module, unit) and store.inside is not None:
                store.most_inside = max(store.most_inside, sum(store.inside.values()))
                store.inside = None


class _Store:
    """The storages kept under one `Recompute`: outside of recomputed parts, and in the heads."""

    def __init__(self) -> None:
        self.outside: dict[int, int] = {}
        self.head: dict[int, int] = {}
        self.inside: dict[int, int] | None = None  # of the recomputed part that is running
        self.most_inside = 0

    def add(self, storage: int, size: int, *, is_head: bool) -> None:
        """Add a storage, unless it is kept already."""
        if storage in self.outside or storage in self.head:
            return
        into = self.head if is_head else self.outside if self.inside is None else self.inside
        into[storage] = size


def storage_of(tensor: Tensor) -> int:
    """Return a number that tells the storages of living tensors apart."""
    return int(tensor.untyped_storage()._cdata)
