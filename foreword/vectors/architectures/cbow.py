"""The words around a word predict it together: the continuous bag of words."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from foreword.vectors.architectures._contract import (
    BlockGradients,
    WordBlock,
    to_log_likelihood_gradients,
)


@dataclass(frozen=True)
class CBOW:
    """The mean of the vectors in a word's window predicts the word.

        the cat [sat] on mat        the mean of the, cat, on and mat predicts sat

    Also called: continuous bag of words.
    Reference: Mikolov et al. 2013a, section 3.1.
    Differs from the paper: as in the released word2vec, every word of a window gets the
    whole gradient of their mean.
    """

    is_skip_gram: ClassVar[bool] = False

    def reach(self, window: int) -> int:
        """Return the window size on one side."""
        return window

    def gradients(self, block: WordBlock) -> BlockGradients:
        """See `VectorArchitecture`; a noise word is compared with the mean of every window."""
        # Means of the windows; a word with an empty window predicts nothing.
        inside, weight = block.inside, np.float32(block.weight)
        sizes = inside.sum(axis=2, keepdims=True)  # (blocks, words, 1)
        has_context = np.minimum(sizes, 1)
        h = (inside @ block.context) / np.maximum(sizes, 1)  # (blocks, words, d_model)
        # Gradients of the scores of the word itself and of the noise.
        positive = np.einsum("bwd,bwd->bw", h, block.words)[:, :, None]
        to_log_likelihood_gradients(positive, 1)
        positive *= has_context
        negative = h @ block.noise.transpose(0, 2, 1)  # (blocks, words, noise)
        to_log_likelihood_gradients(negative, 0)
        negative *= has_context * weight
        # Gradients of the vectors.
        h_gradient = negative @ block.noise
        h_gradient += positive * block.words
        noise = block.noise.shape[1]
        per_noise = has_context.sum(axis=1) * weight  # (blocks, 1)
        per_word = np.float32(1 + block.weight * noise)
        return BlockGradients(
            context=inside.transpose(0, 2, 1) @ h_gradient,
            words=positive * h,
            noise=negative.transpose(0, 2, 1) @ h,
            context_count=inside.sum(axis=1) * per_word,
            words_count=has_context[:, :, 0],
            noise_count=np.repeat(per_noise, noise, axis=1),
        )
