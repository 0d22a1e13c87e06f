"""Examples packed into rows: several share one, kept apart by the document mask.

For a model whose attention cannot keep them apart (Linformer), each row holds one example.

The windows of a text are in one batch, since they have one output. A step of training reads at
most `windows.STEP_WINDOWS` of a text; scoring and prediction read all, TOKENS_AT_ONCE tokens at a
time, so that a text of any length fits in memory.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain
from typing import Any

import numpy as np
import torch
from torch import Tensor

from foreword.data.rows import positions_within
from foreword.layouts.decoder import next_token
from foreword.layouts.encoder import document_mask
from foreword.nn.masks import CausalMask
from foreword.train.feed import count_tokens
from foreword.tuning.encoded import first_inputs, first_windows, output_counts
from foreword.tuning.input_template import InputTemplate
from foreword.tuning.network import Network
from foreword.tuning.tasks._contract import EncodedExample, LossUnit
from foreword.tuning.windows import drawn
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
        windows: how many consecutive states, of the windows of a text, are reduced to one for each
            output, (outputs,) int64; None if each has an output of its own.
        further: further rows, whose states follow; their outputs are described here.
    """

    batch: Batch
    rows: Any
    columns: Any
    numbers: Any
    targets: Any
    lengths: Any = None
    read: tuple[ReadPositions, Any] | None = None
    windows: Any = None
    further: tuple[PooledBatch, ...] = ()

    @property
    def token_count(self) -> int:
        """The number of tokens that the backbone reads, before `to`."""
        return count_tokens(self.batch) + sum(part.token_count for part in self.further)

    def to(self, device: Any) -> PooledBatch:
        """Return the batch as tensors on `device`."""
        return to_tensors(self, device)

    def features(self, network: Network) -> Tensor:
        """Return the states that the head reads, (layers, states, width) float32."""
        batch, columns = self.batch, self.columns
        if self.read is not None and network.selects_positions:
            positions, columns = self.read
            batch = batch.with_part(positions)
        hidden = network.run_backbone(batch)
        first = network.features(hidden, self.rows, columns, self.lengths)
        rest = [part.features(network) for part in self.further]
        return torch.cat([first, *rest], dim=1) if rest else first

    def features_and_loss(self, network: Network) -> tuple[Tensor, Tensor | float]:
        """Return the head's input and, with a `token_head`, the auxiliary loss."""
        if network.token_head is None:
            return self.features(network), 0.0
        hidden = network.run_backbone(self.batch)
        features = network.features(hidden, self.rows, self.columns, self.lengths)
        loss = network.token_head.loss(hidden, self.batch).total
        for part in self.further:
            more, its_loss = part.features_and_loss(network)
            features, loss = torch.cat([features, more], dim=1), loss + its_loss
        return features, loss


