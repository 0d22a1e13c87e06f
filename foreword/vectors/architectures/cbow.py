"""The words around a word predict it together: the continuous bag of words."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from foreword.vectors.architectures._contract import BlockGradients, WordBlock
from foreword.vectors.logistic import error_of


@dataclass(frozen=True)
class CBOW:
    """The mean of the vectors in a word's window predicts the word.

        the cat [sat] on mat        the mean of the, cat, on and mat predicts sat

    Reference: Mikolov et al. 2013a, section 3.1.
    Differs from the paper: as in the released word2vec, every word of a window takes the whole of
    the gradient of their mean.
    """

    is_skip_gram: ClassVar[bool] = False

    def reach(self, window: int) -> int:
        """Return the window size on one side."""
        return window

    def steps(self, block: WordBlock) -> BlockGradients:
        """See `VectorArchitecture`; a noise word is compared with the mean of every window."""
        inside, weight = block.inside, np.float32(block.weight)
        sizes = inside.sum(axis=2, keepdims=True)  # (blocks, words, 1)
        is_there = np.minimum(sizes, 1)  # a word alone predicts nothing
        h = (inside @ block.context) / np.maximum(sizes, 1)  # (blocks, words, d_model)
        right = np.einsum("bwd,bwd->bw", h, block.words)[:, :, None]
        error_of(right, 1)
        right *= is_there
        wrong = h @ block.noise.transpose(0, 2, 1)  # (blocks, words, noise)
        error_of(wrong, 0)
        wrong *= is_there * weight
        step_h = wrong @ block.noise
        step_h += right * block.words
        noise = block.noise.shape[1]
        per_noise = is_there.sum(axis=1) * weight  # (blocks, 1)
        per_word = np.float32(1 + block.weight * noise)
        return BlockGradients(
            context=inside.transpose(0, 2, 1) @ step_h,
            words=right * h,
            noise=wrong.transpose(0, 2, 1) @ h,
            context_count=inside.sum(axis=1) * per_word,
            words_count=is_there[:, :, 0],
            noise_count=np.repeat(per_noise, noise, axis=1),
        )
