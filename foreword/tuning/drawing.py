"""Samples of the labelled examples, drawn anew for each seed; folds; parts that are held out.

Which examples are drawn matters as much as the seed of the head, so the deviation over seeds has
both. All variants and the bag of words learn from the same draws.
"""

from __future__ import annotations

import itertools
import warnings
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from sklearn.model_selection import StratifiedGroupKFold, StratifiedKFold

from foreword.data.rng import permute
from foreword.errors import UserError
from foreword.tables.examples import Labelled, LabelledTexts
from foreword.tuning.tasks._contract import Task
from foreword.types import Array

DRAW = 0xF << 48  # tells the seeds of draws from those of the order of examples
HELD_SHARE = 0.1  # of the examples, held out to fit probabilities and thresholds on
HELD_FEWEST, HELD_MOST = 50, 5_000  # of them; at least this times HELD_PARTS are needed in all
HELD_PARTS = 5


class ScoredSplit(NamedTuple):
    """Examples to train on, and others to score.

    Attributes:
        numbers: those to train on, (examples,) int64.
        held: the others, (examples,) int64.
    """

    numbers: Array
    held: Array


@dataclass(frozen=True)
class DrawnExamples:
    """The training examples that some seed draws.

    Attributes:
        examples: the examples of all seeds together.
        numbers: for seed 1, 2, ... which of them it drew, (drawn,) int64.
        total: the number of examples they were drawn from.
        labels: the labels of all examples, in the order of the outputs.
        folds: with cross-validation what each fold trains on and scores; else empty.
    """

    examples: Sequence[Labelled]
    numbers: tuple[Array, ...]
    total: int
    labels: tuple[str, ...]
    folds: tuple[ScoredSplit, ...] = ()


def draw(examples: Sequence[Labelled], count: int | None, seeds: int, task: Task) -> DrawnExamples:
    """Draw `count` examples for each seed, each label in its proportion but at least once.

    More seeds, or more examples of a seed, leave what is drawn as it is, but for the proportions.

    Args:
        count: number of examples of each seed; None for all of them.

    Raises:
        UserError: there are fewer examples, more classes than `count`, or labels that the task
            does not take.
    """
    total, labels = len(examples), task.labels(examples)
    if count is None:
        return DrawnExamples(examples, (np.arange(total),) * seeds, total, labels)
    if count > total:
        raise UserError(f"tune.examples: {count:,}, but there are {total:,} training examples")
    groups = _groups(examples, task)
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


def folds(examples: Sequence[Labelled], count: int, task: Task) -> tuple[ScoredSplit, ...]:
    """Return folds that hold out every example once, each label in its proportion.

    Examples of one group are in one fold.

    Raises:
        UserError: there are fewer examples, or fewer groups, than folds.
    """
    groups = [example.group or f"\n{n}" for n, example in enumerate(examples)]
    if (many := len(set(groups))) < count:
        what = "groups of " if many < len(examples) else ""
        raise UserError(f"--folds: {count:,}, but there are {many:,} {what}training examples")
    labels = _strata(examples, task) if task.judge.has_classes else [""] * len(examples)
    folder: Any = StratifiedKFold if many == len(examples) else StratifiedGroupKFold
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of rare labels
        if max(Counter(labels).values()) < count:
            labels = [""] * len(examples)
        splits = folder(count, shuffle=True, random_state=1).split(labels, labels, groups)
        return tuple(ScoredSplit(numbers, held) for numbers, held in splits)


def held_out(numbers: Array, examples: Sequence[Labelled], task: Task) -> ScoredSplit | None:
    """Hold out a part of some examples to fit probabilities on; None if they are too few.

    Args:
        numbers: which examples, (examples,) int64.
    """
    if len(numbers) < HELD_PARTS * HELD_FEWEST:
        return None
    count = min(max(round(HELD_SHARE * len(numbers)), HELD_FEWEST), HELD_MOST)
    return _hold_out(numbers, examples, task, count)


def hold_out(
    examples: Sequence[Labelled], count: int, task: Task
) -> tuple[LabelledTexts, LabelledTexts]:
    """Hold out `count` examples, each label in its proportion; return the others, then these.

    Held-out examples whose label no other example has are dropped.
    """
    split = _hold_out(np.arange(len(examples)), examples, task, count)
    rest, part = (LabelledTexts.of(examples[int(n)] for n in numbers) for numbers in split)
    if task.judge.has_classes:
        labels_of = task.reader.labels_of
        labels = {label for example in rest for label in labels_of(example.label)}
        part = LabelledTexts.of(e for e in part if labels.issuperset(labels_of(e.label)))
    return rest, part


def _hold_out(numbers: Array, examples: Sequence[Labelled], task: Task, count: int) -> ScoredSplit:
    (held,) = _draws(_groups([examples[int(n)] for n in numbers], task), count, [0])
    return ScoredSplit(np.delete(numbers, held), numbers[np.sort(held)])


def _draws(groups: list[Array], count: int, seeds: Sequence[int]) -> list[Array]:
    """Return the indices that each seed draws, from every group if `count` allows."""
    if len(groups) > count:
        groups = [np.sort(np.concatenate(groups))]
    counts = _shares([len(group) for group in groups], count)

    def drawn(seed: int) -> Array:
        of_each = enumerate(zip(groups, counts, strict=True), DRAW + (seed << 20))
        return np.concatenate([g[permute(np.arange(k), len(g), n)] for n, (g, k) in of_each])

    return list(map(drawn, seeds))


def _strata(examples: Sequence[Labelled], task: Task) -> list[str]:
    """Return the label of each example; of several the rarest one, and "" of none."""
    labels = [task.reader.labels_of(example.label) for example in examples]
    counts = Counter(itertools.chain.from_iterable(labels))
    return [min(of, key=lambda label: (counts[label], label), default="") for of in labels]


def _groups(examples: Sequence[Labelled], task: Task) -> list[Array]:
    """Return the numbers of the examples of each label, in the order of the labels."""
    numbers: dict[str, list[int]] = {}
    for number, label in enumerate(_strata(examples, task)):
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
