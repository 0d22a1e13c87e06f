"""A mixture of sources as rows: each row is a row of one source."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from typing import Any

import numpy as np

from foreword.data.mixture_plan import MixturePlan
from foreword.data.packing._contract import Packed
from foreword.types import Array, Rows


class MixedRows(Packed):
    """The rows of several sources in one order; see `MixturePlan`.

    Args:
        sources: the rows of each source, by name.
        plan: the source of each row.

    Attributes:
        plan: the source of each row.
        source_rows_per_epoch: rows of each source in one reading.
        notes: a line for each source, and those of the sources.
    """

    def __init__(self, sources: Mapping[str, Packed], plan: MixturePlan) -> None:
        self.plan = plan
        self._sources = list(sources.values())
        self.source_rows_per_epoch = [source.rows_per_epoch for source in self._sources]
        self.rows_per_epoch = sum(self.source_rows_per_epoch)
        self.tokens_per_epoch = sum(source.tokens_per_epoch for source in self._sources)
        per_source = zip(sources.items(), plan.shares(), plan.epochs(), strict=True)
        self.notes = [
            f"source {name}: {share:.2%} of the rows, {epochs:,.3g} epochs"
            + "".join(f"; {note}" for note in source.notes)
            for (name, source), share, epochs in per_source
        ]

    def begun(self, steps: Sequence[int]) -> MixedRows:
        """Return the rows by the plan whose first parts began at these steps."""
        mixed = copy.copy(self)
        mixed.plan = self.plan.begun(steps)
        return mixed

    def rows(self, numbers: Array) -> Rows:
        """Return the rows with these numbers in the order of training, (batch,) int64."""
        numbers = np.asarray(numbers, dtype=np.int64)
        sources, within = self.plan.locate(numbers)
        present = [int(n) for n in np.unique(sources)]
        parts = [self._sources[n].rows(within[sources == n]) for n in present]
        # Together they are in the order of the sources; put them in that of the numbers.
        order = np.argsort(sources, kind="stable")
        inverse = np.empty_like(order)
        inverse[order] = np.arange(len(order))
        rows: Rows = _joined(parts, inverse)
        return replace(rows, numbers=numbers)


def _joined(records: list[Any], order: Array) -> Any:
    """Return records of some rows each as one, with the rows in an order."""
    values: dict[str, Any] = {}
    for field in fields(records[0]):
        items = [getattr(record, field.name) for record in records]
        if isinstance(items[0], tuple):
            values[field.name] = tuple(
                _joined(list(same), order) for same in zip(*items, strict=True)
            )
        else:
            values[field.name] = None if items[0] is None else np.concatenate(items)[order]
    return replace(records[0], **values)
