"""Characters within words, weighted by TF-IDF."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from foreword.settings.ranges import Count
from foreword.tuning.best.counts import CountsLearner, Grams
from foreword.tuning.best.material import Material


@dataclass(frozen=True)
class CharacterCounts(CountsLearner):
    """Logistic regression (ridge for numbers) on character n-grams, weighted by TF-IDF.

    They see the parts of words: endings, compounds, misspellings; the better the more forms a
    language has.

    Attributes:
        longest: the longest n-gram of characters.
    """

    title: ClassVar[str] = "counts of characters"
    grams: ClassVar[Grams] = "characters"

    longest: Count = 5

    def misplaced(self, material: Material) -> str:
        """Tagged words have their affixes counted already."""
        return "" if not isinstance(material.counted[0], list) else "words have their affixes"
