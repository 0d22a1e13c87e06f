"""Language models as scorers of text: each gives tokens log-probabilities by one interface."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from foreword.models.ngram import table_of
from foreword.ngrams.table import NgramTable
from foreword.runs.trained_model import TrainedModel
from foreword.types import Array, Batch, Example, NextToken, Tokens

TOKENS_AT_ONCE = {"cpu": 1 << 12, "cuda": 1 << 16}  # in a batch
LOGITS_AT_ONCE = 1 << 24  # positions times vocabulary
CHUNK = 1024  # items sorted into batches at once


@dataclass(frozen=True)
class ScoringItem:
    """A piece of text and which of its tokens are scored.

    Attributes:
        target: the tokens; (length,) int64.
        is_scored: (length,) bool.
        source: what the model reads: for a model that predicts in place, the target with masked
            tokens; for one with a source, the source; (source length,) int64; else None.
        weight: a factor of its log-probabilities; 1 where tokens are ranked.
    """

    target: Array
    is_scored: Array
    source: Array | None = None
    weight: float = 1.0


class Scorer(Protocol):
    """A language model of any kind, n-gram or neural, that gives tokens log-probabilities."""

    def log_probs(self, items: Iterable[ScoringItem]) -> Iterator[Array]:
        """Yield the log-probability of every scored token, in nats.

        The result of an item does not depend on the others.

        Returns:
            (scored,) float64 for each item.
        """

    def log_probs_and_ranks(self, items: Iterable[ScoringItem]) -> Iterator[Array]:
        """Yield the log-probability of every scored token, and its rank.

        The rank is the number of other tokens that are at least as likely: 0 for the likeliest one,
        which a tie is not.

        Returns:
            (scored, 2) float64 for each item.

        Raises:
            UserError: the model has no probabilities of other tokens.
        """


def scorer_of(prompted: TrainedModel) -> Scorer:
    """Return the scorer of a trained model."""
    if prompted.is_count_based:
        return NgramScorer(table_of(prompted.model))
    return NeuralScorer(prompted)


@dataclass(frozen=True)
class NgramScorer:
    """An n-gram table as a `Scorer`, which scores many items in one look-up.

    Attributes:
        table: the table; items have no source.
    """

    table: NgramTable

    def log_probs(self, items: Iterable[ScoringItem]) -> Iterator[Array]:
        """See `Scorer`."""
        for chunk in _chunks(items):
            # Concatenate the items; `is_first` marks where each begins.
            stream = np.concatenate([item.target for item in chunk])
            is_scored = np.concatenate([item.is_scored for item in chunk])
            lengths = np.array([len(item.target) for item in chunk])
            ends = np.cumsum(lengths)
            is_first = np.zeros(len(stream), dtype=bool)
            is_first[(ends - lengths)[lengths > 0]] = True
            nats = self.table.log_probs_of(stream, is_first=is_first)[is_scored]
            yield from np.split(nats, np.cumsum(is_scored)[ends[:-1] - 1])

    def log_probs_and_ranks(self, items: Iterable[ScoringItem]) -> Iterator[Array]:
        """See `Scorer`."""
        for item in items:
            is_first = np.arange(len(item.target)) == 0
            ngrams = np.stack(self.table.find(item.target, is_first), axis=1)  # (length, order)
            where = np.flatnonzero(item.is_scored & ~is_first)
            after = self.table.distribution(ngrams[where - 1, : self.table.header.order - 1])
            target_log_probs = after[np.arange(len(where)), item.target[where]]
            yield np.stack(
                [target_log_probs, (after >= target_log_probs[:, None]).sum(1) - 1.0], axis=1
            )


@dataclass(frozen=True)
class NeuralScorer:
    """A neural model as a `Scorer`, which computes items of similar length in one batch.

    Attributes:
        prompted: the model: causal, masked, or with a source.
    """

    prompted: TrainedModel

    def log_probs(self, items: Iterable[ScoringItem]) -> Iterator[Array]:
        """See `Scorer`."""
        return self.measured(items, token_log_probs)

    def log_probs_and_ranks(self, items: Iterable[ScoringItem]) -> Iterator[Array]:
        """See `Scorer`."""
        return self.measured(items, token_log_probs_and_ranks)

    def measured(
        self, items: Iterable[ScoringItem], measure: Callable[[TrainedModel, Batch], Array]
    ) -> Iterator[Array]:
        """Yield what `measure` gives the scored tokens of each item, a row for each token."""

        def score(group: Sequence[ScoringItem]) -> Sequence[Array]:
            counts = np.cumsum([int(item.is_scored.sum()) for item in group])[:-1]
            scored = np.split(self._score(group, measure), counts)
            return [item.weight * part for item, part in zip(group, scored, strict=True)]

        return _in_batches(self.prompted, items, score)

    def _score(
        self, items: Sequence[ScoringItem], measure: Callable[[TrainedModel, Batch], Array]
    ) -> Array:
        """Return what `measure` gives the scored tokens, item after item."""
        prompted = self.prompted
        target = padded([item.target for item in items])
        weights = padded([item.is_scored for item in items]).ids.astype(np.float32)
        if not weights.any():
            return np.empty(0)
        sources = [item.source for item in items if item.source is not None]
        source = padded(sources) if sources else None
        if source is None:
            # The last token is predicted, not read: a window may be one longer than a row.
            after_row = NextToken(np.where(weights[:, -1] > 0, target.ids[:, -1], -1))
            example = Example(None, target.first(-1), weights[:, :-1], parts=(after_row,))
        elif prompted.fills_in_place:
            example = prompted.in_place_example(source, target, weights)
        else:
            example = Example(source, target, weights)
        batch = prompted.recipe.layout.arrange(example, prompted.vocab)
        scored = measure(prompted, batch)
        assert len(scored) == int(weights.sum()), "a token to be scored is not predicted"
        return scored


def _chunks(items: Iterable[ScoringItem]) -> Iterator[list[ScoringItem]]:
    iterator = iter(items)
    while chunk := list(islice(iterator, CHUNK)):
        yield chunk


def _in_batches(
    prompted: TrainedModel,
    items: Iterable[ScoringItem],
    score: Callable[[Sequence[ScoringItem]], Iterable[Array]],
) -> Iterator[Array]:
    """Yield the scores of each item, computed together with items of similar length."""
    at_once = TOKENS_AT_ONCE.get(prompted.device.type, TOKENS_AT_ONCE["cpu"])
    for chunk in _chunks(items):
        scored: dict[int, Array] = {}
        for members in _batches(chunk, at_once):
            scored.update(zip(members, score([chunk[n] for n in members]), strict=True))
        yield from (scored[n] for n in range(len(chunk)))


def _batches(items: Sequence[ScoringItem], tokens: int) -> Iterator[list[int]]:
    """Yield the items of each batch, by index: sources of one length, targets of similar length."""

    def key(n: int) -> tuple[int, int]:
        source = items[n].source
        return (0 if source is None else len(source), len(items[n].target))

    members: list[int] = []
    for n in sorted(range(len(items)), key=key):
        is_full = (len(members) + 1) * sum(key(n)) > tokens
        if members and (is_full or key(n)[0] != key(members[0])[0]):
            yield members
            members = []
        members.append(n)
    if members:
        yield members


def padded(rows: Sequence[Array]) -> Tokens:
    """Return texts as rows of a batch, padded on the right."""
    width = max(map(len, rows))
    ids = np.zeros((len(rows), width), dtype=np.int64)
    documents = np.full_like(ids, -1)
    for n, row in enumerate(rows):
        ids[n, : len(row)] = row
        documents[n, : len(row)] = 0
    positions = np.broadcast_to(np.arange(width), ids.shape).copy()
    return Tokens(ids, documents, positions)


def token_log_probs(prompted: TrainedModel, batch: Batch) -> Array:
    """Return the log-probability of each target with weight, in nats, in the order of the batch.

    Returns:
        (predictions,) float64.
    """
    parts = [
        logits.log_softmax(-1).gather(1, targets[:, None])[:, 0]
        for logits, targets in _predictions(prompted, batch)
    ]
    scored: Array = torch.cat(parts).cpu().double().numpy() if parts else np.empty(0)
    return scored


def token_log_probs_and_ranks(prompted: TrainedModel, batch: Batch) -> Array:
    """Return the log-probability of each target with weight and its rank, in the batch's order.

    Returns:
        (predictions, 2) float64; see `Scorer.log_probs_and_ranks`.
    """
    parts = []
    for logits, targets in _predictions(prompted, batch):
        target_logits = logits.gather(1, targets[:, None])
        ranks = (logits >= target_logits).sum(1) - 1
        log_probs = (target_logits[:, 0] - logits.logsumexp(-1)).double()
        parts.append(torch.stack([log_probs, ranks.double()], dim=1))
    scored: Array = torch.cat(parts).cpu().numpy() if parts else np.empty((0, 2))
    return scored


def _predictions(prompted: TrainedModel, batch: Batch) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield logits, (predictions, vocab), and targets, (predictions,), some rows at once."""
    batch = batch.to(prompted.device)
    states = prompted.run_backbone(batch).states.flatten(0, 1)
    where = batch.weights.flatten().nonzero()[:, 0]
    targets = batch.targets.flatten()[where]
    rows = max(1, LOGITS_AT_ONCE // prompted.vocab.size)
    for start in range(0, len(where), rows):
        part = slice(start, start + rows)
        yield prompted.logits(states[where[part]]), targets[part]


@dataclass(frozen=True)
class DetectionScorer:
    """A discriminator as a `Scorer`: the log-probability that a token was not replaced (ELECTRA).

    Attributes:
        prompted: the model; items have no source.
    """

    prompted: TrainedModel

    def log_probs(self, items: Iterable[ScoringItem]) -> Iterator[Array]:
        """See `Scorer`."""
        prompted = self.prompted

        def score(group: Sequence[ScoringItem]) -> Iterator[Array]:
            texts = padded([item.target for item in group])
            genuine = prompted.log_probs_original(prompted.encoding_batch(texts))
            for item, row in zip(group, genuine, strict=True):
                yield row[: len(item.target)][item.is_scored]

        return _in_batches(prompted, items, score)

    def log_probs_and_ranks(self, items: Iterable[ScoringItem]) -> Iterator[Array]:
        """Refuse: it says nothing of other tokens.

        Raises:
            UserError: always.
        """
        self.prompted.require_token_ranks()
        yield from ()
