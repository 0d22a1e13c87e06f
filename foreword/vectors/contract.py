"""What learning word vectors is made of: an architecture, an output layer, and how long."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, Protocol

import torch
from torch import Tensor

from foreword.types import Array
from foreword.vectors.words import Words

Progress = Callable[[float, float], None]
Scorer = Callable[[Tensor, Tensor], Tensor]  # (..., d_model), (vocab, d_model) -> (..., vocab)


@dataclass(frozen=True)
class VectorCourse:
    """How vectors are learned, whatever the output layer.

    Attributes:
        architecture: a kind in `vectors/architectures/`.
        window: the most words on each side of a context.
        subsample: words of a greater share of the text are thinned; 0 reads all.
        epochs: how often the text is read.
        lr: learning rate by the share of all epochs that is read.
        seed: of windows, thinning and noise.
        threads: processor cores.
    """

    architecture: Architecture
    window: int
    subsample: float
    epochs: int
    lr: Callable[[float], float]
    seed: int
    threads: int


@dataclass(frozen=True)
class Vectors:
    """The two tables that are learned, changed in place.

    Attributes:
        inputs: a vector for each token, which is what is kept; (vocab, d_model) float32.
        outputs: of the output layer, (vocab, d_model) float32.
    """

    inputs: Array
    outputs: Array


@dataclass(frozen=True)
class Block:
    """Some words with what they predict or are predicted by.

    Attributes:
        context: vectors of the words in reach of the block's, (blocks, reach, d_model) float32.
        inside: 1 where a word of the context stands in the window of a word of the block;
            (blocks, words, reach) float32.
        words: output vectors of the block's words, (blocks, words, d_model) float32.
        noise: output vectors of words drawn for the block, (blocks, noise, d_model) float32.
        weight: of each noise word: `negatives` of them are wanted for each prediction.
    """

    context: Array
    inside: Array
    words: Array
    noise: Array
    weight: float


@dataclass(frozen=True)
class Steps:
    """The gradients of a block's log-likelihood, and how many predictions each sums up.

    Attributes:
        context: of `Block.context`.
        words: of `Block.words`.
        noise: of `Block.noise`.
        context_count: (blocks, reach) float32.
        words_count: (blocks, words) float32.
        noise_count: (blocks, noise) float32.
    """

    context: Array
    words: Array
    noise: Array
    context_count: Array
    words_count: Array
    noise_count: Array


class Architecture(Protocol):
    """What is predicted from what: a kind in `vectors/architectures/`.

    Attributes:
        is_skip_gram: whether each word of a context is a prediction of its own.
    """

    is_skip_gram: ClassVar[bool]

    def steps(self, block: Block) -> Steps:
        """The gradients of the log-likelihood of words against noise."""

    def reach(self, window: int) -> int:
        """How many words, the last one included, a text is gone on from."""


class Output(Protocol):
    """How words are predicted without a softmax over all: a kind in `vectors/outputs/`."""

    def fit(self, words: Words, vectors: Vectors, course: VectorCourse, progress: Progress) -> None:
        """Learns the vectors.

        Raises:
            UserError: what it needs is not installed.
        """

    def scorer(self, counts: Array) -> Scorer:
        """What gives every word its log-probability, but for what all of them share.

        Args:
            counts: of each token in the training text, (vocab,) int64; at least two words.
        """


def shares(counts: Tensor) -> Tensor:
    """The logarithm of each count, one half for what was never counted; (vocab,) float32."""
    return counts.float().clamp(min=0.5).log()


def noise_scorer(counts: Array, exponent: float) -> Scorer:
    """See `Output.scorer`: the score of a word with the logarithm of its share of the noise.

    The score comes to log p(word) - log(k q(word)), where q is the noise, so p is the score
    with log q added, but for a constant (Levy & Goldberg 2014, section 3.1).

    Args:
        counts: of each token in the training text, (vocab,) int64.
        exponent: of the frequency of words as noise.
    """
    noise = exponent * shares(torch.from_numpy(counts))

    def score(states: Tensor, outputs: Tensor) -> Tensor:
        return states @ outputs.T + noise.to(states)

    return score
