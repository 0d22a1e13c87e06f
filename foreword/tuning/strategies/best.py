"""Choose: counts, features, fine-tuning, or an average of them, by cross-validation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from foreword.settings.ranges import Count, LearningRateOrZero, Positive
from foreword.tables.examples import Labelled
from foreword.tuning.network import Network
from foreword.tuning.strategies._depth import RatedByWidth
from foreword.tuning.tasks._contract import Task

CANDIDATES = (
    "word_counts",
    "character_counts",
    "log_count_ratios",
    "conditional_random_field",
    "pooled_features",
    "features_and_counts",
    "contrastive",
    "fine_tuned",
)


def suits(task: Task, train: Sequence[Labelled] = ()) -> bool:
    """Return whether candidates learn such outputs, and have labels to be judged by."""
    has_labels = all(example.label for example in train) or not task.reader.compares_texts
    return task.needs.outputs is not None and has_labels


@dataclass(frozen=True)
class Best(RatedByWidth):
    """The best of several ways to learn the task, chosen on the training examples alone.

    Counts of words and of characters, regression on the model's states, both together, and
    fine-tuning are each cross-validated; the average of their answers that predicts the labels best
    is kept, and each of its parts learns from all examples. Counting is a candidate, so that what
    is kept is not behind it but by chance. It is the default of `classify` (also with several
    labels a text), `regress`, `tag`, `span`, `choice`, and of `embed` with scores.

    Attributes:
        minutes: a candidate that would not be done by then is left out.
        candidates: kinds of `tuning/candidates/`, the cheapest first.
        lr: peak learning rate of fine-tuning; 0 for that of `full`.
        epochs: epochs of fine-tuning; by the number of examples by default.

    Also called: model selection, stacking.
    Reference: Wolpert 1992, "Stacked Generalization"; Breiman 1996, "Stacked Regressions".
    """

    chooses: ClassVar[bool] = True

    minutes: Positive = 15.0
    candidates: tuple[str, ...] = CANDIDATES
    lr: LearningRateOrZero = 0.0
    epochs: Count | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.candidates or len(set(self.candidates)) < len(self.candidates):
            raise ValueError("candidates: name at least one, and each once")

    def prepare(self, network: Network, seed: int) -> None:
        network.requires_grad_(True)
