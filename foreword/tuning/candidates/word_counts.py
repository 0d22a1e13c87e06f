"""Words and pairs of words, weighted by TF-IDF."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from foreword.runs.trained_model import TrainedModel
from foreword.settings.ranges import Count
from foreword.tuning.best.counts import Counts, FittedCounts
from foreword.tuning.best.material import Material
from foreword.tuning.candidates._contract import Learner

INVERSE_PENALTIES = (1.0, 10.0, 100.0)


@dataclass(frozen=True)
class WordCounts(Learner):
    """Logistic regression (ridge for numbers) on words, weighted by TF-IDF.

    Of tagged words: on the word, its affixes, and its neighbours. Of a pair: on the words of each
    text, of both, and of one alone.

    Attributes:
        longest: the longest n-gram of words.

    Also called: bag of words.
    Reference: Sparck Jones 1972 for the weighting.
    """

    title: ClassVar[str] = "counts of words"
    reads_model: ClassVar[bool] = False

    longest: Count = 2

    def fit(self, material: Material, seed: int) -> FittedCounts:
        """Count the words of the examples, and fit the regression."""
        counts = Counts.of(material, "words", self.longest, "tf_idf")
        return FittedCounts.fit(material, counts, INVERSE_PENALTIES)

    @classmethod
    def read(cls, folder: Path, trained: TrainedModel) -> FittedCounts:
        """Read the counts and the regression."""
        return FittedCounts.read(folder)
