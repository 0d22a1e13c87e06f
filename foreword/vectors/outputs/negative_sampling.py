"""Words told from noise: negative sampling."""

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

from foreword.ranges import Count, Positive, Ranged, Share
from foreword.types import Array
from foreword.vectors.architectures._contract import BlockGradients, WordBlock
from foreword.vectors.outputs._contract import (
    Progress,
    Scorer,
    Vectors,
    VectorTraining,
    noise_scorer,
)
from foreword.vectors.words import Windows, WordCorpus

DRAWS = 1 << 20  # places of the table that noise is drawn from


@dataclass(frozen=True)
class NegativeSampling(Ranged):
    """Each prediction is held against `negatives` words drawn by their frequency to a power.

    The words of a block share their noise, and several blocks make a step, so that all of it is
    products of matrices. A noise word shared by all counts for less than one, so that each
    prediction is held against `negatives` of them in sum.

    Attributes:
        negatives: noise words for each prediction.
        exponent: of the frequency of words as noise.
        batch: words in a step; vectors stay as they are until its end.
        block: words that share their noise.
        noise: noise words drawn for a block.
        most: a vector's learning rate over all its predictions in a step; where they come to more
            they are scaled to it. Frequent words would overshoot otherwise.

    Reference: Mikolov et al. 2013b, section 2.2.
    Differs from the paper: noise is shared and steps are taken together (Ji et al. 2016, section
    III); noise may hold the word that is predicted.
    """

    negatives: Count = 5
    exponent: Share = 0.75
    batch: Count = 1024
    block: Count = 32
    noise: Count = 32
    most: Positive = 4.0

    def fit(
        self, words: WordCorpus, vectors: Vectors, course: VectorTraining, progress: Progress
    ) -> None:
        """See `VectorOutput`; the same seed gives the same vectors on any number of threads."""
        noise = self._noise_of(words.counts)
        step = _Step(self, vectors, course)
        windows = words.windows(course.epochs, course.window, course.subsample, course.seed)
        # The products are small: one core each, and several of them at once.
        with threadpool_limits(1, "blas"), ThreadPoolExecutor(course.threads) as pool:
            for n, some in enumerate(_ahead(windows, pool if course.threads > 1 else None)):
                rng = np.random.default_rng([course.seed, n, DRAWS])
                step.take_all(some, noise, rng, pool.map if course.threads > 1 else map)
                progress(some.progress, 1.0)

    def _noise_of(self, counts: Array) -> Array:
        """Words, each as often as it is noise; (DRAWS,) int64."""
        share = np.where(counts > 0, counts.astype(np.float64) ** self.exponent, 0.0)
        places = (np.arange(DRAWS) + 0.5) / DRAWS * share.sum()
        words: Array = np.searchsorted(np.cumsum(share), places)
        return words.astype(np.int64)

    def scorer(self, counts: Array) -> Scorer:
        """See `VectorOutput`."""
        return noise_scorer(counts, self.exponent)


