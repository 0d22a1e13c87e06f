"""Gradients of both architectures against torch's, negative sampling, and Huffman trees."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch.nn.functional import logsigmoid

from foreword.settings import kinds
from foreword.types import Array
from foreword.vectors.architectures._contract import WordBlock
from foreword.vectors.corpus import WordCorpus
from foreword.vectors.outputs._contract import Vectors, VectorTraining
from foreword.vectors.outputs.negative_sampling import NegativeSampling
from foreword.vectors.tree import HuffmanTree

from .texts import SIZE, is_word, topics

BLOCKS, WORDS, SIDE, NOISE, WIDTH = 2, 4, 2, 3, 5
REACH = WORDS + 2 * SIDE


def random_block() -> WordBlock:
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


def reference_gradients(kind: str, block: WordBlock) -> list[torch.Tensor]:
    """Return the gradients of Mikolov et al. 2013b, equation 4, computed word by word."""
    x, y, noise = (
        torch.from_numpy(v.copy()).requires_grad_()
        for v in (block.context, block.words, block.noise)
    )
    total = torch.zeros(())
    for b, w in np.ndindex(BLOCKS, WORDS):
        window = np.flatnonzero(block.inside[b, w])
        if not len(window):
            continue
        inputs = x[b, window] if kind == "skip_gram" else x[b, window].mean(0, keepdim=True)
        for h in inputs:
            total = total + logsigmoid(h @ y[b, w])
            total = total + block.weight * logsigmoid(-(noise[b] @ h)).sum()
    total.backward()
    return [v.grad for v in (x, y, noise) if v.grad is not None]


@pytest.mark.parametrize("kind", kinds.names("vectors/architectures"))
def test_gradients_equal_those_of_torch(kind: str) -> None:
    block = random_block()
    expected = reference_gradients(kind, block)
    gradients = kinds.load("vectors/architectures", kind)().gradients(block)
    if kind == "cbow":  # every word of a window gets the whole gradient of the mean
        x = torch.from_numpy(block.context)
        sizes = torch.from_numpy(block.inside).sum(2)
        mean = torch.einsum("bwr,brd->bwd", torch.from_numpy(block.inside), x) / sizes.clamp(
            min=1
        ).unsqueeze(2)
        mean.requires_grad_()
        has_context = (sizes > 0).float()
        y, noise = torch.from_numpy(block.words), torch.from_numpy(block.noise)
        positive = logsigmoid((mean * y).sum(2)) * has_context
        negative = logsigmoid(-(mean @ noise.transpose(1, 2))).sum(2) * has_context
        (positive.sum() + block.weight * negative.sum()).backward()
        expected[0] = torch.einsum("bwr,bwd->brd", torch.from_numpy(block.inside), mean.grad)
    for actual, reference in zip(
        (gradients.context, gradients.words, gradients.noise), expected, strict=True
    ):
        np.testing.assert_allclose(actual, reference.numpy(), atol=1e-5)


@pytest.mark.parametrize("kind", kinds.names("vectors/architectures"))
def test_gradients_count_the_predictions_they_sum(kind: str) -> None:
    block = random_block()
    gradients = kinds.load("vectors/architectures", kind)().gradients(block)
    predictions = block.inside.sum() if kind == "skip_gram" else block.inside.any(2).sum()
    assert gradients.words_count.sum() == predictions
    assert gradients.noise_count.sum() == pytest.approx(5 * predictions)
    assert gradients.context_count.sum() == pytest.approx(6 * block.inside.sum())
    assert gradients.context_count.shape == gradients.context.shape[:2]
    assert gradients.noise_count.shape == gradients.noise.shape[:2]


def train(threads: int = 1, **settings: Any) -> Vectors:
    rng = np.random.default_rng(1)
    vectors = Vectors(
        (rng.random((SIZE, 8), dtype=np.float32) - 0.5) / 8, np.zeros((SIZE, 8), np.float32)
    )
    architecture = kinds.load("vectors/architectures", "skip_gram")()
    training = VectorTraining(architecture, 3, 0.0, 2, lambda done: 0.05 * (1 - done), 1, threads)
    words = WordCorpus.of(*topics(), is_word())
    NegativeSampling(**settings).fit(words, vectors, training, lambda done, total: None)
    return vectors


def test_any_number_of_threads_gives_the_same_vectors() -> None:
    one_thread, three_threads = train(), train(threads=3)
    assert np.array_equal(one_thread.inputs, three_threads.inputs)
    assert np.array_equal(one_thread.outputs, three_threads.outputs)


def test_vectors_of_special_tokens_do_not_change() -> None:
    vectors = train()
    assert (vectors.outputs[:2] == 0).all()
    assert np.abs(vectors.inputs[:2]).max() <= 0.5 / 8


def test_frequent_words_do_not_overshoot() -> None:
    # With sixteen words and steps of 2,048, each occurs hundreds of times in a step.
    assert np.abs(train(batch=2048).inputs).max() < 5


def test_noise_is_drawn_by_a_power_of_frequency() -> None:
    counts = np.array([0, 0, 16, 1])
    drawn = np.bincount(NegativeSampling(exponent=0.5)._noise_table(counts), minlength=4)
    assert drawn / drawn.sum() == pytest.approx([0, 0, 0.8, 0.2], abs=1e-5)


def test_a_huffman_tree_has_the_shortest_paths() -> None:
    counts = np.array([0, 5, 1, 1, 3, 0, 9])
    tree = HuffmanTree.of(counts)
    assert tree.words.tolist() == [6, 1, 4, 2, 3]
    paths = [tree.path(index) for index in range(5)]
    assert [len(forks) for forks, _ in paths] == [1, 2, 3, 4, 4]  # computed by hand
    assert sum(2.0 ** -len(forks) for forks, _ in paths) == 1
    assert len({tuple(sides) for _, sides in paths}) == 5
    assert all(forks[0] == tree.forks - 1 for forks, _ in paths)
    assert sum(map(len, tree.levels)) == len(tree.parents) - 1
