"""The gradients of both architectures, against torch's of the loss that the paper writes down."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch.nn.functional import logsigmoid

from foreword import kinds
from foreword.types import Array
from foreword.vectors.architectures._contract import WordBlock
from foreword.vectors.outputs._contract import Vectors, VectorTraining
from foreword.vectors.outputs.negative_sampling import NegativeSampling
from foreword.vectors.tree import HuffmanTree
from foreword.vectors.words import WordCorpus

from .texts import SIZE, is_word, topics

BLOCKS, WORDS, SIDE, NOISE, WIDTH = 2, 4, 2, 3, 5
REACH = WORDS + 2 * SIDE


def block() -> WordBlock:
    rng = np.random.default_rng(1)

    def normal(*shape: int) -> Array:
        return rng.normal(size=shape).astype(np.float32)

    behind = np.arange(REACH) - np.arange(WORDS)[:, None] - SIDE
    inside = (np.abs(behind) <= rng.integers(0, SIDE + 1, (BLOCKS, WORDS, 1))) & (behind != 0)
    return WordBlock(
        normal(BLOCKS, REACH, WIDTH),
        inside.astype(np.float32),
        normal(BLOCKS, WORDS, WIDTH),
        normal(BLOCKS, NOISE, WIDTH),
        weight=5 / NOISE,
    )


def log_likelihood(kind: str, given: WordBlock) -> list[torch.Tensor]:
    """Word by word, as in Mikolov et al. 2013b, equation 4; gives back its gradients."""
    x, y, noise = (
        torch.from_numpy(v.copy()).requires_grad_()
        for v in (given.context, given.words, given.noise)
    )
    total = torch.zeros(())
    for b, w in np.ndindex(BLOCKS, WORDS):
        seen = np.flatnonzero(given.inside[b, w])
        if not len(seen):
            continue
        inputs = x[b, seen] if kind == "skip_gram" else x[b, seen].mean(0, keepdim=True)
        for h in inputs:
            total = total + logsigmoid(h @ y[b, w])
            total = total + given.weight * logsigmoid(-(noise[b] @ h)).sum()
    total.backward()
    return [v.grad for v in (x, y, noise) if v.grad is not None]


@pytest.mark.parametrize("kind", kinds.names("vectors/architectures"))
def test_steps_are_the_gradients_of_the_log_likelihood(kind: str) -> None:
    given = block()
    wanted = log_likelihood(kind, given)
    steps = kinds.load("vectors/architectures", kind)().steps(given)
    if kind == "cbow":  # every word of a window takes the whole gradient of the mean
        x = torch.from_numpy(given.context)
        sizes = torch.from_numpy(given.inside).sum(2)
        mean = torch.einsum("bwr,brd->bwd", torch.from_numpy(given.inside), x) / sizes.clamp(
            min=1
        ).unsqueeze(2)
        mean.requires_grad_()
        is_there = (sizes > 0).float()
        y, noise = torch.from_numpy(given.words), torch.from_numpy(given.noise)
        right = logsigmoid((mean * y).sum(2)) * is_there
        wrong = logsigmoid(-(mean @ noise.transpose(1, 2))).sum(2) * is_there
        (right.sum() + given.weight * wrong.sum()).backward()
        wanted[0] = torch.einsum("bwr,bwd->brd", torch.from_numpy(given.inside), mean.grad)
    for found, right in zip((steps.context, steps.words, steps.noise), wanted, strict=True):
        np.testing.assert_allclose(found, right.numpy(), atol=1e-5)


@pytest.mark.parametrize("kind", kinds.names("vectors/architectures"))
def test_counts_are_of_predictions(kind: str) -> None:
    given = block()
    steps = kinds.load("vectors/architectures", kind)().steps(given)
    predictions = given.inside.sum() if kind == "skip_gram" else given.inside.any(2).sum()
    assert steps.words_count.sum() == predictions
    assert steps.noise_count.sum() == pytest.approx(5 * predictions)
    assert steps.context_count.sum() == pytest.approx(6 * given.inside.sum())
    assert steps.context_count.shape == steps.context.shape[:2]
    assert steps.noise_count.shape == steps.noise.shape[:2]


def learned(threads: int = 1, **settings: Any) -> Vectors:
    rng = np.random.default_rng(1)
    vectors = Vectors(
        (rng.random((SIZE, 8), dtype=np.float32) - 0.5) / 8, np.zeros((SIZE, 8), np.float32)
    )
    architecture = kinds.load("vectors/architectures", "skip_gram")()
    course = VectorTraining(architecture, 3, 0.0, 2, lambda done: 0.05 * (1 - done), 1, threads)
    words = WordCorpus.of(*topics(), is_word())
    NegativeSampling(**settings).fit(words, vectors, course, lambda done, total: None)
    return vectors


def test_threads_change_nothing() -> None:
    alone, together = learned(), learned(threads=3)
    assert np.array_equal(alone.inputs, together.inputs)
    assert np.array_equal(alone.outputs, together.outputs)


def test_what_is_no_word_is_left_as_it_was() -> None:
    vectors = learned()
    assert (vectors.outputs[:2] == 0).all()
    assert np.abs(vectors.inputs[:2]).max() <= 0.5 / 8


def test_frequent_words_do_not_overshoot() -> None:
    # Sixteen words in steps of 2,048: each is met hundreds of times before vectors change.
    assert np.abs(learned(batch=2048).inputs).max() < 5


def test_noise_goes_by_a_power_of_frequency() -> None:
    counts = np.array([0, 0, 16, 1])
    drawn = np.bincount(NegativeSampling(exponent=0.5)._noise_of(counts), minlength=4)
    assert drawn / drawn.sum() == pytest.approx([0, 0, 0.8, 0.2], abs=1e-5)


def test_settings_are_checked() -> None:
    with pytest.raises(ValueError, match=r"negatives: must be a whole number from 1 to .*, got 0"):
        NegativeSampling(negatives=0)


def test_a_huffman_tree_is_the_shortest() -> None:
    counts = np.array([0, 5, 1, 1, 3, 0, 9])
    tree = HuffmanTree.of(counts)
    assert tree.words.tolist() == [6, 1, 4, 2, 3]
    paths = [tree.path(place) for place in range(5)]
    assert [len(forks) for forks, _ in paths] == [1, 2, 3, 4, 4]  # worked out by hand
    assert sum(2.0 ** -len(forks) for forks, _ in paths) == 1
    assert len({tuple(sides) for _, sides in paths}) == 5
    assert all(forks[0] == tree.forks - 1 for forks, _ in paths)
    assert sum(map(len, tree.levels)) == len(tree.parents) - 1
