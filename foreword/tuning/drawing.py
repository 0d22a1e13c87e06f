"""Samples of the labelled examples, drawn anew for each seed.

Which examples are drawn matters as much as the seed of the head, so the deviation over seeds has
both. All variants and the bag of words learn from the same draws.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from foreword.data.rng import permute
from foreword.errors import UserError
from foreword.tables.examples import Labelled, LabelledTexts
from foreword.tuning.tasks._contract import Task
from foreword.types import Array

DRAW = 0xF << 48  # tells the seeds of draws from those of the order of examples


@dataclass(frozen=True)
class DrawnExamples:
    """The training examples that some seed draws.

    Attributes:
        examples: the examples of all seeds together.
        numbers: for seed 1, 2, ... which of them it drew, (drawn,) int64.
        total: the number of examples they were drawn from.
        labels: the labels of all examples, in the order of the outputs.
    """

    examples: Sequence[Labelled]
    numbers: tuple[Array, ...]
    total: int
    labels: tuple[str, ...]


def draw(examples: Sequence[Labelled], count: int | None, seeds: int, task: Task) -> DrawnExamples:
    """Draw `count` examples for each seed, each label in its proportion but at least once.

    More seeds, or more examples of a seed, leave what is drawn as it is, but for the proportions.

    Args:
        examples: all training examples.
        count: number of examples of each seed; None for all of them.
        seeds: number of seeds.
        task: whether its labels are classes.

    Raises:
        UserError: there are fewer examples, more classes than `count`, or labels that the task
            does not take.
    """
    total, labels = len(examples), task.labels(examples)
    if count is None:
        return DrawnExamples(examples, (np.arange(total),) * seeds, total, labels)
    if count > total:
        raise UserError(f"tune.examples: {count:,}, but there are {total:,} training examples")
    groups = _groups(example.label for example in examples)
    if len(groups) > count and task.judge.has_classes:
        raise UserError(
            f"tune.examples: {count:,} cannot have one of each of the {len(groups):,} labels"
        )
    draws = _draws(groups, count, range(1, seeds + 1))
    indices = np.unique(np.concatenate(draws))
    subset = LabelledTexts.of(examples[int(n)] for n in indices)
    return DrawnExamples(
        subset,
        tuple(np.sort(np.searchsorted(indices, numbers)) for numbers in draws),
        total,
        labels,
    )


def hold_out(
    examples: Sequence[Labelled], count: int, task: Task
) -> tuple[LabelledTexts, LabelledTexts]:
    """Hold out `count` examples, each label in its proportion; return the others, then these.

    Held-out examples whose label no other example has are dropped.

    Args:
        examples: the examples, more than `count`.
        count: number of examples to hold out.
        task: whether its labels are classes.
    """
    groups = _groups(example.label for example in examples)
    (numbers,) = _draws(groups, count, [0])
    is_held = np.zeros(len(examples), bool)
    is_held[numbers] = True
    rest = LabelledTexts.of(e for e, held in zip(examples, is_held, strict=True) if not held)
    part = (example for example, held in zip(examples, is_held, strict=True) if held)
    if task.judge.has_classes:
        labels = {example.label for example in rest}
        part = (example for example in part if example.label in labels)
    return rest, LabelledTexts.of(part)


def _draws(groups: list[Array], count: int, seeds: Sequence[int]) -> list[Array]:
    """Return the indices that each seed draws, from every group if `count` allows."""
    if len(groups) > count:
        groups = [np.sort(np.concatenate(groups))]
    counts = _shares([len(group) for group in groups], count)
    return [
        np.concatenate(
            [
                group[permute(np.arange(many), len(group), DRAW + (seed << 20) + n)]
                for n, (group, many) in enumerate(zip(groups, counts, strict=True))
            ]
        )
        for seed in seeds
    ]


def _groups(labels: Iterable[str]) -> list[Array]:
    """Return the numbers of the examples of each label, in the order of the labels."""
    numbers: dict[str, list[int]] = {}
    for number, label in enumerate(labels):
        numbers.setdefault(label, []).append(number)
    return [np.array(numbers[label]) for label in sorted(numbers)]


def _shares(sizes: Sequence[int], count: int) -> list[int]:
    """Return how many of `count` each group has: by its size, at least one, at most all."""
    quotas = count * np.asarray(sizes) / sum(sizes)
    shares = np.maximum(1, np.floor(quotas)).astype(int)
    while shares.sum() < count:
        shares[np.argmax(np.where(shares < sizes, quotas - shares, -np.inf))] += 1
    while shares.sum() > count:
        shares[np.argmax(np.where(shares > 1, shares - quotas, -np.inf))] -= 1
    return [int(share) for share in shares]
