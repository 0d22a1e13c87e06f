"""Examples packed into rows: several share one, kept apart by the document mask.

For a model whose attention cannot keep them apart (Linformer), each row holds one example.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from torch import Tensor

from foreword.data.rows import positions_within
from foreword.layouts.decoder import next_token
from foreword.layouts.encoder import document_mask
from foreword.nn.masks import CausalMask
from foreword.train.feed import count_tokens
from foreword.tuning.input_template import InputTemplate
from foreword.tuning.network import Network
from foreword.tuning.tasks._contract import EncodedExample
from foreword.types import Array, Batch, Tokens, to_tensors

# Rows are at least this wide, if the template allows, so that short examples share them.
WIDTH = 128
CHUNK = 256  # examples packed together when no head learns from them
WINDOW = 16 * CHUNK  # examples sorted by length, so that chunks are of similar ones
TOKENS_AT_ONCE = {"cpu": 1 << 14, "cuda": 1 << 16}


@dataclass(frozen=True)
class PooledBatch:
    """Rows, and the positions whose states the head reads.

    Attributes:
        batch: the backbone's input.
        rows: the row of each pooled position, (pooled,) int64.
        columns: the column of each, (pooled,) int64.
        numbers: the example that each output belongs to, (outputs,) int64.
        targets: the target of each output, (outputs,).
        lengths: how many consecutive pooled positions are averaged for each output, (outputs,)
            int64; None if each position has an output of its own.
    """

    batch: Batch
    rows: Any
    columns: Any
    numbers: Any
    targets: Any
    lengths: Any = None

    @property
    def token_count(self) -> int:
        """The number of tokens that the backbone reads, before `to`."""
        return count_tokens(self.batch)

    def to(self, device: Any) -> PooledBatch:
        """Return the batch as tensors on `device`."""
        return to_tensors(self, device)

    def features(self, network: Network) -> Tensor:
        """Return the head's input, (layers, outputs, width) float32."""
        hidden = network.run_backbone(self.batch)
        return network.features(hidden, self.rows, self.columns, self.lengths)

    def features_and_loss(self, network: Network) -> tuple[Tensor, Tensor | float]:
        """Return the head's input and, with a `token_head`, the auxiliary loss."""
        hidden = network.run_backbone(self.batch)
        features = network.features(hidden, self.rows, self.columns, self.lengths)
        if network.token_head is None:
            return features, 0.0
        return features, network.token_head.loss(hidden, self.batch).total


class PackedExamples(ABC):
    """The contract of encoded examples that are packed into rows, batch by batch.

    Attributes:
        encoded: the examples.
        targets: the target or targets of each example.
        template: the template they were encoded with.
        auxiliary: weight of an auxiliary language-model loss; 0 for none.
    """

    encoded: Sequence[EncodedExample]
    targets: Any
    template: InputTemplate
    auxiliary: float

    def __len__(self) -> int:
        return len(self.encoded)

    @property
    @abstractmethod
    def lengths(self) -> Array:
        """The number of tokens of each example, (examples,) int64."""

    @abstractmethod
    def batches(self, numbers: Array, device: str) -> Iterator[PooledBatch]:
        """Yield the examples `numbers`, packed into rows, at most TOKENS_AT_ONCE tokens a batch."""

    def chunks(self) -> Iterator[Array]:
        """Yield the numbers of all examples, a chunk at a time, by length within each window.

        The chunks of a window depend on its examples alone, so that a file read by windows gives
        the same outputs, bit for bit, as the file as a whole.
        """
        lengths = self.lengths
        for start in range(0, len(self), WINDOW):
            numbers = start + np.argsort(lengths[start : start + WINDOW], kind="stable")
            yield from np.split(numbers, range(CHUNK, len(numbers), CHUNK))

    def scoring_batches(self, device: str) -> Iterator[PooledBatch]:
        """Yield every example once, in the batches used for scoring."""
        for chunk in self.chunks():
            yield from self.batches(chunk, device)