@dataclass(frozen=True)
class PackedExamples(ABC):
    """The contract of encoded examples that are packed into rows, batch by batch.

    Attributes:
        targets: the target of each text, (texts,), or of each of its outputs, a sequence of
            (outputs,).
        template: the template they were encoded with.
        auxiliary: weight of the language-model loss of each example's tokens, averaged over them,
            beside the task's; 0 for none.
        loss_unit: what no micro-batch parts; an `input` stands for itself as an example, with all
            windows of its text.
    """

    encoded: Sequence[EncodedExample]
    targets: Any
    template: InputTemplate
    auxiliary: float = 0.0
    loss_unit: LossUnit = "input"

    def __len__(self) -> int:
        return len(self._begins) - 1

    @cached_property
    def _begins(self) -> Array:
        """Where the inputs of each example begin, and where the last ones end, (examples + 1,)."""
        is_joint = self.loss_unit != "input"
        return first_inputs(self.encoded) if is_joint else self._windows

    @cached_property
    def _windows(self) -> Array:
        """Where the windows of each text begin, and where the last ones end, (texts + 1,)."""
        return first_windows(self.encoded)

    def _length(self, number: int) -> int:
        """Return the number of tokens of an input."""
        return len(self.encoded[number].ids)

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

    def _texts_of(self, inputs: Array) -> Array:
        """Return the number of the text that each input is a window of."""
        return np.searchsorted(self._windows, inputs, side="right") - 1

    def _rows(
        self, numbers: Array, width: int, device: str, epoch: int | None
    ) -> Iterator[list[list[list[int]]]]:
        """Yield rows of inputs of the examples `numbers`, as many at once as fit in memory.

        They are in parts, for the backbone to read one after another; in one, unless texts have
        several windows.
        """
        examples: list[list[int]] = []  # the inputs of each that are read in the epoch
        for number in numbers:
            inputs = np.arange(self._begins[number], self._begins[number + 1])
            edges = np.flatnonzero(np.diff(self._texts_of(inputs))) + 1
            texts = (drawn(windows, epoch) for windows in np.split(inputs, edges))
            examples.append(np.concatenate(list(texts)).tolist())
        width = max(width, *(self._sizes[n] for inputs in examples for n in inputs))
        at_once = max(1, TOKENS_AT_ONCE.get(device, 1 << 14) // width)
        together = list(chain.from_iterable(examples))
        has_windows = len(np.unique(self._texts_of(np.asarray(together)))) < len(together)
        if has_windows:
            whole = [together] if self.loss_unit == "batch" else _undivided(examples, at_once)
            for some in whole:
                yield [self._packed(part, width) for part in _pieces(sorted(some), at_once)]
            return
        for some in _undivided(examples, at_once) if self.loss_unit == "example" else [together]:
            rows = self._packed(some, width)
            for piece in _pieces(rows, at_once if self.loss_unit == "input" else len(rows)):
                yield [piece]

    def _packed(self, inputs: list[int], width: int) -> list[list[int]]:
        """Return the inputs in rows, several in one if the model can keep them apart."""
        if not self.template.shares_rows:
            return [[n] for n in inputs]
        return [[inputs[k] for k in row] for row in first_fit(self._sizes_of(inputs), width)]

    def _sizes_of(self, inputs: Sequence[int]) -> list[int]:
        return [self._sizes[n] for n in inputs]

    def seeded(self, seed: int) -> PackedExamples:
        """Return the examples as a training with this seed reads them."""
        return self

    @abstractmethod
    def batches(
        self, numbers: Array, device: str, epoch: int | None = None
    ) -> Iterator[PooledBatch]:
        """Yield the examples `numbers`, packed into rows, at most TOKENS_AT_ONCE tokens a batch.

        Args:
            epoch: of training, which of a long text's windows are read; all of them if None.
        """

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


class PooledExamples(PackedExamples):
    """Encoded examples whose pooled states a head reads."""

    @classmethod
    def unlabelled(
        cls, encoded: Sequence[EncodedExample], template: InputTemplate
    ) -> PooledExamples:
        """Return examples without labels, whose targets are 0."""
        counts = output_counts(encoded)[first_windows(encoded)[:-1]]
        return cls(encoded, [np.zeros(count, np.int64) for count in counts], template)

    def batches(
        self, numbers: Array, device: str, epoch: int | None = None
    ) -> Iterator[PooledBatch]:
        """Yield the examples as `PackedExamples.batches` does.

        On CUDA the rows have one width and their count is a power of two, since kernels are
        compiled per shape; elsewhere they are as narrow as the examples allow.
        """
        length, is_cuda = self.template.length, device == "cuda"
        width = length if is_cuda else min(WIDTH, length)
        for parts in self._rows(numbers, width, device, epoch):
            inputs = np.sort([n for rows in parts for row in rows for n in row])
            texts, windows = np.unique(self._texts_of(inputs), return_counts=True)
            counts = dict(zip(texts.tolist(), windows.tolist(), strict=True))
            packed = []
            for rows in parts:
                full = max(sum(self._sizes_of(row)) for row in rows)
                if is_cuda:
                    full, empty = length, (1 << (len(rows) - 1).bit_length()) - len(rows)
                    rows = [*rows, *[[]] * empty]
                packed.append(self._pack(rows, full, counts))
            # The numbers and targets of the outputs for the texts of all parts.
            firsts = self._windows[texts]
            is_pooled = self.encoded[int(firsts[0])].is_pooled
            outputs = [1 if is_pooled else len(self.encoded[n].pooled_positions) for n in firsts]
            yield replace(
                packed[0],
                numbers=np.repeat(self._examples_of(firsts), outputs),
                targets=np.concatenate([np.atleast_1d(self.targets[text]) for text in texts]),
                windows=windows if (windows > 1).any() else None,
                further=tuple(packed[1:]),
            )

    def _pack(self, rows: list[list[int]], width: int, windows: Mapping[int, int]) -> PooledBatch:
        """Return rows of inputs; `windows` has how many of them there are of each text."""
        inputs = [n for row in rows for n in row]
        tokens = texts_in_rows([[self.encoded[n].ids for n in row] for row in rows], width)
        documents = tokens.documents
        is_token = documents >= 0
        places: dict[int, tuple[int, int]] = {}  # of each input: row, first column
        for r, row in enumerate(rows):
            begins = np.cumsum([0, *self._sizes_of(row)]).tolist()
            firsts = begins if self.template.start is None else range(len(row))
            places |= {n: (r, first) for n, first in zip(row, firsts, strict=False)}
        # The batch, with a decoder if the model has one; with `auxiliary` each token is a target.
        mask = document_mask(documents, documents)
        mask = CausalMask() & mask if self.template.is_causal else mask
        segments = None
        if self.template.has_segments:
            segments = np.zeros_like(tokens.ids)
            segments[is_token] = np.concatenate([self.encoded[n].segments for n in inputs])
        batch = Batch(tokens.ids, tokens.positions, mask, segments=segments)
        if self.auxiliary:
            weights = np.zeros(documents.shape, np.float32)
            sizes = np.asarray(self._sizes_of(inputs))
            texts = self._texts_of(np.asarray(inputs)).tolist()
            of_text = np.asarray([windows[text] for text in texts])
            predicted = np.maximum(sizes - 1, 1) * of_text  # a text's tokens but the first
            weights[is_token] = np.repeat(self.auxiliary / predicted, sizes)
            batch = replace(next_token(tokens, weights, mask), segments=segments)
        if self.template.start is not None:
            batch = _with_decoder(batch, documents, self.template.start, max(map(len, rows)))
        return self._pooled(batch, places)

    def _pooled(self, batch: Batch, places: Mapping[int, tuple[int, int]]) -> PooledBatch:
        """Return a batch with the pooled positions of its inputs, in the order of the inputs."""
        inputs = sorted(places)
        rows, columns, counts = [], [], []
        for n in inputs:
            row, first = places[n]
            positions = self.encoded[n].pooled_positions
            rows.append(np.full(len(positions), row))
            columns.append(first + positions)
            counts.append(len(positions))
        is_pooled = self.encoded[inputs[0]].is_pooled
        lengths = np.asarray(counts, np.int64)
        at_rows, at_columns = np.concatenate(rows), np.concatenate(columns)
        return PooledBatch(
            batch,
            at_rows,
            at_columns,
            None,
            None,
            lengths if is_pooled and (lengths > 1).any() else None,
            _read_positions(len(batch.ids), at_rows, at_columns) if (lengths == 1).all() else None,
        )


def texts_in_rows(rows: list[list[Array]], width: int) -> Tokens:
    """Return rows of several texts each, end to end and right-padded, a document each."""
    ids = np.zeros((len(rows), width), np.int64)
    documents = np.full(ids.shape, -1, np.int64)
    for r, row in enumerate(rows):
        end = 0
        for number, text in enumerate(row):
            begin, end = end, end + len(text)
            documents[r, begin:end] = number
    ids[documents >= 0] = np.concatenate([text for row in rows for text in row])
    return Tokens(ids, documents, positions_within(documents))


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


def _pieces(items: Sequence[Any], size: int) -> list[list[Any]]:
    """Return a sequence in pieces of at most `size` items."""
    return [list(items[start : start + size]) for start in range(0, len(items), size)]


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
