"""What an objective is, and what the rest may ask of one."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar, Literal

from torch import nn

from foreword.data.rng import RowRng
from foreword.errors import UserError
from foreword.nn.model import Backbone, Model
from foreword.ranges import Ranged
from foreword.text.special import sentinel_number
from foreword.types import Array, Batch, Example, Hidden, Loss, MaxLengths, Rows, Vocab

Prediction = Literal["in_place", "next", "target"]


@dataclass(frozen=True)
class SourceForm:
    """What some of an objective's sources look like.

    Attributes:
        mode: the special token before the text that names the objective (UL2), "" for none.
        has_sentinels: whether sentinels stand for what is missing.
    """

    mode: str = ""
    has_sentinels: bool = False


def mode_id(name: str, vocab: Vocab) -> int | None:
    """Return the id of a mode token, a special token or a sentinel; None for "".

    Raises:
        UserError: the tokenizer lacks it.
    """
    number = sentinel_number(name)
    if number is None:
        return vocab.id(name) if name else None
    if number >= len(vocab.sentinels):
        raise UserError(
            f"objective.modes: {name}, but the tokenizer has {len(vocab.sentinels)} sentinels"
        )
    return int(vocab.sentinels[number])


class Objective(Ranged, ABC):
    """What to predict: a kind in `objectives/`; its fields are its hyper-parameters.

    Attributes:
        predicts_both_directions: each token is predicted from both sides.
    """

    predicts_both_directions: ClassVar[bool] = False

    @property
    @abstractmethod
    def predicts(self) -> Prediction:
        """What is predicted: masked tokens `in_place`, the `next` token, or a `target` text."""

    @property
    def predicts_in_order(self) -> bool:
        """Whether examples say in which order tokens are predicted (XLNet)."""
        return False

    @property
    def predicts_tokens(self) -> bool:
        """Whether there is a head `token` that predicts tokens."""
        return True

    @property
    def source_forms(self) -> tuple[SourceForm, ...]:
        """What its sources look like, if it predicts a target; the likeliest way to ask first."""
        return ()

    def reader(self, model: Model) -> Backbone:
        """Return the backbone whose states the head `token` reads."""
        return model.backbone

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

    def chance_loss(self, vocab: int) -> float:
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
    def loss_from_states(self, model: Model, batch: Batch, hidden: Hidden) -> Loss:
        """The loss from the backbone's states."""

    def loss(self, model: Model, batch: Batch) -> Loss:
        """See `Objective`: `loss_from_states` of the backbone's states."""
        return self.loss_from_states(model, batch, model.backbone(batch))
