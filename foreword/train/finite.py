"""Numbers that are not finite: refused where weights are written, answered in one line."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor

from foreword.errors import NotFiniteError, TrainingStoppedError
from foreword.train.recipe import Recipe


def require_finite(tensors: Mapping[str, Tensor], what: str = "weights") -> None:
    """Make sure that tensors hold numbers alone, no infinity and no nan.

    They are read once, on their device: 0.06 s for 113 million numbers on one core.

    Args:
        tensors: by name.
        what: they are, for the message.

    Raises:
        NotFiniteError: one does not; the first such is named.
    """
    found = {n: tensor.detach() for n, tensor in tensors.items() if tensor.is_floating_point()}
    # A finite sum of squares is of finite numbers; an infinite one may be of large ones.
    if torch.nn.utils.get_total_norm(found.values()).isfinite():
        return
    for name, tensor in found.items():
        if not tensor.isfinite().all():
            raise NotFiniteError(f"{what}: {name} is not finite (nan or infinity)")


def stopped(
    run: Path, recipe: Recipe, why: str, good: Path | None, *, has_failed_at_once: bool = False
) -> TrainingStoppedError:
    """Return the error that ends a run: why, where it can go on, and what to lower.

    Args:
        run: the run folder.
        recipe: of the run.
        why: what was not finite.
        good: the last checkpoint whose weights gave a finite loss, if any.
        has_failed_at_once: it gave none to the resume that ends here.
    """
    where = "no checkpoint yet" if good is None else f"the last good checkpoint is {good}"
    verb = "begins again" if good is None else "goes on from there"
    lower = f"{recipe.optimizer.lr / 2:.2g}"
    further = f"; without {good} it goes back one more" if good and has_failed_at_once else ""
    return TrainingStoppedError(
        f"{why}; {where}; 'foreword resume {run} --set optimizer.lr={lower}' {verb} at a lower rate"
        f"{further}"
    )
