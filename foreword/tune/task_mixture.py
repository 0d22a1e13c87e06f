"""Several tasks at once: each says by a prefix what it asks, and has its share of an epoch."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from foreword.errors import UserError
from foreword.tune.contracts import Labelled


def with_prefix(example: Labelled, prefix: str) -> Labelled:
    """The example with all that is read in its text: prefix, text and second text."""
    pair = example.pair or ""
    if "{text}" in prefix:
        text = prefix.replace("{pair}", pair).replace("{text}", example.text)
    else:
        text = f"{prefix}{example.text}{' ' if pair else ''}{pair}"
    return example._replace(text=text, pair=None)


def mix_tasks(tasks: Sequence[Sequence[Labelled]], temperature: float = 1.0) -> list[Labelled]:
    """The examples of several tasks, so many of each as its share is of an epoch.

    At a temperature of 1 that is all of them; the higher it is, the more alike the shares: a
    task's is in proportion to (examples)^(1 / temperature). Small tasks are then repeated and
    large ones cut, each epoch as long as all tasks together.

    Reference: Raffel et al. 2020, section 3.5.2; without their limit on a task's size.

    Raises:
        UserError: the temperature is below 1.
    """
    if temperature < 1:
        raise UserError(f"--temperature {temperature:g}: must be at least 1, all examples as often")
    sizes = np.asarray([len(task) for task in tasks], dtype=np.float64)
    shares = sizes ** (1 / temperature)
    counts = np.rint(sizes.sum() * shares / shares.sum()).astype(int)
    return [
        task[n % len(task)] for task, count in zip(tasks, counts, strict=True) for n in range(count)
    ]
