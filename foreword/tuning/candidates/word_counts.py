"""Words and pairs of words, weighted by TF-IDF."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from foreword.tuning.best.counts import CountsLearner


@dataclass(frozen=True)
class WordCounts(CountsLearner):
    """Logistic regression (ridge for numbers) on words, weighted by TF-IDF.

    Of tagged words: on the word, its affixes, and its neighbours. Of a pair: on the words of each
    text, of both, and of one alone.

    Attributes:
        longest: the longest n-gram of words.

    Also called: bag of words.
    Reference: Sparck Jones 1972 for the weighting.
    """

    title: ClassVar[str] = "counts of words"
