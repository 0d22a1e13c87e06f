"""Each word predicts the words around it: skip-gram."""

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
class SkipGram:
    """Each pair of a word and one in its window is a prediction of its own.

        the cat [sat] on mat        the, cat, on and mat each predict sat

    Also called: SGNS.
    Reference: Mikolov et al. 2013a, section 3.2; 2013b, section 2.
    Differs from the paper: as in the released word2vec, the words of the window are the input and
    the word in its middle is predicted; a text gives the same pairs either way.
    """

    is_skip_gram: ClassVar[bool] = True

    def reach(self, window: int) -> int:
        """Return 1: the last word alone."""
        return 1

    def gradients(self, block: WordBlock) -> BlockGradients:
        """See `VectorArchitecture`; a noise word is compared with every word of the context."""
        # Scores of every word of the context with the block's words and noise.
        x, words = block.context, block.words.shape[1]
        y = np.concatenate([block.words, block.noise], axis=1)
        inside = block.inside.transpose(0, 2, 1)  # (blocks, reach, words)
        pairs = inside.sum(axis=2)  # (blocks, reach)
        scores = x @ y.transpose(0, 2, 1)  # (blocks, reach, words + noise)
        to_log_likelihood_gradients(scores, words)
        # Only pairs within a window are predictions.
        scores[:, :, :words] *= inside
        scores[:, :, words:] *= (pairs * np.float32(block.weight))[:, :, None]
        y_gradient = scores.transpose(0, 2, 1) @ x
        noise = block.noise.shape[1]
        per_noise = pairs.sum(axis=1, keepdims=True) * np.float32(block.weight)
        return BlockGradients(
            context=scores @ y,
            words=y_gradient[:, :words],
            noise=y_gradient[:, words:],
            context_count=pairs * np.float32(1 + block.weight * noise),
            words_count=inside.sum(axis=1),
            noise_count=np.repeat(per_noise, noise, axis=1),
        )
