"""Negative sampling trained by gensim: faster than ours for the continuous bag of words."""

from __future__ import annotations

from dataclasses import dataclass

from foreword.settings.ranges import Count, Share
from foreword.types import Array
from foreword.vectors import through_gensim
from foreword.vectors.corpus import WordCorpus
from foreword.vectors.outputs._contract import (
    Progress,
    Scorer,
    VectorOutput,
    Vectors,
    VectorTraining,
    noise_scorer,
)


@dataclass(frozen=True)
class NegativeSamplingGensim(VectorOutput):
    """Each prediction is compared with `negatives` noise words, drawn by a power of frequency.

    Gensim trains the vectors, one prediction at a time. With one thread, the same seed gives the
    same vectors.

    Attributes:
        negatives: noise words for each prediction.
        exponent: the exponent of the word frequency in the noise distribution.

    Reference: Mikolov et al. 2013b, section 2.2.
    """

    negatives: Count = 5
    exponent: Share = 0.75

    def require_packages(self) -> None:
        through_gensim.require_gensim()

    def fit(
        self, corpus: WordCorpus, vectors: Vectors, training: VectorTraining, progress: Progress
    ) -> None:
        negatives, exponent = self.negatives, self.exponent
        through_gensim.learn(
            corpus, vectors, training, progress, negatives=negatives, exponent=exponent
        )

    def scorer(self, counts: Array) -> Scorer:
        return noise_scorer(counts, self.exponent)
