"""All that measurements know of a model: it gives tokens probabilities, and it writes tokens."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from foreword.errors import UserError
from foreword.evaluate.decoding import Start, stops_of, write
from foreword.evaluate.perplexity import Item, log_probs
from foreword.evaluate.prompting import PromptedModel
from foreword.evaluate.sampling import GREEDY, Sampling
from foreword.types import Array


class Scorer(Protocol):
    """A language model of any make: n-gram, LSTM, Transformer."""

    def log_probs(self, ids: Array) -> Array:
        """The log-probability of each token but the first given those before it, in nats.

        Args:
            ids: (length,) int64.

        Returns:
            (length - 1,) float64.
        """

    def generate(self, ids: Array, sampling: Sampling) -> Array:
        """New tokens after `ids` (length,); (new,) int64."""


@dataclass(frozen=True)
class ModelScorer:
    """A causal model as a `Scorer`.

    Args:
        prompted: the model.
    """

    prompted: PromptedModel

    def __post_init__(self) -> None:
        self.prompted.require_token_head()
        if not self.prompted.continues:
            raise UserError(
                f"{self.prompted.name}: this {self.prompted.family} gives a text no probability "
                "from left to right; a causal model is needed"
            )

    def log_probs(self, ids: Array) -> Array:
        """See `Scorer`; `ids` are read in one piece, nothing put before them.

        Raises:
            UserError: more tokens than the model has places.
        """
        self.prompted.check_length(len(ids))
        if len(ids) < 2:
            return np.empty(0)
        item = Item(ids, np.arange(len(ids)) > 0)
        return next(log_probs(self.prompted, [item]))

    def generate(self, ids: Array, sampling: Sampling = GREEDY) -> Array:
        """See `Scorer`; ends before a stop token."""
        start = Start(None, ids)
        return write(self.prompted, [start], sampling, stops_of(self.prompted))[0].ids
