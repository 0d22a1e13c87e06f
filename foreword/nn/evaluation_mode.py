"""Evaluation mode that ends as it began."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager

from torch import nn


@contextmanager
def evaluation_mode(model: nn.Module) -> Generator[None]:
    """Put a model into evaluation mode; afterwards, each of its modules is in the mode it was in.

    Parts of a model may be in evaluation mode while it trains, such as a frozen backbone.
    """
    modes = {module: module.training for module in model.modules()}
    model.eval()
    try:
        yield
    finally:
        for module, was_training in modes.items():
            module.training = was_training
