"""The floating-point operations of a step, counted while one is computed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import torch
from torch import nn
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import flop_registry

from foreword.nn.attention import dense_only
from foreword.nn.checkpointing import without_checkpointing
from foreword.types import Batch, Loss

aten = torch.ops.aten


class _Counter(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """A sum of the FLOPs of operations, by the formulas of torch.

    `FlopCounterMode` sums by module too, which takes several times as long as a small model.
    """

    flops = 0

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        options = kwargs or {}
        out = func(*args, **options)
        operation = func.overloadpacket
        formula: Any = UNKNOWN.get(operation) or flop_registry.get(operation)
        if formula is not None:
            self.flops += formula(*args, **options, out_val=out)
        return out


def count(model: nn.Module, batch: Batch, loss_fn: Callable[[Batch], Loss]) -> int:
    """Count the FLOPs of matrix products, forward and backward, for a batch.

    Operations are counted as they are computed, so predictions left out of the softmax cost
    nothing. A multiply and an add are two. Masked attention counts in full, as is usual. In a
    model with a memory, the row counted is one that has a memory.

    Activations that are computed twice count once, as is usual.

    Compiled blocks run uncompiled here: under a dispatch mode, Dynamo would stop compiling them for
    the rest of the training. Recurrences of cuDNN and oneDNN are one operation without a formula,
    so torch's own are counted. All else is computed with oneDNN, without which products in bf16
    take many times as long.
    """
    device = next(model.parameters()).device
    with (
        torch.compiler.set_stance("force_eager"),
        torch.backends.cudnn.flags(enabled=False),
        recurrences_without_onednn(),
        dense_only(),
        without_checkpointing(),
        _Counter() as counter,  # type: ignore[no-untyped-call]
    ):
        loss = loss_fn(batch.to(device))
        before, after = ([t.shape for t in memory or ()] for memory in (batch.memory, loss.memory))
        if is_counted := before == after:
            loss.total.backward()  # type: ignore[no-untyped-call]
    model.zero_grad(set_to_none=True)
    if not is_counted:
        return count(model, replace(batch, memory=loss.memory), loss_fn)
    return int(counter.flops)


@contextmanager
def recurrences_without_onednn() -> Iterator[None]:
    """Compute recurrences, those of new modules too, by torch's own operations on the CPU."""
    was_enabled = torch._C._get_mkldnn_enabled()

    def switch(*, is_on: bool) -> Callable[..., None]:
        def hook(module: nn.Module, *_: Any) -> None:
            if isinstance(module, nn.RNNBase):
                torch._C._set_mkldnn_enabled(is_on)

        return hook

    before = register_module_forward_pre_hook(switch(is_on=False))
    after = register_module_forward_hook(switch(is_on=was_enabled), always_call=True)
    try:
        yield
    finally:
        before.remove()
        after.remove()


def attention_flops(q: Any, k: Any, v: Any, *_: Any, **__: Any) -> int:
    """Return the FLOPs of both products of attention, of (batch, heads, length, width) each."""
    batch, heads, queries, width = q.shape
    return 2 * int(batch * heads * queries * k.shape[2] * (width + v.shape[3]))


def _attention_backward(_: Any, q: Any, k: Any, v: Any, *__: Any, **___: Any) -> int:
    """Return the FLOPs of the backward pass: two products for each; none for recomputing scores."""
    return 2 * attention_flops(q, k, v)


# Operations that torch's counter does not know: the CPU's fused attention.
UNKNOWN = {
    aten._scaled_dot_product_flash_attention_for_cpu: attention_flops,
    aten._scaled_dot_product_flash_attention_for_cpu_backward: _attention_backward,
}
