"""Word vectors of each architecture with each output layer."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import torch

from foreword.models.word_vectors import WordVectors, WordVectorsBackbone
from foreword.settings import kinds
from foreword.types import Vocab

from ..readings import reading
from ..vectors.texts import SIZE, gap, is_word, topics

ARCHITECTURES, OUTPUTS = kinds.names("vectors/architectures"), kinds.names("vectors/outputs")
needs_gensim = pytest.mark.skipif(
    importlib.util.find_spec("gensim") is None, reason="gensim is not installed"
)
CASES = [
    pytest.param(a, o, marks=() if o == "negative_sampling" else needs_gensim)
    for a in ARCHITECTURES
    for o in OUTPUTS
]
every_case = pytest.mark.parametrize(("architecture", "output"), CASES)


def settings(architecture: str, output: str) -> WordVectors:
    kind = kinds.load("vectors/outputs", output)()
    if output == "negative_sampling":
        kind = replace(kind, batch=64, block=8, noise=8)
    return WordVectors(
        d_model=8,
        architecture=kinds.load("vectors/architectures", architecture)(),
        output=kind,
        window=3,
        subsample=0.0,
    )


def learn(
    architecture: str, output: str, seed: int = 1, progress: Callable[[float, float], None] = print
) -> WordVectorsBackbone:
    kind = settings(architecture, output)
    backbone = kind.build(SIZE)
    assert isinstance(backbone, WordVectorsBackbone)
    known = Vocab(SIZE, {}, np.empty(0), ~is_word(), is_word())
    backbone.set_spellings(known)
    tokens, starts = topics()
    texts = np.split(tokens, starts[1:-1])
    backbone.fit(reading(texts, known, Path(), epochs=5, seed=seed, progress=progress))
    return backbone


@cache
def learned(architecture: str, output: str) -> WordVectorsBackbone:
    return learn(architecture, output)


def inputs(backbone: WordVectorsBackbone) -> torch.Tensor:
    weight: torch.Tensor = backbone.embedding.token.weight.detach()
    return weight


@every_case
def test_words_of_one_topic_get_similar_vectors(architecture: str, output: str) -> None:
    assert gap(inputs(learned(architecture, output)).numpy()) > 0.5


@every_case
def test_the_same_seed_gives_the_same_vectors(architecture: str, output: str) -> None:
    expected = inputs(learned(architecture, output))
    assert torch.equal(inputs(learn(architecture, output)), expected)
    assert not torch.equal(inputs(learn(architecture, output, seed=2)), expected)


@every_case
def test_progress_is_reported_in_order(architecture: str, output: str) -> None:
    told: list[float] = []
    learn(architecture, output, progress=lambda done, total: told.append(done / total))
    assert told and told == sorted(told) and told[0] == 0 and told[-1] <= 1


@every_case
def test_a_word_predicts_the_words_of_its_topic(architecture: str, output: str) -> None:
    backbone = learned(architecture, output)
    with torch.no_grad():
        log_probs = backbone.score(inputs(backbone)).log_softmax(-1)
    assert log_probs.shape == (SIZE, SIZE) and log_probs.isfinite().all()
    probs = log_probs.exp().numpy()[2:, 2:]
    topic = np.arange(len(probs)) // (len(probs) // 2)
    of_its_own = (probs * (topic[:, None] == topic)).sum(1)
    assert of_its_own.mean() > 0.7
    assert log_probs[2:, :2].exp().max() < 0.01  # what was never met


@needs_gensim
def test_the_tree_gives_probabilities_that_sum_to_one() -> None:
    backbone = learned("skip_gram", "hierarchical_softmax")
    with torch.no_grad():
        probs = backbone.score(torch.randn(5, 8)).exp()
    torch.testing.assert_close(probs[:, 2:].sum(1), torch.ones(5))
