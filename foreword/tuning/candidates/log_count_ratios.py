"""Words, weighted by how much more often one class has them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from foreword.runs.trained_model import TrainedModel
from foreword.settings.ranges import Count
from foreword.tuning.best.counts import Counts, FittedCounts
from foreword.tuning.best.material import Material
from foreword.tuning.candidates._contract import Learner

INVERSE_PENALTIES = (0.01, 0.1, 1.0)
MOST_CLASSES = 50  # each has a regression of its own


@dataclass(frozen=True)
class LogCountRatios(Learner):
    """Logistic regression on the presence of words, scaled by their log-count ratios.

    Attributes:
        longest: the longest n-gram of words.

    Also called: NB-SVM.
    Reference: Wang and Manning 2012, "Baselines and Bigrams".
    Differs from the paper: logistic regression in place of the SVM, for probabilities.
    """

    title: ClassVar[str] = "log-count ratios of words"
    reads_model: ClassVar[bool] = False

    longest: Count = 2

    def unsuited(self, material: Material) -> str:
        """Ratios are of classes."""
        if material.form not in ("classes", "sets") or isinstance(material.counted[0], list):
            return "for texts with classes alone"
        return "" if len(material.labels) <= MOST_CLASSES else f"more than {MOST_CLASSES} classes"

    def fit(self, material: Material, seed: int) -> FittedCounts:
        """Count the words of the examples, and fit a regression for each class."""
        counts = Counts.of(material, "words", self.longest, "log_count_ratios")
        return FittedCounts.fit(material, counts, INVERSE_PENALTIES)

    @classmethod
    def read(cls, folder: Path, trained: TrainedModel) -> FittedCounts:
        """Read the counts and the regressions."""
        return FittedCounts.read(folder)
