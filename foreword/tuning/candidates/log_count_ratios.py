"""Words, weighted by how much more often one class has them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from foreword.tuning.best.counts import CountsLearner, Weighting
from foreword.tuning.best.material import Material

MOST_CLASSES = 50  # each has a regression of its own


@dataclass(frozen=True)
class LogCountRatios(CountsLearner):
    """Logistic regression on the presence of words, scaled by their log-count ratios.

    Attributes:
        longest: the longest n-gram of words.

    Also called: NB-SVM.
    Reference: Wang and Manning 2012, "Baselines and Bigrams".
    Differs from the paper: logistic regression in place of the SVM, for probabilities.
    """

    title: ClassVar[str] = "log-count ratios of words"
    weighting: ClassVar[Weighting] = "log_count_ratios"
    inverse_penalties: ClassVar[tuple[float, ...]] = (0.01, 0.1, 1.0)

    def misplaced(self, material: Material) -> str:
        """Ratios are of classes."""
        is_for = material.form in ("classes", "sets") and not isinstance(material.counted[0], list)
        return "" if is_for else "for texts with classes alone"

    def unsuited(self, material: Material) -> str:
        """Each class has a regression of its own."""
        return "" if len(material.labels) <= MOST_CLASSES else f"more than {MOST_CLASSES} classes"
