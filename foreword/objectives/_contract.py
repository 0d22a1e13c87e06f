"""What an objective is, and what the rest may ask of one."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from typing import ClassVar

from torch import nn

from foreword.data.rng import RowRng
from foreword.nn.model import Backbone, Model
from foreword.ranges import Ranged
from foreword.types import Array, Batch, Example, Hidden, Loss, MaxLengths, Rows, Vocab


class Objective(Ranged, ABC):
    """What to predict: a kind in `objectives/`; its fields are its hyper-parameters.

    Attributes:
        is_bidirectional: each token is predicted from both sides.
    """

    is_bidirectional: ClassVar[bool] = False

    @abstractmethod
    def corrupt(self, rows: Rows, rng: RowRng, vocab: Vocab) -> Example:
        """Pure and vectorised: the example of these rows."""

    @abstractmethod
    def heads(self, backbone: Backbone, vocab: Vocab) -> nn.ModuleDict:
        """The parameters that it owns beside the backbone's."""

    @abstractmethod
    def loss(self, model: Model, batch: Batch) -> Loss:
        """A sum in nats and a count."""

    @property
    def end(self) -> str:
        """The special token that closes its sources and targets, "" without one."""
        return ""

    @property
    def wants_counts(self) -> bool:
        """Whether it finds how often each token stands in the text in `vocab.counts`."""
        return False

    def guess(self, vocab: int) -> float:
        """The loss in nats of one who guesses among `vocab` tokens."""
        return math.log(vocab)

    def require_room(self, length: int) -> None:
        """Asks whether rows of `length` tokens have room for what the settings say.

        Raises:
            ValueError: they have not; the setting is named.
        """

    def max_lengths(self, length: int, text: int) -> MaxLengths:
        """Return how long source and target can become; as long as the text where tokens stay put.

        Args:
            length: tokens of a row.
            text: the most tokens of one document in it.
        """
        return MaxLengths(text, text, text)

    def count_terms(self, batch: Batch) -> Array | None:
        """The predictions of each term, (terms,) float32, or None where there is but one loss.

        For terms that are divided by their own numbers: those of a step's batches are added up
        before the model reads any of them, and stand in each (`Batch.counts`).
        """
        return None


class Term(Objective):
    """An objective that reads the backbone's states as they are, so that several can share them."""

    @abstractmethod
    def read(self, model: Model, batch: Batch, hidden: Hidden) -> Loss:
        """The loss from the backbone's states."""

    def loss(self, model: Model, batch: Batch) -> Loss:
        """See `Objective`: `read` of the backbone's states."""
        return self.read(model, batch, model.backbone(batch))
