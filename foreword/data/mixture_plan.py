"""Which source each row of a mixture comes from: a function of the row's number alone.

Training is cut into segments in which the same sources are read, by the same shares: where weights
change, and where a source has been read. Where a source would exceed its limit of epochs its
weights are lowered, so that it is spread over the parts that read it. A segment is cut into blocks
of one step, and each block holds every source by its share, rounded so that errors never add up;
within the block the order is random. So a row is found without a table and without the rows before
it: resuming, and any number of processes, see the same rows.

Where a row continues the one before it in its stream, what is drawn is not a row but a stretch of
them: the stream reads one source for that long, then goes on where another source was left.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from foreword.data.rng import mix, permute
from foreword.errors import UserError
from foreword.types import Array

TOLERANCE = 1e-9  # of shares of training, which are sums of decimal fractions
_ENDLESS = 1 << 52  # stretches
_ROUNDS = 100  # of lowering weights, which converge


@dataclass(frozen=True)
class _Segment:
    """Stretches in which the same sources are read; unless rows continue, a stretch is a row.

    Attributes:
        begin: its first stretch.
        end: the stretch after its last.
        sources: the numbers of the sources that are read, (active,) int64.
        weights: their weights, (active,) float64.
        before: stretches of each source of the mixture before the segment, (sources,) int64.
    """

    begin: int
    end: int
    sources: Array
    weights: Array
    before: Array

    def drawn(self, stretches: Array) -> Array:
        """Return how many of the segment's first `stretches` each draws, (..., active) int64.

        Each source takes its share of what the ones before it left, rounded. So counts sum to
        `stretches` and never fall as it grows.
        """
        rest = np.asarray(stretches, dtype=np.int64)
        left = np.cumsum(self.weights[::-1])[::-1]
        counts = []
        for weight, of in zip(self.weights[:-1], left[:-1], strict=True):
            counts.append(np.floor(rest * (weight / of) + 0.5).astype(np.int64))
            rest = rest - counts[-1]
        return np.stack([*counts, rest], axis=-1)


class MixturePlan:
    """The source of each row.

    Args:
        limits: how many times each source is read at most; None for no limit.
        parts: the share of training at which weights begin, and these, one for each source.
        rows_per_epoch: rows of each source in one reading.
        rows_total: rows of the whole training; None if its budget does not tell.
        block: rows of a step.
        seed: seed of the order.
        stretch: steps for which a row of the batch reads one source.

    Raises:
        UserError: no source is left to read before training ends.
    """

    def __init__(
        self,
        limits: Sequence[float | None],
        parts: Sequence[tuple[float, Sequence[float]]],
        rows_per_epoch: Sequence[float],
        rows_total: int | None,
        block: int,
        seed: int,
        stretch: int = 1,
    ) -> None:
        self._block, self._stretch = block, stretch
        self._steps = None if rows_total is None else -(-rows_total // block)
        self._total = None if rows_total is None else -(-rows_total // (block * stretch)) * block
        self._per_epoch = np.array(rows_per_epoch, dtype=np.float64) / stretch
        self._limits = np.array(
            [
                _ENDLESS if epochs is None else -(-max(1, int(epochs * rows + 1e-9)) // stretch)
                for epochs, rows in zip(limits, rows_per_epoch, strict=True)
            ]
        )
        self._seed = mix(np.array([seed], dtype=np.uint64) ^ np.uint64(0x313C))
        self._shares = np.array([share for share, _ in parts])
        self._weights = self._limited(np.array([weights for _, weights in parts]))
        self._set_segments(self._cut(self._expected()))

    def _set_segments(self, segments: list[_Segment]) -> None:
        self._segments = segments
        self._begins = np.array([segment.begin for segment in segments])

    def begun(self, steps: Sequence[int]) -> MixturePlan:
        """Return the plan whose first parts began at these steps, and which ends with the last."""
        plan = copy.copy(self)
        plan._set_segments(self._cut(np.array([self._stretches(step) for step in steps])))
        return plan

    def _stretches(self, step: int) -> int:
        """Return the first stretch of the mixture that begins at a step or after it."""
        return -(-step // self._stretch) * self._block

    def _expected(self) -> Array:
        """Return the stretch at which each part will begin, (parts,) int64."""
        if self._steps is not None:
            return np.array(
                [
                    self._stretches(math.ceil((share - TOLERANCE) * self._steps))
                    for share in self._shares
                ]
            )
        # The budget does not tell: as in one reading of everything.
        nominal = int(self._per_epoch.sum()) // self._block
        return np.round(self._shares * max(1, nominal)).astype(np.int64) * self._block

    def locate(self, numbers: Array) -> tuple[Array, Array]:
        """Return the source of each row of the mixture, and the number of the row in it."""
        steps, streams = np.divmod(np.asarray(numbers, dtype=np.int64), self._block)
        stretches, inside = np.divmod(steps, self._stretch)
        sources, indices = self._locate(stretches * self._block + streams)
        return sources, indices * self._stretch + inside

    def _locate(self, numbers: Array) -> tuple[Array, Array]:
        """Return the source of each stretch of the mixture, and the stretch's number in it."""
        sources, indices = np.zeros_like(numbers), np.zeros_like(numbers)
        which = np.searchsorted(self._begins, numbers, side="right") - 1
        blocks = (numbers - self._begins[which]) // self._block
        for n, block in np.unique(np.stack([which, blocks]), axis=1).T:
            segment = self._segments[n]
            is_in = (which == n) & (blocks == block)
            # The block's stretches of each source, and a random order of all.
            begin = int(block) * self._block
            size = min(self._block, segment.end - segment.begin - begin)
            first, stop = segment.drawn(np.array([begin, begin + size]))
            key = int(mix(self._seed + np.uint64(segment.begin + begin))[0])
            slots = permute(numbers[is_in] - segment.begin - begin, size, key)
            ends = np.cumsum(stop - first)
            active = np.searchsorted(ends, slots, side="right")
            sources[is_in] = segment.sources[active]
            inside = slots - (ends - (stop - first))[active]
            indices[is_in] = segment.before[segment.sources[active]] + first[active] + inside
        return sources, indices

    def rows_read(self, rows: int | None = None) -> Array:
        """Return the rows of each source among the first `rows`, to a stretch; (sources,) int64.

        Default: all of training; one reading of everything if its budget does not tell.
        """
        end = -(-rows // self._stretch) if rows is not None else self._total
        end = end or max(self._block, int(self._per_epoch.sum()))
        segment = self._segments[int(np.searchsorted(self._begins, end, side="right")) - 1]
        counts: Array = segment.before.copy()
        counts[segment.sources] += segment.drawn(np.array(end - segment.begin))
        return counts * self._stretch

    def shares(self) -> Array:
        """Return the share of each source in training, (sources,) float64."""
        counts = self.rows_read()
        return np.asarray(counts / counts.sum())

    def epochs(self) -> Array:
        """Return how many times training reads each source, (sources,) float64."""
        return np.asarray(self.rows_read() / (self._per_epoch * self._stretch))

    def _limited(self, weights: Array) -> Array:
        """Return weights (parts, sources), lowered so that sources with limits last.

        Without a number of rows such a source is read by its weight and then no more.
        """
        if self._total is None:
            return weights
        stretches = np.diff(np.append(self._shares, 1.0)) * self._total  # of each part
        for _ in range(_ROUNDS):
            of_part = weights.sum(1, keepdims=True)
            drawn = (stretches[:, None] * weights / np.maximum(of_part, 1e-300)).sum(0)
            if (drawn <= self._limits * (1 + 1e-9)).all() or of_part.min() < 1e-30:
                break  # within the limits, or nothing else to read, which is an error
            weights = weights * np.minimum(1.0, self._limits / np.maximum(drawn, 1e-9))
        return weights

    def _cut(self, begins: Array) -> list[_Segment]:
        """Return the segments: cut where a part begins, or a source has been read.

        Args:
            begins: the stretch at which each part begins; those of all, or of the first ones.
        """
        total, is_whole = self._total or _ENDLESS, len(begins) == len(self._shares)
        segments: list[_Segment] = []
        at, before = 0, np.zeros(len(self._limits), dtype=np.int64)
        while at < total:
            part = int(np.searchsorted(begins, at, side="right")) - 1
            is_read = self._weights[part] > 0
            active = np.flatnonzero(is_read & (before < self._limits))
            if not len(active):
                if not segments or (is_whole and total - at >= self._block):
                    raise UserError(self._why_none(at, before, is_read))
                break  # the last step may read a few rows beyond the limits
            end = min([total, *begins[begins > at].tolist()])
            segment = _Segment(at, end, active, self._weights[part][active], before)
            end = at + _most(segment, (self._limits - before)[active], end - at)
            segments.append(replace(segment, end=end))
            before = before.copy()
            before[active] += segment.drawn(np.array(end - at))
            at = end
        segments[-1] = replace(segments[-1], end=_ENDLESS)  # rows are prepared ahead of training
        return segments

    def _why_none(self, at: int, before: Array, is_read: Array) -> str:
        """Return why no source is left at a row."""
        if self._total is None:
            return (
                "data.sources: every source has a limit of epochs, and a budget in hours or flops "
                "may exceed them all; take one limit away, or give --steps, --tokens or --epochs"
            )
        steps, total = (n // self._block * self._stretch for n in (at, self._total))
        after = f"after {steps:,} of {total:,} steps"
        if (before >= self._limits).all():
            most = self._limits.sum() / self._per_epoch.sum()
            return (
                f"data.sources: all sources reach their limits of epochs {after}; raise a "
                f"limit, or train for at most --epochs {most:.3g}"
            )
        if is_read.any():
            return (
                f"data.sources: the sources read then reach their limits of epochs {after}; "
                f"raise a limit, or give another source a weight"
            )
        return f"data.sources: no source has a weight above 0 at {at / self._total:.0%} of training"


def _most(segment: _Segment, left: Array, stretches: int) -> int:
    """Return the most stretches, at most these, that draw no more than is left of each source."""
    low, high = 0, stretches  # the counts never fall, so the answer is found by bisection
    while low < high:
        middle = (low + high + 1) // 2
        if (segment.drawn(np.array(middle)) <= left).all():
            low = middle
        else:
            high = middle - 1
    return low
