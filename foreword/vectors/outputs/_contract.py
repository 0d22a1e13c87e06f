"""The contract of output layers of word vectors, the kinds in `vectors/outputs/`."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from foreword.settings.ranges import Ranged
from foreword.types import Array
from foreword.vectors.architectures._contract import VectorArchitecture
from foreword.vectors.corpus import WordCorpus

Progress = Callable[[float, float], None]
Scorer = Callable[[Tensor, Tensor], Tensor]  # (..., d_model), (vocab, d_model) -> (..., vocab)


@dataclass(frozen=True)
class VectorTraining:
    """The settings of a training of word vectors, for every output layer.

    Attributes:
        architecture: a kind in `vectors/architectures/`.
        window: the maximum number of words on each side of a context.
        subsample: words with a greater share of the text are subsampled; 0 keeps all.
        epochs: passes over the text.
        lr: the learning rate as a function of progress, from 0 to 1.
        seed: the seed of window sizes, subsampling and noise.
        threads: the number of threads.
    """

    architecture: VectorArchitecture
    window: int
    subsample: float
    epochs: int
    lr: Callable[[float], float]
    seed: int
    threads: int


@dataclass(frozen=True)
class Vectors:
    """The two tables of vectors, which training changes in place.

    Attributes:
        inputs: the word vectors, one for each token; (vocab, d_model) float32.
        outputs: the vectors of the output layer, (vocab, d_model) float32.
    """

    inputs: Array
    outputs: Array


class VectorOutput(Ranged, ABC):
    """An output layer without a full softmax: a kind in `vectors/outputs/`."""

    def require_packages(self) -> None:
        """Check that the optional packages that training requires are installed; default: none.

        Raises:
            UserError: one is not; the message says how to install it.
        """

    @abstractmethod
    def fit(
        self, corpus: WordCorpus, vectors: Vectors, training: VectorTraining, progress: Progress
    ) -> None:
        """Train the vectors.

        Raises:
            UserError: a required package is not installed.
        """

    @abstractmethod
    def scorer(self, counts: Array) -> Scorer:
        """Return a function that gives each word's log-probability up to a shared constant.

        Args:
            counts: the count of each token in the training text, (vocab,) int64; at least two
                words.
        """


def log_counts(counts: Tensor) -> Tensor:
    """Return the logarithm of each count, 0 taken as one half; (vocab,) float32."""
    return counts.float().clamp(min=0.5).log()


def noise_scorer(counts: Array, exponent: float) -> Scorer:
    """Return a scorer that adds the logarithm of a word's share of the noise to its score.

    The score approaches log p(word) - log(k q(word)), where q is the noise distribution, so adding
    log q gives log p up to a constant (Levy & Goldberg 2014, section 3.1).

    Args:
        counts: the count of each token in the training text, (vocab,) int64.
        exponent: the exponent of the word frequency in the noise distribution.
    """
    noise = exponent * log_counts(torch.from_numpy(counts))

    def score(states: Tensor, outputs: Tensor) -> Tensor:
        return states @ outputs.T + noise.to(states)

    return score