class _Step:
    """Takes the steps."""

    def __init__(
        self, settings: NegativeSampling, vectors: Vectors, course: VectorTraining
    ) -> None:
        self.settings, self.course, self.vectors = settings, course, vectors
        size = settings.block
        self.tables = [torch.from_numpy(table) for table in (vectors.inputs, vectors.outputs)]
        self.blocks = max(1, settings.batch // size)
        reach = size + 2 * course.window
        self.within = np.arange(self.blocks)[:, None] * size + np.arange(reach)
        # How far each word in reach of a block stands behind each word of it.
        self.behind = np.arange(reach) - np.arange(size)[:, None] - course.window

    def take_all(
        self, windows: Windows, noise: Array, rng: np.random.Generator, apply: Callable[..., Any]
    ) -> None:
        """Takes steps over the words of a chunk."""
        if not len(windows):
            return
        batch, side = self.blocks * self.settings.block, self.course.window
        ids, left, right = (_padded(v, batch) for v in (windows.ids, windows.left, windows.right))
        ids = np.concatenate([np.zeros(side, np.int64), ids, np.zeros(side, np.int64)])
        lr = self.course.lr(windows.progress)
        drawn = rng.integers(0, len(noise), (len(left) // self.settings.block, self.settings.noise))
        drawn = noise[drawn]
        for n, at in enumerate(range(0, len(left), batch)):
            here = slice(at, at + batch)
            places = (ids[at : at + batch + 2 * side], left[here], right[here])
            self._take(places, drawn[n * self.blocks : (n + 1) * self.blocks], lr, apply)

    def _take(
        self, places: tuple[Array, Array, Array], drawn: Array, lr: float, apply: Callable[..., Any]
    ) -> None:
        ids, left, right = places
        side, size = self.course.window, self.settings.block
        context = ids[self.within]  # (blocks, reach)
        words = ids[side : len(ids) - side].reshape(-1, size)  # (blocks, words)
        ends = [v.reshape(-1, size, 1) for v in (left, right)]
        parts = np.array_split(np.arange(self.blocks), min(self.course.threads, self.blocks))

        def of(part: Array) -> BlockGradients:
            lo, hi = int(part[0]), int(part[-1]) + 1
            return self._steps(context[lo:hi], words[lo:hi], drawn[lo:hi], ends, slice(lo, hi))

        found = list(apply(of, parts))
        steps = BlockGradients(
            *(_joined([getattr(s, f.name) for s in found]) for f in fields(BlockGradients))
        )
        outputs = (
            np.concatenate([words.ravel(), drawn.ravel()]),
            np.concatenate([_rows(steps.words), _rows(steps.noise)]),
            np.concatenate([steps.words_count.ravel(), steps.noise_count.ravel()]),
        )
        inputs = (context.ravel(), _rows(steps.context), steps.context_count.ravel())
        list(apply(partial(self._move, lr), self.tables, (inputs, outputs)))

    def _steps(
        self, context: Array, words: Array, drawn: Array, ends: list[Array], where: slice
    ) -> BlockGradients:
        left, right = (end[where] for end in ends)
        inside = (self.behind >= -left) & (self.behind <= right) & (self.behind != 0)
        inputs, outputs = self.vectors.inputs, self.vectors.outputs
        block = WordBlock(
            context=inputs.take(context, 0),
            inside=inside.astype(np.float32),
            words=outputs.take(words, 0),
            noise=outputs.take(drawn, 0),
            weight=self.settings.negatives / self.settings.noise,
        )
        return self.course.architecture.steps(block)

    def _move(self, lr: float, table: Tensor, move: tuple[Array, Array, Array]) -> None:
        """Adds steps to the rows of a table, shortened where one takes part in too many.

        Args:
            lr: to multiply them with.
            table: (vocab, d_model).
            move: the rows; their steps, (rows, d_model); how many predictions each sums up.
        """
        ids, steps, counts = move
        sums = np.bincount(ids, counts, minlength=len(table))[ids] * lr
        long = np.flatnonzero(sums > self.settings.most)
        steps[long] *= (self.settings.most / sums[long]).astype(np.float32)[:, None]
        table.index_add_(0, torch.from_numpy(ids), torch.from_numpy(steps), alpha=lr)


def _padded(values: Array, batch: int) -> Array:
    """Zeros behind, up to whole batches."""
    return np.pad(values, (0, -len(values) % batch))


def _joined(parts: list[Array]) -> Array:
    return parts[0] if len(parts) == 1 else np.concatenate(parts)


def _rows(steps: Array) -> Array:
    return steps.reshape(-1, steps.shape[-1])


def _ahead(windows: Iterable[Windows], pool: ThreadPoolExecutor | None) -> Iterator[Windows]:
    """The windows, the next ones made beside the work on these."""
    if pool is None:
        yield from windows
        return
    source = iter(windows)
    coming = pool.submit(next, source, None)
    while (some := coming.result()) is not None:
        coming = pool.submit(next, source, None)
        yield some
