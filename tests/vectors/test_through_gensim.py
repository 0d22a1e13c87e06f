"""Word vectors trained by gensim."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from foreword.vectors import through_gensim
from foreword.vectors.architectures.skip_gram import SkipGram
from foreword.vectors.corpus import WordCorpus
from foreword.vectors.outputs._contract import Vectors, VectorTraining

models = pytest.importorskip("gensim").models


def test_gensim_draws_noise_by_the_count_of_each_word(monkeypatch: pytest.MonkeyPatch) -> None:
    models_trained: list[Any] = []

    class Spy(models.Word2Vec):  # type: ignore[misc]
        def train(self, *args: Any, **kwargs: Any) -> Any:
            models_trained.append(self)
            return super().train(*args, **kwargs)

    monkeypatch.setattr(models, "Word2Vec", Spy)
    counts = np.array([0, 1, 40, 3, 200, 10])  # neither in the order of ids nor in that of counts
    tokens = np.random.default_rng(1).permutation(np.repeat(np.arange(6), counts))
    words = WordCorpus.of(tokens, np.array([0, len(tokens)]), counts > 0)
    vectors = Vectors(*np.zeros((2, 6, 4), dtype=np.float32))
    training = VectorTraining(SkipGram(), 2, 0.0, 1, lambda progress: 0.025, 1, 1)
    through_gensim.learn(words, vectors, training, print, negatives=2, exponent=0.75)

    (model,) = models_trained
    order = [int(name) for name in model.wv.index_to_key]
    noise = np.diff(model.cum_table.astype(np.float64), prepend=0) / model.cum_table[-1]
    np.testing.assert_allclose(noise, counts[order] ** 0.75 / (counts**0.75).sum(), atol=1e-6)
