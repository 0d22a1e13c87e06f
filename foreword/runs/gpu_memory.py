"""The memory of a GPU in a plan, part by part."""

from __future__ import annotations

from dataclasses import dataclass, fields

CONTEXT = 1_500_000_000  # bytes of CUDA, NCCL and kernels' work space on each GPU


@dataclass(frozen=True)
class GpuMemory:
    """Bytes on each GPU at the peak of a step.

    Attributes:
        weights: in float32.
        gradients: in float32; with `ddp` twice where several micro-batches are added, its buckets
            and their sum.
        optimizer: state of the optimizer.
        average: the second weights of a run that averages them.
        activations: kept for the backward pass of a micro-batch.
        logits: a slice of scores over the vocabulary with its softmax, and the gradient of the
            output layer.
        buffers: copies of weights in the precision of the products; with shards, the weights that
            are gathered from other GPUs and the gradients on their way to them.
        context: CUDA, NCCL, kernels' work space.
    """

    weights: int
    gradients: int
    optimizer: int
    average: int
    activations: int
    logits: int
    buffers: int
    context: int = CONTEXT

    @property
    def parts(self) -> dict[str, int]:
        """Bytes by part."""
        return {f.name: getattr(self, f.name) for f in fields(self)}

    @property
    def total(self) -> int:
        """Bytes of all parts together."""
        return sum(self.parts.values())
