"""The records that travel down the road, frozen, with their shapes.

    text files -> Document -> token shards -> Rows -> Example -> Batch -> Hidden -> Loss

Arrays are numpy on the data side (`Rows`, `Example`) and torch tensors on the model side; a
`Batch` is built from numpy arrays and becomes tensors with `to`. Padding has document -1.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, is_dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from foreword.errors import UserError, nearest

if TYPE_CHECKING:
    from torch import Tensor

Array = NDArray[Any]
Record = TypeVar("Record")


@dataclass(frozen=True, slots=True)
class Document:
    """One text and where it came from (`wiki.jsonl:17`), for messages."""

    text: str
    source: str


@dataclass(frozen=True)
class Vocab:
    """What objectives and packings know of a tokenizer.

    Attributes:
        size: number of ids, special tokens included.
        special: id by name, `"[MASK]"` -> 4; sentinels not included.
        sentinels: ids of `<extra_id_0>`, `<extra_id_1>`, ..., in order; (sentinels,) int64.
        is_special: true for special tokens and sentinels, which are never corrupted; (size,) bool.
        starts_word: true where a token begins a word; (size,) bool.
        spellings: the text of each token in UTF-8, for models that read characters; of special
            tokens their names. Empty where it is not known.
        counts: how often each token stands in the text, for objectives that ask (`wants_counts`),
            (size,) int64; or None.
    """

    size: int
    special: Mapping[str, int]
    sentinels: Array
    is_special: Array
    starts_word: Array
    spellings: tuple[bytes, ...] = ()
    counts: Array | None = None

    def id(self, name: str) -> int:
        """The id of the special token `name`.

        Raises:
            UserError: the tokenizer lacks it.
        """
        if name not in self.special:
            raise UserError(
                f"the tokenizer has no special token {name}{nearest(name, self.special)}"
            )
        return self.special[name]


@dataclass(frozen=True)
class Rows:
    """Packed rows of tokens, before any objective.

    Attributes:
        ids: (batch, length) int64.
        documents: number of the document within its row, -1 for padding; (batch, length) int64.
        positions: position within the document's piece in this row; (batch, length) int64.
        numbers: the row's place in the order of training, never used twice; (batch,) int64.
        segments: 0 in the first text of a pair, 1 in the second, (batch, length) int64; or None.
        labels: the class of the pair that begins here, -1 where none does, (batch, length) int64;
            or None.
        next_token: the token after each row, for the row's last place to predict, -1 where the text
            ends, (batch,) int64; or None.
    """

    ids: Array
    documents: Array
    positions: Array
    numbers: Array
    segments: Array | None = None
    labels: Array | None = None
    next_token: Array | None = None

    def __len__(self) -> int:
        return len(self.ids)


@dataclass(frozen=True)
class Tokens:
    """A side of an example: ids, documents and positions, each (batch, length) int64.

    `segments`, of the same shape, is None where all are 0.
    """

    ids: Array
    documents: Array
    positions: Array
    segments: Array | None = None


@dataclass(frozen=True)
class Example:
    """What an objective asks for, apart from any architecture: read `source`, predict `target`.

    Attributes:
        source: what is read, or None where the target is all there is (causal).
        target: what is predicted; with `is_aligned`, at the same positions as the source.
        weights: 1 where a target counts, else 0; (batch, target length) float32.
        is_aligned: target i is predicted at source position i (masked language models).
        labels: of texts, as in `Rows`, at the source's positions; or None.
        uniform_draws: a number in [0, 1) per place, for what the model draws (ELECTRA's fakes), -1
            on padding, (batch, target length) float32; or None. A draw by row, so that it depends
            on no micro-batch.
        order: of prediction, where it is not from left to right: a place sees those of lower
            order, -1 is seen by all and predicted nowhere, (batch, length) int64; or None.
        next_token: as in `Rows`, where the row's last place predicts it; or None.
    """

    source: Tokens | None
    target: Tokens
    weights: Array
    is_aligned: bool = False
    labels: Array | None = None
    uniform_draws: Array | None = None
    order: Array | None = None
    next_token: Array | None = None


@dataclass(frozen=True)
class MaxLengths:
    """The most tokens that what an objective makes of one document can have.

    Attributes:
        source: of its source.
        target: of its target.
        joined: of both as one sequence; where the source is the target, of that.
    """

    source: int
    target: int
    joined: int


class Mask(Protocol):
    """Which query may look at which key: `allows(b, h, i, j)`; see `foreword.nn.masks`."""

    def allows(self, b: Any, h: Any, i: Any, j: Any) -> Any:
        """True where query `i` of head `h` in row `b` may attend to key `j`; broadcasts."""


@dataclass(frozen=True)
class Queries:
    """Places that are predicted without being read: XLNet's second stream.

    Attributes:
        at: which places of the row, (batch, predictions) int64.
        mask: which place may look at which to be predicted, over (length, length).
    """

    at: Any
    mask: Any


@dataclass(frozen=True)
class Backward:
    """What is predicted from right to left, beside what is from left to right (ELMo).

    Attributes:
        targets: of each place, the token before it; (batch, length) int64.
        weights: 1 where it counts, (batch, length) float32.
    """

    targets: Any
    weights: Any


@dataclass(frozen=True)
class Batch:
    """What a model reads.

    Attributes:
        ids: (batch, length) int64.
        positions: (batch, length) int64.
        mask: which position may look at which.
        targets: (batch, length) int64, or (batch, predictions) with `queries`; None where nothing
            is predicted.
        weights: 1 where the target counts; float32 of the targets' shape.
        source: what the encoder of an encoder-decoder reads.
        cross_mask: which target position may look at which source position.
        segments: number of the segment (0 or 1 in a pair), (batch, length) int64; None is all 0.
        labels: as in `Example`, (batch, length) int64; or None.
        uniform_draws: as in `Example`, float32 of the targets' shape; or None.
        queries: predicted by a second stream; the states are then theirs, (batch, predictions,
            d_model).
        backward: predicted by the states that have read from right to left.
        memory: what the row before of each lane left for this one (`Hidden.memory`); None for a
            model that carries nothing, or before the first row.
        documents: number of the document within its row, -1 for padding, (batch, length) int64;
            None where a row is one document. Of an encoder-decoder's two sides, of both.
        counts: of each term of a sum of objectives, its predictions in all micro-batches of the
            step, (terms,) float32; None where there is one term, or the batch is the whole step.
    """

    ids: Any
    positions: Any
    mask: Any
    targets: Any = None
    weights: Any = None
    source: Batch | None = None
    cross_mask: Any = None
    segments: Any = None
    labels: Any = None
    uniform_draws: Any = None
    queries: Queries | None = None
    backward: Backward | None = None
    memory: tuple[Any, ...] | None = None
    documents: Any = None
    counts: Any = None

    def to(self, device: Any) -> Batch:
        """The same batch as tensors on `device`."""
        return to_tensors(self, device)


@dataclass(frozen=True)
class Hidden:
    """What a backbone gives back.

    Attributes:
        states: (batch, length, d_model).
        cache: the key-value cache or recurrent state to pass to the next call, or None.
        memory: what training hands on to the lane's next row, without gradient: tensors whose
            first dimension is the batch; or None.
        layers: where asked for (`Backbone.by_layer`): what enters the first layer and what leaves
            each, (batch, length, width); of the encoder, where there is one. Else None.
    """

    states: Tensor
    cache: Any = None
    memory: tuple[Tensor, ...] | None = None
    layers: tuple[Tensor, ...] | None = None


@dataclass(frozen=True)
class Loss:
    """A sum and a count, so that parts of a batch add up exactly.

    Attributes:
        total: sum over predictions, in nats; a scalar tensor.
        weight: number of predictions; a scalar tensor.
        components: the same two for each term of a sum of objectives, and other counts to report.
        memory: the backbone's, for the lane's next row; or None.
    """

    total: Tensor
    weight: Tensor
    components: Mapping[str, tuple[Tensor, Tensor]] = field(default_factory=dict)
    memory: tuple[Tensor, ...] | None = None


def to_tensors(record: Record, device: Any) -> Record:
    """`record` (a frozen dataclass, nested) with its numpy arrays as tensors on `device`.

    An array that occurs twice becomes one tensor.
    """
    import torch

    moved: dict[int, Any] = {}

    def place(array: Array) -> Any:
        tensor = torch.from_numpy(array)
        if getattr(device, "type", device) == "cuda":
            return tensor.pin_memory().to(device, non_blocking=True)
        return tensor.to(device)

    def move(value: Any) -> Any:
        if isinstance(value, np.ndarray):
            if id(value) not in moved:
                moved[id(value)] = place(value)
            return moved[id(value)]
        if isinstance(value, torch.Tensor):
            return value.to(device)
        if isinstance(value, tuple):
            return tuple(map(move, value))
        return within(value) if is_dataclass(value) else value

    def within(value: Any) -> Any:
        return replace(value, **{f.name: move(getattr(value, f.name)) for f in fields(value)})

    found: Record = within(record)
    return found
