"""The frozen records that pass from text to loss, with their shapes.

    text files -> Document -> token shards -> Rows -> Example -> Batch -> Hidden -> Loss

Arrays are numpy on the data side (`Rows`, `Example`) and torch tensors on the model side; a
`Batch` is built from numpy arrays and becomes tensors with `to`. Padding has document -1.

What only some families need is a record of its own among the `parts` of rows, example or batch,
found by its type: `batch.part(Queries)`. A new family defines its own frozen dataclass, in a module
that its objective, layout or model may import, and changes nothing here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, is_dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from foreword.errors import UserError, nearest

if TYPE_CHECKING:
    from torch import Tensor

Array = NDArray[Any]
Record = TypeVar("Record")
PartT = TypeVar("PartT")


@dataclass(frozen=True, slots=True)
class Document:
    """A text and its source (`wiki.jsonl:17`), for messages."""

    text: str
    source: str


@dataclass(frozen=True)
class Vocab:
    """The vocabulary of a tokenizer, as objectives and packings use it.

    Attributes:
        size: number of ids, special tokens included.
        special: id by name, `"[MASK]"` -> 4; sentinels not included.
        sentinels: ids of `<extra_id_0>`, `<extra_id_1>`, ..., in order; (sentinels,) int64.
        is_special: true for special tokens and sentinels, which are never corrupted; (size,) bool.
        starts_word: true where a token begins a word; (size,) bool.
        spellings: the text of each token in UTF-8, for models that read characters; special tokens
            are spelled by their names. Empty if unknown.
        counts: the frequency of each token in the text, for objectives that need it
            (`needs_counts`), (size,) int64; or None.
    """

    size: int
    special: Mapping[str, int]
    sentinels: Array
    is_special: Array
    starts_word: Array
    spellings: tuple[bytes, ...] = ()
    counts: Array | None = None

    def id(self, name: str) -> int:
        """Return the id of the special token `name`.

        Raises:
            UserError: the tokenizer lacks it.
        """
        if name not in self.special:
            raise UserError(
                f"the tokenizer has no special token {name}{nearest(name, self.special)}"
            )
        return self.special[name]

    @property
    def unknown(self) -> int:
        """The id of text that the tokenizer does not know, [UNK]; -1 for none.

        GPT-2's tokenizer gives its end of text this name too, but it knows every byte.
        """
        unknown = self.special.get("[UNK]", -1)
        is_shared = list(self.special.values()).count(unknown) > 1
        return -1 if is_shared else unknown


class HasParts:
    """Lookup by type in the records of rows, an example or a batch that only some families need.

    A part is a frozen dataclass; its arrays have one row for each row of the batch, or it says what
    else they have.
    """

    parts: tuple[Any, ...]

    def part(self, kind: type[PartT]) -> PartT | None:
        """Return the part of this type, or None."""
        return next((part for part in self.parts if isinstance(part, kind)), None)

    def parts_of(self, kind: type[PartT]) -> tuple[PartT, ...]:
        """Return the part of this type to hand on: one, or none."""
        return tuple(part for part in self.parts if isinstance(part, kind))

    def require(self, kind: type[PartT]) -> PartT:
        """Return the part of this type.

        Raises:
            TypeError: there is none: objective, layout and model do not fit.
        """
        part = self.part(kind)
        if part is None:
            raise TypeError(f"{type(self).__name__} without a part {kind.__name__}")
        return part

    def with_part(self, part: Any) -> Self:
        """Return a copy with this part, in place of one of its type."""
        others = self.without(type(part))
        return replace(others, parts=(*others.parts, part))  # type: ignore[type-var]

    def without(self, kind: type[Any]) -> Self:
        """Return a copy without the part of this type."""
        parts = tuple(part for part in self.parts if not isinstance(part, kind))
        return replace(self, parts=parts)  # type: ignore[type-var]


@dataclass(frozen=True)
class Rows(HasParts):
    """Packed rows of tokens, before any objective.

    Attributes:
        ids: (batch, length) int64.
        documents: number of the document within its row, -1 for padding; (batch, length) int64.
        positions: position within the document's piece in this row; (batch, length) int64.
        numbers: the row's number in the order of training, never used twice; (batch,) int64.
        segments: 0 in the first text of a pair, 1 in the second, (batch, length) int64; or None.
        parts: what only some packings know, `PairLabels` or `NextToken`; the objectives that use it
            hand it on to the example. `ReadWhole` on held-out text.
    """

    ids: Array
    documents: Array
    positions: Array
    numbers: Array
    segments: Array | None = None
    parts: tuple[Any, ...] = ()

    def __len__(self) -> int:
        return len(self.ids)


@dataclass(frozen=True)
class Tokens:
    """One side of an example: ids, documents and positions, each (batch, length) int64.

    `segments`, of the same shape, is None if all are 0.
    """

    ids: Array
    documents: Array
    positions: Array
    segments: Array | None = None

    def first(self, stop: int) -> Tokens:
        """Return the columns before `stop`."""
        segments = None if self.segments is None else self.segments[:, :stop]
        columns = (self.ids[:, :stop], self.documents[:, :stop], self.positions[:, :stop])
        return Tokens(*columns, segments)


@dataclass(frozen=True)
class PairLabels:
    """The classes of pairs of texts.

    Attributes:
        labels: the class of the pair that begins at a position, -1 where none does, (batch, length)
            int64.
    """

    labels: Any


@dataclass(frozen=True)
class NextToken:
    """The token after each row, predicted by the row's last position.

    Attributes:
        ids: -1 where the text ends or nothing is predicted, (batch,) int64.
    """

    ids: Any


@dataclass(frozen=True)
class ReadWhole:
    """A mark of rows whose inputs are read whole, also where training hides some: held-out text."""


@dataclass(frozen=True)
class MaskedInputs:
    """What the model reads of a target in training, where some of it is hidden.

    Attributes:
        ids: the target's, but for [MASK] in place of hidden ones, (batch, target length) int64.
    """

    ids: Any


@dataclass(frozen=True)
class UniformDraws:
    """Numbers by which the model samples (ELECTRA's replacements), drawn by row.

    Samples do not depend on micro-batches.

    Attributes:
        draws: in [0, 1) for each position of the targets, -1 on padding; (batch, length) float32.
    """

    draws: Any


@dataclass(frozen=True)
class PredictionOrder:
    """An order of prediction that is not left to right (XLNet).

    Attributes:
        order: a position attends to those of lower order; -1 is context, visible to all and not
            predicted; (batch, length) int64.
    """

    order: Any


@dataclass(frozen=True)
class CausalRows:
    """The rows that are predicted from left to right, where others are read in both directions.

    Attributes:
        is_causal: (batch,) bool.
    """

    is_causal: Any


@dataclass(frozen=True)
class Example(HasParts):
    """A training example independent of any architecture: read `source`, predict `target`.

    Attributes:
        source: the tokens to read, or None if there is only a target (causal).
        target: the tokens to predict; with `is_aligned`, at the same positions as the source.
        weights: of each target, 0 where it does not count, else 1 but in objectives that say
            otherwise (diffusion); (batch, target length) float32.
        is_aligned: target i is predicted at source position i (masked language models).
        parts: what the objective and some layouts agree on beyond that, such as `PredictionOrder`.
            Layouts that predict in place hand them on to the batch.
    """

    source: Tokens | None
    target: Tokens
    weights: Array
    is_aligned: bool = False
    parts: tuple[Any, ...] = ()


@dataclass(frozen=True)
class MaxLengths:
    """The greatest numbers of tokens in an objective's example of one document.

    Attributes:
        source: the most tokens of its source.
        target: the most tokens of its target.
        joined: the most tokens of both as one sequence; of the target where that is the source.
    """

    source: int
    target: int
    joined: int


class MaskFunction(Protocol):
    """An attention mask, `allows(b, h, i, j)`; see `foreword.nn.masks`."""

    def allows(self, b: Any, h: Any, i: Any, j: Any) -> Any:
        """Return whether query `i` of head `h` in row `b` may attend to key `j`; broadcasts."""


@dataclass(frozen=True)
class Queries:
    """The query stream: positions predicted without seeing themselves (XLNet).

    Attributes:
        at: the predicted positions of the row, (batch, predictions) int64.
        mask: the mask of the query stream, over (length, length).
    """

    at: Any
    mask: Any


@dataclass(frozen=True)
class ReadPositions:
    """The positions whose states are read, of a backbone that `selects_positions`.

    The states are then theirs, (batch, positions, d_model).

    Attributes:
        at: the positions of each row, (batch, positions) int64.
    """

    at: Any


@dataclass(frozen=True)
class Backward:
    """The targets of the right-to-left direction (ELMo).

    Attributes:
        targets: the token before each position, (batch, length) int64.
        weights: 1 where the target counts, (batch, length) float32.
    """

    targets: Any
    weights: Any


@dataclass(frozen=True)
class TermCounts:
    """The predictions of each term of a sum of objectives, in all micro-batches of the step.

    A feed counts those of its process; a step over several processes adds theirs.

    Attributes:
        counts: (terms,) float32: the same in every micro-batch, not one row of each.
    """

    counts: Any


@dataclass(frozen=True)
class Batch(HasParts):
    """The input of a model, with its targets.

    Attributes:
        ids: (batch, length) int64.
        positions: (batch, length) int64.
        mask: which position may attend to which.
        targets: (batch, length) int64, or (batch, predictions) with `Queries`: the states are then
            theirs, (batch, predictions, d_model). None if nothing is predicted.
        weights: 1 where the target counts; float32 of the targets' shape.
        source: the input of the encoder, in an encoder-decoder.
        cross_mask: which target position may attend to which source position.
        segments: number of the segment (0 or 1 in a pair), (batch, length) int64; None is all 0.
        memory: the memory that the previous row of each stream left (`Hidden.memory`); None for a
            model without memory, or before the first row.
        documents: number of the document within its row, -1 for padding, (batch, length) int64;
            None if each row is one document without padding. In an encoder-decoder both sides have
            their own.
        parts: what the layout, the objective and some models agree on beyond that, such as
            `Queries`.
    """

    ids: Any
    positions: Any
    mask: Any
    targets: Any = None
    weights: Any = None
    source: Batch | None = None
    cross_mask: Any = None
    segments: Any = None
    memory: tuple[Any, ...] | None = None
    documents: Any = None
    parts: tuple[Any, ...] = ()

    def to(self, device: Any) -> Batch:
        """Return the batch as tensors on `device`."""
        return to_tensors(self, device)


@dataclass(frozen=True)
class Hidden:
    """The output of a backbone.

    Attributes:
        states: (batch, length, d_model).
        cache: the key-value cache or recurrent state to pass to the next call, or None.
        memory: the state that training passes to the stream's next row, without gradient: tensors
            whose first dimension is the batch; or None.
        layers: on request (`Backbone.by_layer`): the input of the first layer and the output of
            each, (batch, length, width), of the encoder if there is one; else None.
    """

    states: Tensor
    cache: Any = None
    memory: tuple[Tensor, ...] | None = None
    layers: tuple[Tensor, ...] | None = None


@dataclass(frozen=True)
class Loss:
    """A loss as a sum and a count, so that parts of a batch add up exactly.

    Attributes:
        total: sum over predictions, in nats; a scalar tensor.
        count: number of predictions; a scalar tensor.
        components: total and count of each term of a sum of objectives, and other reported counts.
        memory: the backbone's memory, for the stream's next row; or None.
    """

    total: Tensor
    count: Tensor
    components: Mapping[str, tuple[Tensor, Tensor]] = field(default_factory=dict)
    memory: tuple[Tensor, ...] | None = None


def to_tensors(record: Record, device: Any) -> Record:
    """Return `record` (a frozen dataclass, nested) with its arrays as tensors on `device`.

    An array that occurs twice becomes one tensor.
    """
    import torch

    converted: dict[int, Any] = {}

    def to_tensor(array: Array) -> Any:
        tensor = torch.from_numpy(array)
        if getattr(device, "type", device) == "cuda":
            return tensor.pin_memory().to(device, non_blocking=True)
        return tensor.to(device)

    def convert(value: Any) -> Any:
        if isinstance(value, np.ndarray):
            if id(value) not in converted:
                converted[id(value)] = to_tensor(value)
            return converted[id(value)]
        if isinstance(value, torch.Tensor):
            return value.to(device)
        if isinstance(value, tuple):
            return tuple(map(convert, value))
        return convert_fields(value) if is_dataclass(value) else value

    def convert_fields(value: Any) -> Any:
        return replace(value, **{f.name: convert(getattr(value, f.name)) for f in fields(value)})

    result: Record = convert_fields(record)
    return result
