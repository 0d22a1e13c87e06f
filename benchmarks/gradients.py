"""The gradient of a training's first step, to compare trainings element by element."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from safetensors.torch import load_file
from torch.optim import Optimizer

from foreword.nn.sharded import gather
from foreword.train import processes, tensor_files
from foreword.train.hooks import Hook
from foreword.train.loop import Loop

NOISE = 1e-4  # share of the largest gradient under which a tensor's own is only rounding


class FirstGradient(Hook):
    """Writes the gradient of the first step, as the optimizer receives it, to a file.

    Args:
        file: a file in safetensors format; of several processes the first writes it.
    """

    def __init__(self, file: Path) -> None:
        self._file = file

    def begin(self, loop: Loop) -> None:
        """Wait for the first step."""
        names = {parameter: name for name, parameter in loop.model.named_parameters()}

        def write(optimizer: Optimizer, *_: Any) -> None:
            handle.remove()
            gradients = {
                names[parameter]: gather(parameter.grad)
                for group in optimizer.param_groups
                for parameter in group["params"]
                if parameter.grad is not None
            }
            if processes.is_first():
                tensor_files.write(self._file, gradients)

        handle = loop.optimizer.register_step_pre_hook(write)

    def run(self, loop: Loop) -> None:
        """Do nothing."""


def gradient_difference(one: Path, other: Path) -> tuple[float, str]:
    """Return the greatest difference of two gradients, and the tensor that has it.

    It is relative to the largest element of the tensor, or to `NOISE` of the largest of all: where
    the gradient is 0 in theory, as of keys' biases, there is nothing but rounding.

    Args:
        one: a file of `FirstGradient`.
        other: another, of the same parameters.

    Raises:
        ValueError: they are of other parameters.
    """
    first, second = load_file(one), load_file(other)
    if first.keys() != second.keys():
        raise ValueError(f"gradients of other parameters: {first.keys() ^ second.keys()}")
    largest = max(float(gradient.abs().max()) for gradient in first.values())
    return max(
        (
            float((gradient - second[name]).abs().max())
            / max(float(gradient.abs().max()), NOISE * largest),
            name,
        )
        for name, gradient in first.items()
    )