@dataclass(frozen=True)
class PooledExamples(PackedExamples):
    """Encoded examples with their targets.

    Attributes:
        encoded: the examples.
        targets: the target of each example, (examples,), or of each of its outputs, a list of
            (outputs,).
        template: the template they were encoded with.
        auxiliary: weight of the language-model loss of each example's tokens, averaged over them,
            beside the task's; 0 for none.
    """

    encoded: Sequence[EncodedExample]
    targets: Any
    template: InputTemplate
    auxiliary: float = 0.0

    @property
    def lengths(self) -> Array:
        """The number of tokens of each example, (examples,) int64."""
        return np.asarray([len(example.ids) for example in self.encoded], np.int64)

    def batches(self, numbers: Array, device: str) -> Iterator[PooledBatch]:
        """Yield the examples `numbers`, packed into rows, at most TOKENS_AT_ONCE tokens a batch.

        On CUDA the rows have one width and their count is a power of two, since kernels are
        compiled per shape; elsewhere they are as narrow as the examples allow.
        """
        # Assign examples to rows.
        lengths = [len(self.encoded[n].ids) for n in numbers]
        is_cuda = device == "cuda"
        width = self.template.length if is_cuda else max(*lengths, min(WIDTH, self.template.length))
        alone = [[k] for k in range(len(numbers))]
        shared = first_fit(lengths, width) if self.template.shares_rows else alone
        rows = [[int(numbers[k]) for k in row] for row in shared]
        # Batches of as many rows as fit in memory.
        at_once = max(1, TOKENS_AT_ONCE.get(device, 1 << 14) // width)
        for start in range(0, len(rows), at_once):
            part = rows[start : start + at_once]
            if is_cuda:
                part += [[]] * ((1 << (len(part) - 1).bit_length()) - len(part))
            else:
                width = max(sum(len(self.encoded[n].ids) for n in row) for row in part)
            yield self._pack(part, width)

    def _pack(self, rows: list[list[int]], width: int) -> PooledBatch:
        shape = (len(rows), width)
        ids, segments = np.zeros(shape, np.int64), np.zeros(shape, np.int64)
        documents = np.full(shape, -1, np.int64)
        weights = np.zeros(shape, np.float32)  # a text's tokens but the first are predicted
        positions: list[tuple[int, int]] = []  # row, column
        numbers: list[int] = []  # of each output
        lengths: list[int] = []
        targets: list[Array] = []
        # Place the examples in their rows, and record where each is pooled.
        for r, row in enumerate(rows):
            column = 0
            for d, n in enumerate(row):
                example = self.encoded[n]
                columns_of = slice(column, column + len(example.ids))
                ids[r, columns_of], segments[r, columns_of] = example.ids, example.segments
                documents[r, columns_of] = d
                weights[r, columns_of] = self.auxiliary / max(len(example.ids) - 1, 1)
                first = column if self.template.start is None else d
                positions += [(r, first + int(position)) for position in example.pooled_positions]
                targets.append(np.atleast_1d(self.targets[n]))
                count = len(example.pooled_positions)
                numbers += [n] if example.is_pooled else [n] * count
                lengths += [count] if example.is_pooled else [1] * count
                column = columns_of.stop
        # The batch, with a decoder if the model has one.
        position_rows, columns = np.asarray(positions, np.int64).T.copy()
        batch = self._batch(Tokens(ids, documents, positions_within(documents), segments), weights)
        if self.template.start is not None:
            batch = _with_decoder(batch, documents, self.template.start, max(map(len, rows)))
        return PooledBatch(
            batch,
            position_rows,
            columns,
            np.asarray(numbers, np.int64),
            np.concatenate(targets),
            np.asarray(lengths, np.int64) if len(lengths) < len(positions) else None,
        )

    def _batch(self, tokens: Tokens, weights: Array) -> Batch:
        """Return the backbone's input; with `auxiliary`, each token is a target of its weight."""
        documents = tokens.documents
        mask = document_mask(documents, documents)
        mask = CausalMask() & mask if self.template.is_causal else mask
        segments = tokens.segments if self.template.has_segments else None
        if not self.auxiliary:
            return Batch(tokens.ids, tokens.positions, mask, segments=segments)
        return replace(next_token(tokens, weights, mask), segments=segments)


def _with_decoder(source: Batch, documents: Array, start: int, width: int) -> Batch:
    """Return the decoder's batch: one start token per example, which sees that example's source.

    Rows with fewer examples are filled with start tokens of their first example: unlike padding,
    these always see some key, and nothing reads their states.
    """
    shape = (len(documents), width)
    starts = np.arange(width)[None, :].repeat(len(documents), axis=0)
    starts = np.where(starts <= documents.max(axis=1, keepdims=True), starts, documents[:, :1])
    return Batch(
        ids=np.full(shape, start, np.int64),
        positions=np.zeros(shape, np.int64),
        mask=CausalMask() & document_mask(starts, starts),
        source=source,
        cross_mask=document_mask(starts, documents),
    )


def first_fit(lengths: Sequence[int], width: int) -> list[list[int]]:
    """Assign each item, in order, to the first row of `width` with room for it (first fit)."""
    rows: list[list[int]] = []
    room: list[int] = []
    for n, length in enumerate(lengths):
        r = next((r for r, left in enumerate(room) if length <= left), len(rows))
        if r == len(rows):
            rows.append([])
            room.append(width)
        rows[r].append(n)
        room[r] -= length
    return rows
