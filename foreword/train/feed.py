"""From a step's number to its batches: a pure function, computed ahead in a thread."""

from __future__ import annotations

import contextlib
import queue
import threading
from collections.abc import Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from foreword.data.packing._contract import Packed
from foreword.data.rng import RowRng
from foreword.data.shards import Shards
from foreword.objectives._contract import Objective
from foreword.train.recipe import Recipe
from foreword.types import Array, Batch, Example, Vocab

# Held-out rows draw their corruption from a seed of their own, the same at every evaluation.
HELDOUT_SEED = 0x5EED
DEPTH = 2  # steps whose batches are made before they are asked for


@dataclass(frozen=True)
class Feed:
    """The batches of a run.

    Attributes:
        recipe: says batch size, objective, layout, seed.
        packed: the corpus as rows.
        vocab: of the tokenizer, with the text's counts where the objective wants them.
        micro_batch: sequences computed at once.
    """

    recipe: Recipe
    packed: Packed
    vocab: Vocab
    micro_batch: int

    @classmethod
    def of(
        cls,
        recipe: Recipe,
        shards: Shards,
        vocab: Vocab,
        *,
        for_training: bool = True,
        lanes: int = 0,
    ) -> Feed:
        """The feed of a recipe over shards.

        Held-out text is read once and to its end, in as many lanes as are computed at once or as it
        fills.

        Args:
            recipe: says batch size, objective, layout, seed.
            shards: the documents.
            vocab: of the tokenizer.
            for_training: whether the text is trained on, or held out.
            lanes: of held-out text, at most; 0 for as many as are computed at once.

        Raises:
            UserError: the text is shorter than a row, or the tokenizer lacks a special token.
        """
        rows, micro_batch = recipe.rows_per_step, recipe.train.micro_batch or recipe.rows_per_step
        if not for_training:
            most = min(lanes or micro_batch, shards.tokens_total // recipe.packing.length)
            rows = micro_batch = max(1, most)
        if recipe.objective.wants_counts:
            vocab = replace(vocab, counts=shards.counts(vocab.size))
        once = not for_training
        packed = recipe.packing.open(shards, vocab, recipe.train.seed, rows, once=once)
        return cls(recipe, packed, vocab, micro_batch)

    def micro_batches(self, step: int) -> list[Batch]:
        """The batches that step number `step` (from 0) is made of."""
        size = self.recipe.rows_per_step
        return self.batches(np.arange(step * size, (step + 1) * size))

    def batches(self, numbers: Array) -> list[Batch]:
        """The rows with these places: micro-batches, each in as many parts as there are workers."""
        workers = max(1, self.recipe.train.workers)
        parts = [
            part
            for rows in np.array_split(numbers, -(-len(numbers) // self.micro_batch))
            for part in np.array_split(rows, min(workers, len(rows)))
        ]
        batches = [self.batch(part, self.recipe.train.seed) for part in parts]
        return counted(self.recipe.objective, batches)

    def batch(self, numbers: Array, seed: int) -> Batch:
        """The batch of the rows with these places in the order of training."""
        return self.recipe.layout.arrange(self._example(numbers, seed), self.vocab)

    def epochs(self, steps: int) -> float:
        """How often the text has been read after so many steps."""
        return steps * self.recipe.rows_per_step / self.packed.rows_per_epoch

    @property
    def predicts_all(self) -> bool:
        """Whether the text is all there is, and every token of it is predicted from those before.

        Then losses per token are losses of the text, and bits per byte have a meaning.
        """
        return self._example(np.zeros(1, np.int64), HELDOUT_SEED).source is None

    def _example(self, numbers: Array, seed: int) -> Example:
        rows = self.packed.rows(numbers)
        return self.recipe.objective.corrupt(rows, RowRng(seed, numbers), self.vocab)

    def ahead(self, step: int, depth: int = DEPTH) -> Generator[list[Batch]]:
        """The micro-batches of `step`, `step` + 1, ..., made `depth` steps ahead in a thread."""
        ready: queue.Queue[list[Batch] | BaseException] = queue.Queue(depth)
        is_over = threading.Event()

        def put(item: list[Batch] | BaseException) -> None:
            while not is_over.is_set():
                with contextlib.suppress(queue.Full):
                    ready.put(item, timeout=0.1)
                    return

        def work() -> None:
            try:
                number = step
                while not is_over.is_set():
                    put(self.micro_batches(number))
                    number += 1
            except BaseException as error:  # it is raised again where the batches are used
                put(error)

        thread = threading.Thread(target=work, name="foreword-feed", daemon=True)
        thread.start()
        try:
            while True:
                item = ready.get()
                if isinstance(item, BaseException):
                    raise item
                yield item
        finally:
            is_over.set()
            thread.join()

    def heldout(self, limit: int) -> Iterator[Batch]:
        """The first `limit` rows, the same ones with the same corruption every time."""
        rows = min(limit, self.packed.rows_per_epoch)
        starts = range(0, rows, self.micro_batch)
        pieces = [np.arange(start, min(start + self.micro_batch, rows)) for start in starts]
        # A sum of means wants its counts first, and the batches are too many to be kept.
        counts = count_all(self.recipe.objective, (self.batch(p, HELDOUT_SEED) for p in pieces))
        for piece in pieces:
            yield replace(self.batch(piece, HELDOUT_SEED), counts=counts)


def counted(objective: Objective, batches: Sequence[Batch]) -> list[Batch]:
    """The micro-batches of a step, each with the counts of all of them (`Batch.counts`)."""
    counts = count_all(objective, batches)
    return [replace(batch, counts=counts) for batch in batches]


def count_all(objective: Objective, batches: Iterable[Batch]) -> Array | None:
    """The predictions of each term in all batches, (terms,) float32; None without terms."""
    total: Array | None = None
    for batch in batches:
        counts = objective.count_terms(batch)
        if counts is None:
            return None
        total = counts if total is None else total + counts
    return total


def count_tokens(batch: Batch) -> int:
    """Tokens that a batch makes the model read, source and target."""
    source = 0 if batch.source is None else int(batch.source.ids.size)
    return int(batch.ids.size) + source
