"""The contract of objectives, the kinds in `objectives/`."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Literal

from torch import Tensor, nn

from foreword.data.rng import RowRng
from foreword.errors import UserError
from foreword.nn.model import Backbone, Model
from foreword.settings.ranges import Ranged
from foreword.text.special import sentinel_number
from foreword.types import Array, Batch, Example, Hidden, Loss, MaxLengths, Rows, Vocab


@dataclass(frozen=True)
class Prediction:
    """What an objective predicts.

    Attributes:
        form: the predicted tokens: masked ones `in_place`, the `next` one, both, or a `target`.
        tokens: whether a head `token` predicts tokens.
        pairs: whether a head `pair` classifies pairs of texts.
        replacements: whether a head `replaced` tells replaced tokens from genuine ones.
        in_order: whether examples carry an order of prediction (XLNet).
        both_directions: whether each token is predicted once from each side (ELMo).
        component: the component of the loss that predicts tokens, "" for the whole loss.
        any_order: whether tokens are predicted in any order, given any others (masked diffusion):
            the loss is then at least, and in general more than, the text's negative
            log-likelihood.
    """

    form: Literal["in_place", "next", "next_and_in_place", "target"]
    tokens: bool = True
    pairs: bool = False
    replacements: bool = False
    in_order: bool = False
    both_directions: bool = False
    component: str = ""
    any_order: bool = False


@dataclass(frozen=True)
class SourceForm:
    """One form that an objective's sources have.

    Attributes:
        mode: the special token before the text that names the objective (UL2), "" for none.
        has_sentinels: whether sentinels stand for the masked spans.
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
    """A training objective: a kind in `objectives/`; its fields are its hyper-parameters."""

    @property
    @abstractmethod
    def predicts(self) -> Prediction:
        """The kind of its predictions."""

    @property
    def source_forms(self) -> tuple[SourceForm, ...]:
        """The forms of its sources if it predicts a target, the best one for prompts first."""
        return ()

    def token_backbone(self, model: Model) -> Backbone:
        """Return the backbone whose states the head `token` reads."""
        return model.backbone

    @abstractmethod
    def corrupt(self, rows: Rows, rng: RowRng, vocab: Vocab) -> Example:
        """Return the example made of these rows; pure and vectorised."""

    @abstractmethod
    def heads(self, backbone: Backbone, vocab: Vocab) -> nn.ModuleDict:
        """Return the modules that the objective adds to the backbone."""

    @abstractmethod
    def loss(self, model: Model, batch: Batch) -> Loss:
        """Return the loss of a batch: a sum in nats and a count."""

    @property
    def end(self) -> str:
        """The special token that ends its sources and targets, "" for none."""
        return ""

    @property
    def needs_counts(self) -> bool:
        """Whether it requires the tokens' frequencies in the text, `vocab.counts`."""
        return False

    def chance_loss(self, vocab: int) -> float:
        """Return the loss of uniform predictions over `vocab` tokens, in nats."""
        return math.log(vocab)

    def require_room(self, length: int) -> None:
        """Check that the settings fit rows of `length` tokens.

        Raises:
            ValueError: they do not; the message begins with the setting's name.
        """

    def max_lengths(self, length: int, text: int) -> MaxLengths:
        """Return the greatest lengths of source and target; by default the text's (in place).

        Args:
            length: tokens of a row.
            text: the most tokens of one document in a row.
        """
        return MaxLengths(text, text, text)

    def count_terms(self, batch: Batch) -> Array | None:
        """Return the number of predictions of each term, (terms,) float32; None for a single loss.

        Each term is divided by its own number of predictions in the whole step: these counts are
        summed over the step's batches before the first forward pass and stored in each batch
        (`TermCounts`).
        """
        return None


class Term(Objective):
    """An objective computed from the backbone's states alone, so that several can share them.

    In a `sum`, the term that classifies pairs rearranges the rows before the other predicts their
    tokens.
    """

    def relabel(self, rows: Rows, rng: RowRng) -> Rows:
        """Return the rows with the labels of this objective; unchanged if it needs none.

        Raises:
            UserError: the packing makes no pairs.
        """
        return rows

    def count(self, batch: Batch) -> float:
        """Return the number of predictions on a batch."""
        return float(batch.weights.sum())

    @abstractmethod
    def loss_from_states(self, model: Model, batch: Batch, hidden: Hidden) -> Loss:
        """Return the loss, given the backbone's states."""

    def loss(self, model: Model, batch: Batch) -> Loss:
        """Run the backbone and return the loss."""
        return self.loss_from_states(model, batch, model.backbone(batch))


class ModelWithLoss(nn.Module):
    """The module that a training step calls and DDP may wrap: `forward(batch) -> Loss`.

    Args:
        model: backbone and heads.
        objective: what the model predicts.

    Attributes:
        uses: the objective, and the model with its heads; a stage of training sets its own.
    """

    def __init__(self, model: Model, objective: Objective) -> None:
        super().__init__()
        self.model = model
        self.uses = (objective, model)  # in a tuple: the model with other heads is no submodule

    def forward(self, batch: Batch) -> Loss:
        """Return the loss of a batch: a sum in nats and a count."""
        objective, model = self.uses
        return objective.loss(model, batch)


def first_term(counts: Tensor) -> Tensor:
    """Return the index of the first term with predictions in the step, as a tensor; ().

    `Loss.count` is its count, and the means of all terms are multiplied by it.

    Args:
        counts: predictions of each term, (terms,).
    """
    return (counts > 0).int().argmax()
