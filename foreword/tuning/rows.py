"""Examples packed into rows: several share one, kept apart by the document mask.

For a model whose attention cannot keep them apart (Linformer), each row holds one example.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain
from typing import Any

import numpy as np
from torch import Tensor

from foreword.data.rows import positions_within
from foreword.layouts.decoder import next_token
from foreword.layouts.encoder import document_mask
from foreword.nn.masks import CausalMask
from foreword.train.feed import count_tokens
from foreword.tuning.encoded import first_inputs
from foreword.tuning.input_template import InputTemplate
from foreword.tuning.network import Network
from foreword.tuning.tasks._contract import EncodedExample, LossUnit
from foreword.types import Array, Batch, ReadPositions, Tokens, to_tensors

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
        numbers: the example that each output belongs to, (outputs,) int64, ascending.
        targets: the target of each output, (outputs,).
        lengths: how many consecutive pooled positions are reduced to one for each output,
            (outputs,) int64; None if each position has an output of its own.
        read: the pooled positions of each row and, where each input has one, which of them it is,
            (pooled,) int64; None if inputs have several.
    """

    batch: Batch
    rows: Any
    columns: Any
    numbers: Any
    targets: Any
    lengths: Any = None
    read: tuple[ReadPositions, Any] | None = None

    @property
    def token_count(self) -> int:
        """The number of tokens that the backbone reads, before `to`."""
        return count_tokens(self.batch)

    def to(self, device: Any) -> PooledBatch:
        """Return the batch as tensors on `device`."""
        return to_tensors(self, device)

    def features(self, network: Network) -> Tensor:
        """Return the head's input, (layers, outputs, width) float32."""
        if self.read is not None and network.selects_positions:
            positions, index = self.read
            hidden = network.run_backbone(self.batch.with_part(positions))
            return network.features(hidden, self.rows, index, self.lengths)
        hidden = network.run_backbone(self.batch)
        return network.features(hidden, self.rows, self.columns, self.lengths)

    def features_and_loss(self, network: Network) -> tuple[Tensor, Tensor | float]:
        """Return the head's input and, with a `token_head`, the auxiliary loss."""
        if network.token_head is None:
            return self.features(network), 0.0
        hidden = network.run_backbone(self.batch)
        features = network.features(hidden, self.rows, self.columns, self.lengths)
        return features, network.token_head.loss(hidden, self.batch).total


