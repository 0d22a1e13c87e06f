"""The contract of word-vector architectures, the kinds in `vectors/architectures/`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Protocol

import numpy as np
import torch

from foreword.types import Array


@dataclass(frozen=True)
class WordBlock:
    """Blocks of words with their contexts; the words of a block share their noise words.

    Attributes:
        context: vectors of all words in the windows of the block's, (blocks, reach, d_model)
            float32.
        inside: 1 where a word of the context is in the window of a word of the block;
            (blocks, words, reach) float32.
        words: output vectors of the block's words, (blocks, words, d_model) float32.
        noise: output vectors of words drawn for the block, (blocks, noise, d_model) float32.
        weight: the weight of each noise word, so that they count as `negatives` per prediction.
    """

    context: Array
    inside: Array
    words: Array
    noise: Array
    weight: float


@dataclass(frozen=True)
class BlockGradients:
    """The gradients of the log-likelihood of blocks, and the number of predictions in each sum.

    Attributes:
        context: the gradient of the block's `context`.
        words: the gradient of the block's `words`.
        noise: the gradient of the block's `noise`.
        context_count: the predictions in each gradient of `context`, (blocks, reach) float32.
        words_count: the predictions in each gradient of `words`, (blocks, words) float32.
        noise_count: the predictions in each gradient of `noise`, (blocks, noise) float32.
    """

    context: Array
    words: Array
    noise: Array
    context_count: Array
    words_count: Array
    noise_count: Array


class VectorArchitecture(Protocol):
    """A choice of input and target words: a kind in `vectors/architectures/`.

    Attributes:
        is_skip_gram: whether each word of a context is a prediction of its own.
    """

    is_skip_gram: ClassVar[bool]

    def gradients(self, block: WordBlock) -> BlockGradients:
        """Return the gradients of the log-likelihood of words against noise."""

    def reach(self, window: int) -> int:
        """Return the most last words of a text that predict the next one."""


def to_log_likelihood_gradients(scores: Array, positives: int) -> None:
    """Replace scores by gradients of the log-likelihood: 1 - s(x) of positives, -s(x) of negatives.

    Args:
        scores: (..., columns) float32, overwritten.
        positives: the number of first columns that are positives; the others are negatives.
    """
    np.negative(scores, out=scores)
    torch.from_numpy(scores).sigmoid_()  # 1 - s(x) = s(-x)
    scores[..., positives:] -= 1
