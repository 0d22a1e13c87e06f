"""Negative sampling as gensim learns it: faster than ours for the continuous bag of words."""

from __future__ import annotations

from dataclasses import dataclass

from foreword.ranges import Count, Ranged, Share
from foreword.types import Array
from foreword.vectors import through_gensim
from foreword.vectors.outputs._contract import (
    Progress,
    Scorer,
    Vectors,
    VectorTraining,
    noise_scorer,
)
from foreword.vectors.words import WordCorpus


@dataclass(frozen=True)
class NegativeSamplingGensim(Ranged):
    """Each prediction is held against `negatives` words drawn by their frequency to a power.

    Gensim learns the vectors, a prediction at a time. With one thread, the same seed gives the
    same vectors.

    Attributes:
        negatives: noise words for each prediction.
        exponent: of the frequency of words as noise.

    Reference: Mikolov et al. 2013b, section 2.2.
    """

    negatives: Count = 5
    exponent: Share = 0.75

    def fit(
        self, words: WordCorpus, vectors: Vectors, course: VectorTraining, progress: Progress
    ) -> None:
        """See `VectorOutput`.

        Raises:
            UserError: gensim is not installed.
        """
        negatives, exponent = self.negatives, self.exponent
        through_gensim.learn(
            words, vectors, course, progress, negatives=negatives, exponent=exponent
        )

    def scorer(self, counts: Array) -> Scorer:
        """See `VectorOutput`."""
        return noise_scorer(counts, self.exponent)