class PackedExamples(ABC):
    """The contract of encoded examples that are packed into rows, batch by batch.

    Attributes:
        encoded: the examples.
        targets: the target or targets of each example.
        template: the template they were encoded with.
        auxiliary: weight of an auxiliary language-model loss; 0 for none.
        loss_unit: what no micro-batch parts; an `input` stands for itself as an example.
    """

    encoded: Sequence[EncodedExample]
    targets: Any
    template: InputTemplate
    auxiliary: float
    loss_unit: LossUnit

    def __len__(self) -> int:
        return len(self._begins) - 1

    @cached_property
    def _begins(self) -> Array:
        """Where the inputs of each example begin, and where the last ones end, (examples + 1,)."""
        is_joint = self.loss_unit != "input"
        return first_inputs(self.encoded) if is_joint else np.arange(len(self.encoded) + 1)

    @abstractmethod
    def _length(self, number: int) -> int:
        """Return the number of tokens of an input."""

    @cached_property
    def _sizes(self) -> list[int]:
        """The number of tokens of each input."""
        return [self._length(n) for n in range(len(self.encoded))]

    @cached_property
    def lengths(self) -> Array:
        """The number of tokens of each example, (examples,) int64."""
        tokens = np.asarray(self._sizes, np.int64)
        return np.add.reduceat(tokens, self._begins[:-1]) if len(self) else tokens

    def _examples_of(self, inputs: Array) -> Array:
        """Return the number of the example that each input belongs to."""
        return np.searchsorted(self._begins, inputs, side="right") - 1

    def _rows(self, numbers: Array, width: int, device: str) -> Iterator[list[list[int]]]:
        """Yield rows of inputs of the examples `numbers`, as many at once as fit in memory."""
        examples = [list(range(self._begins[n], self._begins[n + 1])) for n in numbers]
        width = max(width, *(self._sizes[n] for inputs in examples for n in inputs))
        at_once = max(1, TOKENS_AT_ONCE.get(device, 1 << 14) // width)
        together = [list(chain.from_iterable(examples))]
        for inputs in _undivided(examples, at_once) if self.loss_unit == "example" else together:
            alone = [[k] for k in range(len(inputs))]
            shared = first_fit([self._sizes[n] for n in inputs], width)
            packed = shared if self.template.shares_rows else alone
            rows = [[inputs[k] for k in row] for row in packed]
            size = at_once if self.loss_unit == "input" else len(rows)
            for start in range(0, len(rows), size):
                yield rows[start : start + size]

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
        encoded: the inputs of the examples.
        targets: the target of each input, (inputs,), or of each of its outputs, a sequence of
            (outputs,).
        template: the template they were encoded with.
        auxiliary: weight of the language-model loss of each example's tokens, averaged over them,
            beside the task's; 0 for none.
        loss_unit: see `PackedExamples`.
    """

    encoded: Sequence[EncodedExample]
    targets: Any
    template: InputTemplate
    auxiliary: float = 0.0
    loss_unit: LossUnit = "input"

    def batches(self, numbers: Array, device: str) -> Iterator[PooledBatch]:
        """Yield the examples `numbers`, packed into rows, at most TOKENS_AT_ONCE tokens a batch.

        On CUDA the rows have one width and their count is a power of two, since kernels are
        compiled per shape; elsewhere they are as narrow as the examples allow.
        """
        length, is_cuda = self.template.length, device == "cuda"
        for rows in self._rows(numbers, length if is_cuda else min(WIDTH, length), device):
            if is_cuda:
                empty = (1 << (len(rows) - 1).bit_length()) - len(rows)
                yield self._pack([*rows, *[[]] * empty], length)
            else:
                yield self._pack(rows, max(sum(self._sizes[n] for n in row) for row in rows))

    def _length(self, number: int) -> int:
        return len(self.encoded[number].ids)

    def _pack(self, rows: list[list[int]], width: int) -> PooledBatch:
        shape = (len(rows), width)
        ids, segments = np.zeros(shape, np.int64), np.zeros(shape, np.int64)
        documents = np.full(shape, -1, np.int64)
        weights = np.zeros(shape, np.float32)  # a text's tokens but the first are predicted
        places: dict[int, tuple[int, int]] = {}  # of each input: row, first column
        # Place the inputs in their rows.
        for r, row in enumerate(rows):
            column = 0
            for d, n in enumerate(row):
                example = self.encoded[n]
                columns_of = slice(column, column + len(example.ids))
                ids[r, columns_of], segments[r, columns_of] = example.ids, example.segments
                documents[r, columns_of] = d
                weights[r, columns_of] = self.auxiliary / max(len(example.ids) - 1, 1)
                places[n] = (r, column if self.template.start is None else d)
                column = columns_of.stop
        # The batch, with a decoder if the model has one.
        batch = self._batch(Tokens(ids, documents, positions_within(documents), segments), weights)
        if self.template.start is not None:
            batch = _with_decoder(batch, documents, self.template.start, max(map(len, rows)))
        return self._pooled(batch, places)

    def _pooled(self, batch: Batch, places: Mapping[int, tuple[int, int]]) -> PooledBatch:
        """Return a batch with the pooled positions of its inputs, in the order of the inputs."""
        inputs = sorted(places)
        rows, columns, targets, counts = [], [], [], []
        for n in inputs:
            row, first = places[n]
            positions = self.encoded[n].pooled_positions
            rows.append(np.full(len(positions), row))
            columns.append(first + positions)
            targets.append(np.atleast_1d(self.targets[n]))
            counts.append(len(positions))
        is_pooled = self.encoded[inputs[0]].is_pooled
        examples = self._examples_of(np.asarray(inputs))
        numbers = examples if is_pooled else np.repeat(examples, counts)
        lengths = np.asarray(counts, np.int64)
        at_rows, at_columns = np.concatenate(rows), np.concatenate(columns)
        return PooledBatch(
            batch,
            at_rows,
            at_columns,
            numbers,
            np.concatenate(targets),
            lengths if is_pooled and (lengths > 1).any() else None,
            _read_positions(len(batch.ids), at_rows, at_columns) if (lengths == 1).all() else None,
        )

    def _batch(self, tokens: Tokens, weights: Array) -> Batch:
        """Return the backbone's input; with `auxiliary`, each token is a target with its weight."""
        documents = tokens.documents
        mask = document_mask(documents, documents)
        mask = CausalMask() & mask if self.template.is_causal else mask
        segments = tokens.segments if self.template.has_segments else None
        if not self.auxiliary:
            return Batch(tokens.ids, tokens.positions, mask, segments=segments)
        return replace(next_token(tokens, weights, mask), segments=segments)


def _read_positions(count: int, rows: Array, columns: Array) -> tuple[ReadPositions, Array]:
    """Return the positions to read in each of `count` rows, and each one's index in its row."""
    order = np.argsort(rows, kind="stable")
    in_row = np.bincount(rows, minlength=count)
    first = np.cumsum(in_row) - in_row
    index = np.empty_like(rows)
    index[order] = np.arange(len(rows)) - first[rows[order]]
    positions = np.zeros((count, int(in_row.max())), np.int64)
    positions[rows, index] = columns
    return ReadPositions(positions), index


def _with_decoder(source: Batch, documents: Array, start: int, width: int) -> Batch:
    """Return the decoder's batch: one start token per example, which sees that example's source."""
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


def _undivided(examples: Sequence[list[int]], most: int) -> Iterator[list[int]]:
    """Yield the inputs of whole examples, at most `most` unless a single example has more."""
    inputs: list[int] = []
    for example_inputs in examples:
        if inputs and len(inputs) + len(example_inputs) > most:
            yield inputs
            inputs = []
        inputs = inputs + example_inputs
    yield inputs


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
