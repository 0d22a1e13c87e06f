"""What training asks of an objective, a layout, a packing, an optimizer and a schedule."""

from __future__ import annotations

from typing import Protocol

from torch import nn
from torch.optim import Optimizer

from foreword.data.rng import RowRng
from foreword.data.shards import Shards
from foreword.nn.model import Backbone, Model
from foreword.types import Array, Batch, Example, Loss, Rows, Vocab


class Objective(Protocol):
    """What to predict: a kind in `objectives/`; its fields are its hyper-parameters.

    One of several terms, each divided by its own number of predictions, also has
    `count_terms(batch) -> (terms,)`: the numbers of a step's batches are added up before the model
    reads any of them, and stand in each (`Batch.counts`).

    One that cannot do what its settings say in rows of any length also has `require_room(length)`,
    which raises a ValueError that names the setting; a recipe asks it.

    One whose `wants_counts` is true finds how often each token stands in the text in
    `vocab.counts`.
    """

    def corrupt(self, rows: Rows, rng: RowRng, vocab: Vocab) -> Example:
        """Pure and vectorised: the example of these rows."""

    def heads(self, backbone: Backbone, vocab: Vocab) -> nn.ModuleDict:
        """The parameters that it owns beside the backbone's."""

    def loss(self, model: Model, batch: Batch) -> Loss:
        """A sum in nats and a count."""


class Layout(Protocol):
    """How an example meets an architecture: a kind in `layouts/`."""

    def arrange(self, example: Example, vocab: Vocab) -> Batch:
        """Ids, targets, weights, positions, mask."""


class Packed(Protocol):
    """A corpus as rows, any of them at once."""

    @property
    def rows_per_epoch(self) -> int:
        """How many rows show every token once."""

    @property
    def tokens_per_epoch(self) -> int:
        """Tokens of the corpus, special ones included."""

    def rows(self, numbers: Array) -> Rows:
        """The rows with these places in the order of training, (batch,) int64."""


class Packing(Protocol):
    """How documents become rows: a kind in `data/packing/`."""

    @property
    def length(self) -> int:
        """Tokens of a row."""

    def open(
        self, shards: Shards, vocab: Vocab, seed: int, batch: int, *, once: bool = False
    ) -> Packed:
        """The corpus as rows, in an order that depends on the seed alone.

        Args:
            shards: the documents.
            vocab: to look up special tokens.
            seed: of the order.
            batch: rows per step.
            once: the text is read a single time and to its end, as held-out text is: an epoch's
                rows show all of it, with padding where they have room left.
        """


class OptimizerSettings(Protocol):
    """A kind in `train/optim/`."""

    @property
    def lr(self) -> float:
        """The peak learning rate."""

    def build(self, model: nn.Module) -> Optimizer:
        """The optimizer over the model's parameters."""


class Schedule(Protocol):
    """A kind in `train/schedule/`."""

    def factor(self, progress: float, step: int, total: float) -> float:
        """What to multiply the peak learning rate with.

        Args:
            progress: share of the budget that is spent, 0 to 1.
            step: steps done.
            total: steps in all, estimated where the budget is not in steps.
        """
