"""The memory of tensors that are alive."""

from __future__ import annotations

import weakref
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from foreword.nn.sharded import local_part


class Held(TorchDispatchMode):
    """The bytes of tensors that are held, and the most that were at once."""

    def __init__(self) -> None:
        super().__init__()
        self.most = self.now = 0
        self._known: dict[int, int] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        for tensor in result if isinstance(result, tuple | list) else [result]:
            if isinstance(tensor, Tensor) and not local_part(tensor).is_meta:
                self._add(local_part(tensor).untyped_storage())
        return result

    def _add(self, storage: torch.UntypedStorage) -> None:
        if storage._cdata not in self._known:
            self._known[storage._cdata] = storage.nbytes()
            weakref.finalize(storage, self._remove, storage._cdata)
            self.now += storage.nbytes()
            self.most = max(self.most, self.now)

    def _remove(self, key: int) -> None:
        self.now -= self._known.pop(key)
