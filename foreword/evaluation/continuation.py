"""What a model has read of several texts, extended by a few tokens at a time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from foreword.nn.cache import GrowingCache, select
from foreword.nn.masks import CausalMask, FullMask, Mask, RaggedCausalMask
from foreword.runs.trained_model import TrainedModel
from foreword.types import Array, Batch


class Continuation:
    """The state of a model that reads several texts, one a row.

    Args:
        prompted: the model.
        batches: the beginnings of the texts, in groups of equal length; only a model whose cache
            can be ragged has several.

    Attributes:
        start_states: states of the beginnings, (rows, length, d_model) of each group.
        states: states of the tokens read last, (rows, tokens, d_model).
        positions: position of the last token of each row, (rows,) int64.
    """

    def __init__(self, prompted: TrainedModel, batches: Sequence[Batch]) -> None:
        self._prompted = prompted
        hidden = [prompted.run_backbone(batch) for batch in batches]
        self.start_states = [part.states for part in hidden]
        self.states = torch.cat([part.states[:, -1:] for part in hidden])
        self.positions: Array = np.concatenate([batch.positions[:, -1] for batch in batches])
        self._cross_mask = None if batches[0].cross_mask is None else FullMask()
        self._source = _source_ids(batches)
        self._positions_read = self.positions[:, None]  # of the tokens read last
        self._length = batches[0].ids.shape[1]
        self._cache: Any = hidden[0].cache
        self._is_growing = prompted.recipe.model.cache_width > 0
        if self._is_growing:
            self._cache = GrowingCache([part.cache for part in hidden])

    @property
    def can_read_ahead(self) -> bool:
        """Whether tokens may be read that `accept` then takes back, differing between rows."""
        return (
            self._is_growing
            and self._cache.can_take_back
            and (len(self.positions) == 1 or self._prompted.recipe.model.cache_can_be_ragged)
        )

    def read(self, ids: Array) -> None:
        """Read some tokens of each row, (rows, tokens) int64."""
        layout, vocab = self._prompted.recipe.layout, self._prompted.vocab
        positions = layout.next_positions(ids, self.positions, self._source, vocab)
        self._positions_read = positions
        batch = Batch(ids, positions, self._mask(), cross_mask=self._cross_mask)
        hidden = self._prompted.run_backbone(batch, self._cache)
        self.states = hidden.states
        if not self._is_growing:
            self._cache = hidden.cache

    def _mask(self) -> Mask:
        """Return the mask of new tokens, which see all earlier ones of their row."""
        if not self._is_growing:
            return CausalMask(self._length)
        cache: GrowingCache = self._cache
        if cache.is_even:
            return CausalMask(int(cache.lengths[0]))
        return RaggedCausalMask(torch.from_numpy(cache.lengths).to(self._prompted.device))

    def accept(self, counts: Array) -> None:
        """Keep the first of the tokens of each row that were read last, (rows,) int64."""
        self.positions = self._positions_read[np.arange(len(counts)), counts - 1]
        self._length += int(counts[0])
        if self._is_growing:
            self._cache.accept(counts)

    def join(self, other: Continuation) -> None:
        """Add the rows of another, with sources of the same length; the cache can be ragged."""
        self.positions = np.concatenate([self.positions, other.positions])
        if self._source is not None and other._source is not None:
            self._source = np.concatenate([self._source, other._source])
        self.states = self.states[:0]
        self._cache.join(other._cache)

    def keep(self, rows: Array) -> None:
        """Keep these rows alone, and forget the states read last."""
        self.positions = self.positions[rows]
        self._source = None if self._source is None else self._source[rows]
        self.states = self.states[:0]
        if self._is_growing:
            self._cache.keep(rows)
        else:
            self._cache = select(self._cache, torch.from_numpy(rows).to(self._prompted.device))


def _source_ids(batches: Sequence[Batch]) -> Array | None:
    """Return the ids of all sources, (rows, longest), -1 for padding; None without sources."""
    sources = [np.asarray(batch.source.ids) for batch in batches if batch.source is not None]
    if not sources:
        return None
    longest = max(ids.shape[1] for ids in sources)
    pads = [((0, 0), (0, longest - ids.shape[1])) for ids in sources]
    padded = [np.pad(ids, pad, constant_values=-1) for ids, pad in zip(sources, pads, strict=True)]
    return np.concatenate(padded)
