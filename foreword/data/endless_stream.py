"""The documents of all epochs in one endless stream, in the same order or shuffled in each."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from foreword.data.document_stream import DocumentStream, ranges
from foreword.data.rng import mix, permute
from foreword.types import Array

UNITS = 1 << 20  # most units that are shuffled, so that memory is bounded
CACHED_EPOCHS = 3  # rows in shuffled order can belong to two epochs, and the next begin a third


@dataclass(frozen=True)
class _Order:
    """The order of units, each one or more whole documents, in an epoch.

    Attributes:
        begins: where each begins in the epoch, and the end; (units + 1,) int64.
        sources: where each begins in the text, (units,) int64.
    """

    begins: Array
    sources: Array


class EndlessStream:
    """Epoch after epoch of a text: its documents in their order, then in random orders.

        text     7 8 9 </s> 4 </s>
        stream   7 8 9 </s> 4 </s> | 4 </s> 7 8 9 </s> | 7 8 9 </s> 4 </s> | ...

    In a text of more than `UNITS` documents, consecutive ones are shuffled as one.

    Args:
        stream: the text.
        seed: seed of the orders.
        shuffles: whether later epochs are in random orders; else all are in that of the first.
    """

    def __init__(self, stream: DocumentStream, seed: int, *, shuffles: bool = True) -> None:
        self._stream, self._shuffles = stream, shuffles
        self._seed = mix(np.array([seed]).astype(np.uint64) ^ np.uint64(0xD0C))
        self._orders: dict[int, _Order] = {}

    def spans(self, starts: Array, lengths: Array) -> tuple[Array, Array, Array]:
        """Return where spans of the endless stream are in the text.

        Args:
            starts: the first index of each; (spans,) int64.
            lengths: tokens in each, at most those of an epoch; (spans,) int64.

        Returns:
            Start, length and span of each part that is contiguous in the text, in the order of the
            spans and of their tokens; (parts,) int64 each.
        """
        # Each span has a part in one epoch, and perhaps one in the next.
        total = len(self._stream)
        epochs, begins = np.divmod(starts, total)
        first = np.minimum(lengths, total - begins)
        epochs = np.stack([epochs, epochs + 1], axis=1).ravel()
        begins = np.stack([begins, np.zeros_like(begins)], axis=1).ravel()
        ends = begins + np.stack([first, lengths - first], axis=1).ravel()
        # Such a part is of one or more units, which are elsewhere in the text.
        parts = []
        for epoch in np.unique(epochs[ends > begins]):
            which = np.flatnonzero((epochs == epoch) & (ends > begins))
            order = self._order(int(epoch) if self._shuffles else 0)
            low = np.searchsorted(order.begins, begins[which], side="right") - 1
            high = np.searchsorted(order.begins, ends[which], side="left")
            units, span = ranges(low, high - low)
            start = np.maximum(order.begins[units], begins[which][span])
            stop = np.minimum(order.begins[units + 1], ends[which][span])
            source = order.sources[units] + start - order.begins[units]
            parts.append(np.stack([source, stop - start, which[span]]))
        joined = np.concatenate(parts, axis=1)
        source, sizes, which = joined[:, np.argsort(joined[2], kind="stable")]
        return source, sizes, which // 2

    def _order(self, epoch: int) -> _Order:
        """Return an epoch's order; the last few are cached."""
        order = self._orders.get(epoch)
        if order is None:
            starts = self._stream.bounds
            per_unit = max(1, -(-len(starts) // UNITS)) if self._shuffles else len(starts)
            starts = np.append(starts[:-1:per_unit], starts[-1])
            sizes, units = np.diff(starts), np.arange(len(starts) - 1)
            if epoch:
                key = int(mix(self._seed + np.uint64(epoch))[0])
                units = permute(units, len(units), key)
            begins = np.concatenate([[0], np.cumsum(sizes[units])])
            order = _Order(begins, starts[units])
            orders = self._orders  # threads that read rows at the same time each replace it
            latest = sorted(orders)[-(CACHED_EPOCHS - 1) :]
            self._orders = {**{n: orders[n] for n in latest}, epoch: order}
        return order
