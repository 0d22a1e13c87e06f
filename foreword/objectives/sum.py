"""Several objectives on the same rows: BERT's two, ALBERT's two."""

from __future__ import annotations

import math
import operator
from dataclasses import dataclass, field, replace

import numpy as np
import torch
from torch import nn

from foreword.data.rng import RowRng
from foreword.errors import UserError
from foreword.nn.model import Backbone, Model
from foreword.objectives._contract import Prediction, Term, first_term
from foreword.objectives._room import longest, require_room
from foreword.objectives.masked import Masked
from foreword.objectives.next_sentence import NextSentence
from foreword.settings import kinds
from foreword.settings.kinds import Part
from foreword.settings.ranges import Positive
from foreword.types import (
    Array,
    Batch,
    Example,
    Hidden,
    Loss,
    MaxLengths,
    PairLabels,
    Rows,
    TermCounts,
    Vocab,
)


@dataclass(frozen=True)
class Sum(Term):
    """The weighted sum of the means of several terms, computed from one forward pass.

        ids       [ 1  7  8  2  9  2]       [CLS] is 1, [SEP] is 2, [MASK] is 3
        segments  [ 0  0  0  0  1  1]
        inputs    [ 1  7  3  2  9  2]
        targets   [ .  .  8  .  .  .]       . is not scored
        labels    [ 0  .  .  .  .  .]       0 is next, 1 is random

    With layout `encoder` and packing `pairs`. The default terms are BERT's, `masked` and
    `next_sentence`. A term that classifies pairs rearranges the row first; the other then masks
    tokens of the result.

    Each term is divided by its own number of predictions in the whole step, however the step is
    split into micro-batches: `TermCounts` holds these numbers, computed before the first forward
    pass. `Loss.count` is that of the first term with a prediction in the step; `Loss.components`
    holds each term's loss.

    Attributes:
        terms: the objectives to sum: at most one that classifies pairs and one that predicts
            tokens.
        weights: the weight of each term; all 1 if empty.

    Also called: multitask.
    Reference: Devlin et al. 2019, appendix A.2: "the sum of the mean masked LM likelihood and the
    mean next sentence prediction likelihood"; Lan et al. 2020, section 3.1.
    """

    terms: tuple[Term, ...] = field(
        default=(Masked(), NextSentence()), metadata={"part": Part("objectives")}
    )
    weights: tuple[Positive, ...] = ()

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.terms:
            raise ValueError("terms: must name at least one")
        names = [kinds.name_of(term) for term in self.terms]
        for name, term in zip(names, self.terms, strict=True):
            if isinstance(term, Sum) or not isinstance(term, Term):
                raise ValueError(f"terms: '{name}' cannot be a term of a sum")
        about_pairs = sum(term.predicts.pairs for term in self.terms)
        if about_pairs > 1 or len(names) - about_pairs > 1:
            raise ValueError(
                "terms: at most one that classifies pairs and one that predicts tokens, "
                f"got {names}"
            )
        if len(self.weights) not in (0, len(names)):
            raise ValueError(
                f"weights: must be {len(names)}, one per term, got {len(self.weights)}"
            )

    @property
    def predicts(self) -> Prediction:
        """The prediction of the term that predicts tokens; without one, classes in place."""
        pairs = any(term.predicts.pairs for term in self.terms)
        term = next((term for term in self.terms if term.predicts.tokens), None)
        if term is None:
            return Prediction("in_place", tokens=False, pairs=pairs)
        names = (kinds.name_of(term), term.predicts.component)
        return replace(term.predicts, pairs=pairs, component="_".join(filter(None, names)))

    def require_room(self, length: int) -> None:
        require_room("terms", self.terms, length)

    def max_lengths(self, length: int, text: int) -> MaxLengths:
        """Return the greatest lengths of its terms."""
        return longest(self.terms, length, text)

    def corrupt(self, rows: Rows, rng: RowRng, vocab: Vocab) -> Example:
        """Return the example of both terms: pairs rearranged first, then tokens masked.

        Raises:
            UserError: the packing makes no pairs, or the terms cannot be combined.
        """
        pair = next((term for term in self.terms if term.predicts.pairs), None)
        other = next((term for term in self.terms if not term.predicts.pairs), None)
        if pair is not None and other is None:
            return pair.corrupt(rows, rng, vocab)
        assert other is not None
        example = other.corrupt(pair.relabel(rows, rng) if pair else rows, rng, vocab)
        if pair is not None and example.part(PairLabels) is None:
            raise UserError(
                f"objective.terms: '{kinds.name_of(other)}' does not predict in place, so "
                f"'{kinds.name_of(pair)}' finds no pairs in its examples; use 'masked'"
            )
        return example

    def count_terms(self, batch: Batch) -> Array:
        counts = [term.count(batch) for term in self.terms]
        return np.asarray(counts, dtype=np.float32)

    def chance_loss(self, vocab: int) -> float:
        each = [term.chance_loss(vocab) for term in self.terms]
        return math.fsum(map(operator.mul, self.weights or (1.0,) * len(each), each))

    def heads(self, backbone: Backbone, vocab: Vocab) -> nn.ModuleDict:
        """Return the heads of all terms."""
        heads = nn.ModuleDict()
        for term in self.terms:
            heads.update(dict(term.heads(backbone, vocab).items()))
        return heads

    def loss_from_states(self, model: Model, batch: Batch, hidden: Hidden) -> Loss:
        """Return the weighted sum of the terms' means, times the first term's prediction count.

        The first term is the first that predicts anything in this step; a term without predictions
        adds nothing. A batch without `TermCounts` is the whole step.
        """
        losses = [term.loss_from_states(model, batch, hidden) for term in self.terms]
        whole_step = batch.part(TermCounts)
        if whole_step is None:
            counts = torch.stack([loss.count for loss in losses])  # (terms,)
        else:
            counts = whole_step.counts
        first = first_term(counts)
        shares = counts.take(first) / counts.clamp(min=1)
        weights = self.weights or (1.0,) * len(losses)
        total = torch.zeros_like(losses[0].total)
        components = {}
        for term, loss, share, weight in zip(self.terms, losses, shares, weights, strict=True):
            name = kinds.name_of(term)
            total = total + weight * share * loss.total
            components[name] = (loss.total, loss.count)
            components |= {f"{name}_{key}": value for key, value in loss.components.items()}
        count = torch.stack([loss.count for loss in losses]).take(first)
        return Loss(total, count, components, hidden.memory)
