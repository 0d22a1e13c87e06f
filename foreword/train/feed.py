"""The batches of a run: a pure function of the step's number, computed ahead in a thread."""

from __future__ import annotations

import contextlib
import queue
import threading
from collections.abc import Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from foreword.data.packing._contract import Packed
from foreword.data.rng import RowRng
from foreword.layouts._contract import Layout
from foreword.objectives._contract import Objective
from foreword.types import Array, Batch, Example, ReadWhole, TermCounts, Vocab

# Held-out rows draw their corruption from a seed of their own, the same at every evaluation.
HELDOUT_SEED = 0x5EED
DEPTH = 2  # steps prepared ahead


@dataclass(frozen=True)
class Feed:
    """The batches of a run: a pure function of the step's number.

    Attributes:
        packed: the corpus as rows.
        objective: what to predict.
        layout: how an example is arranged for the model.
        vocab: the vocabulary of the tokenizer, with the text's counts if the objective needs them.
        rows_per_step: sequences of a step.
        micro_batch: sequences computed at once.
        workers: threads that share a micro-batch.
        seed: the seed of corruption.
        rank: number of this process among those that share a step.
        processes: how many there are.
        reads_whole: whether no inputs are hidden that only training hides, as on held-out text.
    """

    packed: Packed
    objective: Objective
    layout: Layout
    vocab: Vocab
    rows_per_step: int
    micro_batch: int
    workers: int
    seed: int
    rank: int = 0
    processes: int = 1
    reads_whole: bool = False
    _heldout_counts: dict[int, Array | None] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )  # by limit

    def micro_batches(self, step: int) -> list[Batch]:
        """Return this process's micro-batches of a step, counted from 0."""
        return self._counted([step * self.rows_per_step + piece for piece in self.pieces])

    @property
    def pieces(self) -> list[Array]:
        """The rows of a step that are this process's, from 0, by micro-batch.

        Processes have rows side by side, so that a stream of text stays with one, and all have as
        many micro-batches. They are those of a single process, if these can be dealt out evenly.
        """
        rows = np.arange(self.rows_per_step)
        if self.processes == 1:
            return self._split(rows)
        by_process = np.array_split(rows, self.processes)
        of_a_worker = -(-self.micro_batch // self.workers)
        number = min(-(-len(by_process[0]) // of_a_worker), len(by_process[-1]))
        return np.array_split(by_process[self.rank], number)

    def batches(self, numbers: Array) -> list[Batch]:
        """Return these rows as micro-batches, each split among the workers."""
        return self._counted(self._split(numbers))

    def _split(self, numbers: Array) -> list[Array]:
        return [
            piece
            for rows in np.array_split(numbers, -(-len(numbers) // self.micro_batch))
            for piece in np.array_split(rows, min(self.workers, len(rows)))
        ]

    def _counted(self, pieces: Sequence[Array]) -> list[Batch]:
        return counted(self.objective, [self.batch(piece, self.seed) for piece in pieces])

    def batch(self, numbers: Array, seed: int) -> Batch:
        """Return the batch of the rows with these numbers in the order of training."""
        return self.layout.arrange(self.example(numbers, seed), self.vocab)

    def epochs(self, steps: int) -> float:
        """Return the number of times the text has been read after `steps` steps."""
        return steps * self.rows_per_step / self.packed.rows_per_epoch

    @property
    def predicts_all(self) -> bool:
        """Whether every token of the text is predicted from those before it.

        Losses per token are then losses of the text, and bits per byte are defined. They are bounds
        where the order of prediction is any (`Prediction.any_order`).
        """
        if self.objective.predicts.any_order:
            return True
        return self.example(np.zeros(1, np.int64), HELDOUT_SEED).source is None

    def example(self, numbers: Array, seed: int) -> Example:
        """Return the example of these rows, before it is arranged as a batch."""
        rows = self.packed.rows(numbers)
        rows = rows.with_part(ReadWhole()) if self.reads_whole else rows
        return self.objective.corrupt(rows, RowRng(seed, numbers), self.vocab)

    def count_tokens(self, batches: Sequence[Batch]) -> int:
        """Return the number of tokens the model reads in these batches, without padding."""
        return sum(map(count_tokens, batches))

    def ahead(self, step: int, depth: int = DEPTH) -> Generator[list[Batch]]:
        """Yield the micro-batches of `step`, `step` + 1, ..., prepared ahead in a thread."""
        # The thread fills a queue of at most `depth` steps until this generator is closed.
        prepared: queue.Queue[list[Batch] | BaseException] = queue.Queue(depth)
        is_over = threading.Event()

        def work() -> None:
            try:
                number = step
                while not is_over.is_set():
                    prepared.put(self.micro_batches(number))
                    number += 1
            except BaseException as error:  # raised again by the consumer
                prepared.put(error)

        # The consumer empties the queue, and raises the thread's error.
        thread = threading.Thread(target=work, name="foreword-feed", daemon=True)
        thread.start()
        try:
            while True:
                item = prepared.get()
                if isinstance(item, BaseException):
                    raise item
                yield item
        finally:
            is_over.set()
            with contextlib.suppress(queue.Empty):  # the thread may wait for room
                while True:
                    prepared.get_nowait()
            thread.join()

    def heldout(self, limit: int, draws: int = 1) -> Iterator[Batch]:
        """Yield the first `limit` rows, with the same corruption every time.

        Args:
            limit: the most rows.
            draws: how often the rows are corrupted, each time by other random numbers.
        """
        rows = min(limit, self.packed.rows_per_epoch)
        starts = range(0, rows, self.micro_batch)
        pieces = [np.arange(start, min(start + self.micro_batch, rows)) for start in starts]
        # A sum of means needs its counts first, the same every time. The batches may be too many to
        # keep in memory, so the first time they are built twice.
        if limit not in self._heldout_counts:
            batches = (self.batch(piece, HELDOUT_SEED) for piece in pieces)
            self._heldout_counts[limit] = count_all(self.objective, batches)
        counts = self._heldout_counts[limit]
        for seed in range(HELDOUT_SEED, HELDOUT_SEED + draws):
            for piece in pieces:
                batch = self.batch(piece, seed)
                yield batch if counts is None else batch.with_part(TermCounts(counts))


def counted(objective: Objective, batches: Sequence[Batch]) -> list[Batch]:
    """Return the micro-batches of a step, each with the counts of all (`TermCounts`)."""
    counts = count_all(objective, batches)
    if counts is None:
        return list(batches)
    return [batch.with_part(TermCounts(counts)) for batch in batches]


def count_all(objective: Objective, batches: Iterable[Batch]) -> Array | None:
    """Return the number of predictions of each term, (terms,) float32; None without terms."""
    total: Array | None = None
    for batch in batches:
        counts = objective.count_terms(batch)
        if counts is None:
            return None
        total = counts if total is None else total + counts
    return total


def count_tokens(batch: Batch) -> int:
    """Return the number of tokens the model reads, source and target; padding is not counted."""
    source = 0 if batch.source is None else count_tokens(batch.source)
    if batch.documents is None:
        return int(batch.ids.size) + source
    return int((batch.documents >= 0).sum()) + source
