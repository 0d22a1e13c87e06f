"""Characters within words, weighted by TF-IDF."""

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
class CharacterCounts(Learner):
    """Logistic regression (ridge for numbers) on character n-grams, weighted by TF-IDF.

    They see the parts of words: endings, compounds, misspellings; the better the more forms a
    language has.

    Attributes:
        longest: the longest n-gram of characters.
    """

    title: ClassVar[str] = "counts of characters"
    reads_model: ClassVar[bool] = False

    longest: Count = 5

    def unsuited(self, material: Material) -> str:
        """Tagged words have their affixes counted already."""
        return "" if not isinstance(material.counted[0], list) else "words have their affixes"

    def fit(self, material: Material, seed: int) -> FittedCounts:
        """Count the characters of the examples, and fit the regression."""
        counts = Counts.of(material, "characters", self.longest, "tf_idf")
        return FittedCounts.fit(material, counts, INVERSE_PENALTIES)

    @classmethod
    def read(cls, folder: Path, trained: TrainedModel) -> FittedCounts:
        """Read the counts and the regression."""
        return FittedCounts.read(folder)
