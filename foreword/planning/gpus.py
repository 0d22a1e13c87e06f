"""GPUs to plan for: those of `gpus.toml`, or of one's own numbers."""

from __future__ import annotations

import functools
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from foreword.errors import UserError, nearest
from foreword.settings import config
from foreword.settings.ranges import Count, NonNegative, Positive, Ranged

FILE = Path(__file__).with_name("gpus.toml")


@dataclass(frozen=True)
class GPU(Ranged):
    """A GPU, and how it is connected to others.

    Attributes:
        memory_gb: memory, in units of 10^9 bytes.
        bf16_tflops: peak rate of dense products in bf16, in units of 10^12 FLOPs a second; 0 if it
            has no bf16, and training is in float32.
        fp32_tflops: peak rate of dense products in float32.
        bandwidth_gb_s: memory bandwidth, in 10^9 bytes a second.
        link_gb_s: rate to other GPUs of the node, in one direction.
        network_gb_s: rate to other nodes, for one GPU, in one direction.
        per_node: GPUs of a node.
        source: where the numbers are from.
    """

    memory_gb: Positive
    bf16_tflops: NonNegative
    fp32_tflops: NonNegative = 0.0
    bandwidth_gb_s: Positive = 1000.0
    link_gb_s: Positive = 32.0
    network_gb_s: Positive = 12.5
    per_node: Count = 8
    source: str = "given"

    def __post_init__(self) -> None:
        super().__post_init__()
        if not (self.bf16_tflops or self.fp32_tflops):
            raise ValueError("bf16_tflops: 0, and fp32_tflops too; give one of them")

    @property
    def dtype(self) -> torch.dtype:
        """The precision that it trains in."""
        return torch.bfloat16 if self.bf16_tflops else torch.float32

    @property
    def flops_per_second(self) -> float:
        """Peak rate of dense products in this precision."""
        return 1e12 * (self.bf16_tflops or self.fp32_tflops)


def find_gpu(words: str) -> tuple[str, GPU]:
    """Return a GPU and its name, by name, by numbers, or by a name with other numbers.

        h100                                    as in `gpus.toml`
        h100,memory_gb=96                       with more memory
        memory_gb=16,bf16_tflops=65             another one

    Raises:
        UserError: there is none of this name, or a number is missing or impossible.
    """
    name, *numbers = words.split(",")
    table: dict[str, Any] = {}
    if "=" in name:
        numbers = [name, *numbers]
    else:
        by_name = shipped()
        if name.lower() not in by_name:
            raise UserError(
                f"--gpu: there is no '{name}'{nearest(name.lower(), by_name)}; "
                "give its numbers, as in memory_gb=16,bf16_tflops=65, or add it to "
                f"{'/'.join(FILE.parts[-3:])}"
            )
        table = dict(by_name[name.lower()])
    try:
        gpu = config.build(GPU, config.assign(table, numbers))
    except UserError as error:
        raise UserError(f"--gpu: {error}") from error
    return words, gpu


@functools.cache
def shipped() -> Mapping[str, Mapping[str, Any]]:
    """Return the GPUs of `gpus.toml` by name."""
    return tomllib.loads(FILE.read_text(encoding="utf-8"))
