"""Linear maps, and weights packed for repeated products without gradients on the CPU."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn
from torch.nn import functional as F

ROWS = 16  # of a typical product, for the layout of packed weights
# Parameters of the smallest matrix worth packing, by torch's name of the processor's instructions:
# with AVX2 the product of one row by a packed 256 x 256 takes seven times as long as torch's own.
SMALLEST = {"AVX2": 1 << 18}


class WeightModule(nn.Module):
    """A module that multiplies states by its weights.

    Attributes:
        weight: (outputs, inputs).
        packed: the weights in oneDNN's layout, within `packed_weights`; else None.
    """

    weight: Tensor
    packed: Tensor | None = None

    def product(self, x: Tensor, bias: Tensor | None) -> Tensor:
        """Return `x weight' + bias`, (..., inputs) -> (..., outputs)."""
        if self.packed is None or x.dtype != torch.float32 or torch.is_autocast_enabled("cpu"):
            return F.linear(x, self.weight, bias)
        product: Tensor = torch.ops.mkldnn._linear_pointwise(x, self.packed, bias, "none", [], "")
        return product


class Linear(nn.Linear, WeightModule):
    """`torch.nn.Linear` whose weights can be packed."""

    def forward(self, x: Tensor) -> Tensor:
        """Return (..., inputs) -> (..., outputs)."""
        return self.product(x, self.bias)


@contextmanager
def packed_weights(model: nn.Module) -> Iterator[None]:
    """Keep a copy of the float32 weights on the CPU that is multiplied two to three times as fast.

    With AVX2 small matrices are left as they are. The products are of float32 too. Packing takes as
    long as a few products of one row; within the context the weights must not change and there are
    no gradients.

    Args:
        model: the model whose `WeightModule`s are packed.
    """
    modules = [m for m in model.modules() if isinstance(m, WeightModule) and _can_pack(m)]
    try:
        with torch.no_grad():
            for module in modules:
                pack = torch.ops.mkldnn._reorder_linear_weight
                module.packed = pack(module.weight.detach(), ROWS)
            yield
    finally:
        for module in modules:
            module.packed = None


def _can_pack(module: WeightModule) -> bool:
    """Return whether a module's weights can be packed, and are not yet."""
    weight = module.weight
    return (
        module.packed is None
        and weight.dtype == torch.float32
        and weight.device.type == "cpu"
        and weight.numel() >= SMALLEST.get(torch.backends.cpu.get_cpu_capability(), 0)
        and torch.backends.mkldnn.is_available()  # type: ignore[no-untyped-call]
        and hasattr(torch.ops.mkldnn, "_reorder_linear_weight")
    )
