"""Negative sampling: each word is distinguished from noise words."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, fields
from functools import partial
from typing import Any

import numpy as np
import torch
from threadpoolctl import threadpool_limits
from torch import Tensor

from foreword.settings.ranges import Count, Positive, Share
from foreword.types import Array
from foreword.vectors.architectures._contract import BlockGradients, WordBlock
from foreword.vectors.corpus import Windows, WordCorpus
from foreword.vectors.outputs._contract import (
    Progress,
    Scorer,
    VectorOutput,
    Vectors,
    VectorTraining,
    noise_scorer,
)

TABLE_SIZE = 1 << 20  # entries of the table that noise words are drawn from


@dataclass(frozen=True)
class NegativeSampling(VectorOutput):
    """Each prediction is compared with `negatives` noise words, drawn by a power of frequency.

    The words of a block share their noise words, and a step has several blocks, so that all
    computation is products of matrices. Each shared noise word has weight `negatives / noise`, so
    that the noise of a prediction weighs as much as `negatives` words.

    Attributes:
        negatives: noise words for each prediction.
        exponent: the exponent of the word frequency in the noise distribution.
        batch: words in a step; vectors change only at its end.
        block: words that share their noise words.
        noise: noise words drawn for a block.
        most: the maximum of a vector's learning rates summed over its predictions in a step; a
            greater sum is scaled down to it, since frequent words would overshoot.

    Also called: SGNS, negative.
    Reference: Mikolov et al. 2013b, section 2.2.
    Differs from the paper: noise words are shared and predictions batched (Ji et al. 2016, section
    III); the noise may include the predicted word.
    """

    negatives: Count = 5
    exponent: Share = 0.75
    batch: Count = 1024
    block: Count = 32
    noise: Count = 32
    most: Positive = 4.0

    def fit(
        self, corpus: WordCorpus, vectors: Vectors, training: VectorTraining, progress: Progress
    ) -> None:
        """See `VectorOutput`; the same seed gives the same vectors on any number of threads."""
        noise_table = self._noise_table(corpus.counts)
        trainer = _Trainer(self, vectors, training)
        windows = corpus.windows(
            training.epochs, training.window, training.subsample, training.seed
        )
        # The products are small, so each runs on one core and several run at once.
        with threadpool_limits(1, "blas"), ThreadPoolExecutor(training.threads) as pool:
            is_parallel = training.threads > 1
            for n, chunk in enumerate(_prefetch(windows, pool if is_parallel else None)):
                rng = np.random.default_rng([training.seed, n, TABLE_SIZE])
                trainer.train(chunk, noise_table, rng, pool.map if is_parallel else map)
                progress(chunk.progress, 1.0)

    def _noise_table(self, counts: Array) -> Array:
        """Return words, each as often as the noise distribution has it; (TABLE_SIZE,) int64."""
        share = np.where(counts > 0, counts.astype(np.float64) ** self.exponent, 0.0)
        points = (np.arange(TABLE_SIZE) + 0.5) / TABLE_SIZE * share.sum()
        words: Array = np.searchsorted(np.cumsum(share), points)
        return words.astype(np.int64)

    def scorer(self, counts: Array) -> Scorer:
        return noise_scorer(counts, self.exponent)


class _Trainer:
    """Trains vectors, step by step."""

    def __init__(
        self, settings: NegativeSampling, vectors: Vectors, training: VectorTraining
    ) -> None:
        self.settings, self.training, self.vectors = settings, training, vectors
        size = settings.block
        self.tables = [torch.from_numpy(table) for table in (vectors.inputs, vectors.outputs)]
        self.blocks = max(1, settings.batch // size)
        reach = size + 2 * training.window
        # The index in the step of each context word of each block, (blocks, reach).
        self.context_index = np.arange(self.blocks)[:, None] * size + np.arange(reach)
        # How far each context word of a block is after each of its words, (block, reach).
        self.distance = np.arange(reach) - np.arange(size)[:, None] - training.window

    def train(
        self,
        windows: Windows,
        noise_table: Array,
        rng: np.random.Generator,
        apply: Callable[..., Any],
    ) -> None:
        """Train on the words of a chunk; `apply` maps a function over arguments."""
        if not len(windows):
            return
        # Pad to whole steps, and by a window on both sides; padding has no window and is in none.
        batch, side = self.blocks * self.settings.block, self.training.window
        ids, left, right = (_padded(v, batch) for v in (windows.ids, windows.left, windows.right))
        ids = np.concatenate([np.zeros(side, np.int64), ids, np.zeros(side, np.int64)])
        lr = self.training.lr(windows.progress)
        shape = (len(left) // self.settings.block, self.settings.noise)
        noise = noise_table[rng.integers(0, len(noise_table), shape)]
        for n, at in enumerate(range(0, len(left), batch)):
            step = slice(at, at + batch)
            sides = (left[step], right[step])
            step_noise = noise[n * self.blocks : (n + 1) * self.blocks]
            self._step(ids[at : at + batch + 2 * side], sides, step_noise, lr, apply)

    def _step(
        self,
        ids: Array,
        sides: tuple[Array, Array],
        noise: Array,
        lr: float,
        apply: Callable[..., Any],
    ) -> None:
        """Take one step.

        Args:
            ids: the words of the step, with a window on both sides.
            sides: the extents of their windows before and after, (words,) int64 each.
            noise: the noise words of each block, (blocks, noise) int64.
            lr: the learning rate.
            apply: maps a function over arguments.
        """
        window, size = self.training.window, self.settings.block
        context = ids[self.context_index]  # (blocks, reach)
        words = ids[window : len(ids) - window].reshape(-1, size)  # (blocks, words)
        ends = [side.reshape(-1, size, 1) for side in sides]
        # Each thread computes the gradients of some of the blocks.
        parts = np.array_split(np.arange(self.blocks), min(self.training.threads, self.blocks))

        def gradients_of(part: Array) -> BlockGradients:
            lo, hi = int(part[0]), int(part[-1]) + 1
            return self._gradients(
                context[lo:hi], words[lo:hi], noise[lo:hi], [end[lo:hi] for end in ends]
            )

        of_parts = list(apply(gradients_of, parts))
        gradients = BlockGradients(
            *(_joined([getattr(g, f.name) for g in of_parts]) for f in fields(BlockGradients))
        )
        # Move the vectors of both tables.
        outputs = (
            np.concatenate([words.ravel(), noise.ravel()]),
            np.concatenate([_rows(gradients.words), _rows(gradients.noise)]),
            np.concatenate([gradients.words_count.ravel(), gradients.noise_count.ravel()]),
        )
        inputs = (context.ravel(), _rows(gradients.context), gradients.context_count.ravel())
        list(apply(partial(self._move, lr), self.tables, (inputs, outputs)))

    def _gradients(
        self, context: Array, words: Array, noise: Array, ends: list[Array]
    ) -> BlockGradients:
        """Return the gradients of blocks.

        Args:
            context: (blocks, reach) int64.
            words: (blocks, words) int64.
            noise: (blocks, noise) int64.
            ends: the extents of the words' windows before and after, (blocks, words, 1) each.
        """
        left, right = ends
        inside = (self.distance >= -left) & (self.distance <= right) & (self.distance != 0)
        inputs, outputs = self.vectors.inputs, self.vectors.outputs
        block = WordBlock(
            context=inputs.take(context, 0),
            inside=inside.astype(np.float32),
            words=outputs.take(words, 0),
            noise=outputs.take(noise, 0),
            weight=self.settings.negatives / self.settings.noise,
        )
        return self.training.architecture.gradients(block)

    def _move(self, lr: float, table: Tensor, move: tuple[Array, Array, Array]) -> None:
        """Add gradients to rows of a table, scaled down for rows with too many predictions.

        Args:
            lr: the learning rate.
            table: (vocab, d_model).
            move: the ids of the rows, (rows,); their gradients, (rows, d_model); the number of
                predictions in each, (rows,).
        """
        ids, gradients, counts = move
        sums = np.bincount(ids, counts, minlength=len(table))[ids] * lr
        exceeds = np.flatnonzero(sums > self.settings.most)
        gradients[exceeds] *= (self.settings.most / sums[exceeds]).astype(np.float32)[:, None]
        table.index_add_(0, torch.from_numpy(ids), torch.from_numpy(gradients), alpha=lr)


def _padded(values: Array, batch: int) -> Array:
    """Return values padded with zeros to whole batches."""
    return np.pad(values, (0, -len(values) % batch))


def _joined(parts: list[Array]) -> Array:
    return parts[0] if len(parts) == 1 else np.concatenate(parts)


def _rows(gradients: Array) -> Array:
    return gradients.reshape(-1, gradients.shape[-1])


def _prefetch(windows: Iterable[Windows], pool: ThreadPoolExecutor | None) -> Iterator[Windows]:
    """Yield the windows; with a pool, the next ones are prepared while these are used."""
    if pool is None:
        yield from windows
        return
    source = iter(windows)
    future = pool.submit(next, source, None)
    while (chunk := future.result()) is not None:
        future = pool.submit(next, source, None)
        yield chunk
