"""Several tasks at once: each has a prefix, and a share of the examples of an epoch."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from foreword.errors import UserError
from foreword.tables.examples import Labelled, LabelledTexts


def with_prefix(example: Labelled, prefix: str) -> Labelled:
    """Return the example with prefix, text and second text joined as its text."""
    pair = example.pair or ""
    if "{text}" in prefix:
        text = prefix.replace("{pair}", pair).replace("{text}", example.text)
    else:
        text = f"{prefix}{example.text}{' ' if pair else ''}{pair}"
    return example._replace(text=text, pair=None)


def mix_tasks(tasks: Sequence[Sequence[Labelled]], temperature: float = 1.0) -> Sequence[Labelled]:
    """Return a mixture of tasks, each in proportion to (examples)^(1 / temperature).

    At a temperature of 1 these are all examples; the higher it is, the more equal the shares.
    Small tasks are then repeated and large ones cut; an epoch stays as long as all tasks together.

    Reference: Raffel et al. 2020, section 3.5.2; without their limit on a task's size.

    Raises:
        UserError: the temperature is below 1.
    """
    if temperature < 1:
        raise UserError(
            f"--temperature {temperature:g}: must be at least 1, which weights all examples equally"
        )
    if len(tasks) == 1:
        return tasks[0]
    sizes = np.asarray([len(task) for task in tasks], dtype=np.float64)
    shares = sizes ** (1 / temperature)
    counts = np.rint(sizes.sum() * shares / shares.sum()).astype(int)
    return LabelledTexts.of(
        task[n % len(task)] for task, count in zip(tasks, counts, strict=True) for n in range(count)
    )
