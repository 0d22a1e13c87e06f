"""Count-based baselines on a model's own predictions: the same tokens at the same positions.

A masked language model predicts some of the tokens, a T5 targets with sentinels, a decoder the ends
of texts too. So the tokens to predict are counted in the training text as the objective makes
them, and scored where the model was scored.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from foreword.data.prepared_text import PreparedText
from foreword.data.shards import Shards
from foreword.ngrams.texts import NgramTexts
from foreword.runs.recipe import Recipe
from foreword.runs.setup import heldout_feed, training_feed
from foreword.types import Array, Backward, Batch, Vocab

MAX_COUNTED = 50_000_000  # tokens of training text read; less than a minute
MAX_MASKED = 4_000_000  # predictions counted if there are no bigrams: enough for their frequencies
CHUNK = 1 << 20  # tokens read at once

# (context, target) of predictions: each (predictions,) int64; the context is the token before.
Pairs = tuple[Array, Array]


@dataclass(frozen=True)
class BigramCounts:
    """The counts of tokens, and of pairs of neighbours within a document.

    Attributes:
        vocab: number of ids.
        unigrams: the count of each token, (vocab,) int64.
        pairs: each pair that occurs, as `first * vocab + second`, sorted; (pairs,) int64.
        pair_counts: the count of each, (pairs,) int64.
        tokens: the number of tokens counted.
    """

    vocab: int
    unigrams: Array
    pairs: Array
    pair_counts: Array
    tokens: int

    def unigram_nats(self, tokens: Array) -> Array:
        """Return -log p(token), add-one smoothed; (...) -> (...)."""
        p = (self.unigrams + 1) / (self.unigrams.sum() + self.vocab)
        return np.asarray(-np.log(p)[tokens])

    def bigram_nats(self, pairs: Array) -> Array:
        """Return -log p(second | first) of pairs `first * vocab + second`; (...) -> (...).

        Interpolated absolute discounting (Ney, Essen & Kneser 1994): n1 / (n1 + 2 n2) is subtracted
        from the count of each pair, and goes to the unigram model. The probabilities of all second
        tokens sum to 1.
        """
        # The discount, and the counts by first token.
        once, twice = (int((self.pair_counts == n).sum()) for n in (1, 2))
        discount = once / (once + 2 * twice) if once and twice else 0.5
        first = self.pairs // self.vocab
        count_of_first = np.bincount(first, weights=self.pair_counts, minlength=self.vocab)
        pairs_of_first = np.bincount(first, minlength=self.vocab)
        # Look up the pairs.
        at = np.searchsorted(self.pairs, pairs)
        at = np.minimum(at, max(0, len(self.pairs) - 1))
        is_seen = self.pairs[at] == pairs if len(self.pairs) else np.zeros(pairs.shape, bool)
        counts = np.where(is_seen, self.pair_counts[at] if len(self.pairs) else 0, 0)
        total = count_of_first[pairs // self.vocab]
        discounted = discount * pairs_of_first[pairs // self.vocab]
        unigram = np.exp(-self.unigram_nats(pairs % self.vocab))
        # After an unseen first token, the unigram alone.
        with np.errstate(invalid="ignore"):
            p = (np.maximum(counts - discount, 0.0) + discounted * unigram) / np.maximum(total, 1)
        return np.asarray(-np.log(np.where(total > 0, p, unigram)))


@dataclass(frozen=True)
class Baseline:
    """The loss of a table of counts.

    Attributes:
        name: `unigram counts` or `bigram counts`.
        loss: nats per prediction.
        predictions: the number of predictions.
        about: what was counted and what is predicted, as a sentence.
    """

    name: str
    loss: float
    predictions: int
    about: str


def prediction_name(recipe: Recipe) -> str:
    """Return what one prediction of a recipe's objective is: token, masked token, target token."""
    predicts = recipe.objective.predicts
    if recipe.model.is_count_based or predicts.form == "next":
        return "token"
    if predicts.form == "target":
        return "target token"
    if predicts.any_order:
        return "token"
    is_masked = predicts.form == "in_place" and not predicts.in_order
    return "masked token" if is_masked else "predicted token"


def unigram_loss(
    recipe: Recipe, vocab: Vocab, prepared: PreparedText, watch: Callable[[float, float], None]
) -> float | None:
    """Return the loss of token frequencies on what a recipe's held-out loss is measured on.

    None of an objective that predicts no tokens or that tells replaced ones too (ELECTRA), and of a
    mixture, whose loss is a mean over sources. It does not depend on the model.

    Args:
        recipe: the recipe.
        vocab: the vocabulary of the text's tokenizer.
        prepared: the text.
        watch: as in `of_counts`.
    """
    predicts = recipe.objective.predicts
    compares = predicts.tokens and not predicts.replacements and not prepared.sources
    if not compares:
        return None
    rows = recipe.train.heldout_rows
    found = of_counts(recipe, vocab, prepared, rows, 0, watch, with_bigrams=False)
    return found[0].loss if found else None


def of_counts(
    recipe: Recipe,
    vocab: Vocab,
    prepared: PreparedText,
    rows: int,
    streams: int,
    watch: Callable[[float, float], None],
    *,
    with_bigrams: bool,
) -> list[Baseline]:
    """Return the losses of counts of the training text on the predictions of `measure`.

    Args:
        recipe: that of the model.
        vocab: its tokenizer's vocabulary.
        prepared: its text.
        rows: the maximum number of held-out rows, as the model's loss was measured.
        streams: as in `measure`.
        watch: receives the tokens counted and their total.
        with_bigrams: whether each token is predicted given the one before it, so that bigrams
            compare.
    """
    train = _training_pairs(recipe, prepared.train, vocab, with_bigrams)
    counts = _count(train, vocab, with_bigrams, watch, prepared.train.tokens_total)
    if not counts or not counts[0].tokens:
        return []
    # Score the held-out predictions, each direction by its own counts.
    nats, predictions = np.zeros(2), 0
    for directions in _heldout_pairs(recipe, prepared.heldout, vocab, rows, streams):
        for count, (context, target) in zip(counts, directions, strict=True):
            nats[0] += count.unigram_nats(target).sum()
            if with_bigrams:
                nats[1] += count.bigram_nats(context * vocab.size + target).sum()
            predictions += len(target)
    if not predictions:
        return []
    noun, counted = prediction_name(recipe), sum(count.tokens for count in counts)
    what = f"among {counted:,} {noun}s of the training text; at the {predictions:,} positions that "
    what += "the model predicts"
    losses = [(f"each {noun} by its frequency", nats[0], "unigram counts")]
    if with_bigrams:
        side = "before or after" if len(counts) > 1 else "before"
        about = f"each {noun} by its frequency given the one {side}"
        losses.insert(0, (about, nats[1], "bigram counts"))
    return [
        Baseline(name, float(total) / predictions, predictions, f"{about} {what}")
        for about, total, name in losses
    ]


def _count(
    pairs: Iterable[tuple[Pairs, ...]],
    vocab: Vocab,
    with_bigrams: bool,
    watch: Callable[[float, float], None],
    total: int,
) -> list[BigramCounts]:
    """Count the predictions of the training text; one table per direction of prediction."""
    unigrams: list[Array] = []
    keys: list[list[Array]] = []
    read, limit = 0, min(total, MAX_COUNTED if with_bigrams else MAX_MASKED)
    for directions in pairs:
        unigrams = unigrams or [np.zeros(vocab.size, np.int64) for _ in directions]
        keys = keys or [[] for _ in directions]
        for n, (context, target) in enumerate(directions):
            unigrams[n] += np.bincount(target, minlength=vocab.size)
            if with_bigrams:
                keys[n].append(context * vocab.size + target)
        read += len(directions[0][1])
        watch(min(read, limit), limit)
        if read >= limit:
            break
    tables = []
    for bigram_keys, unigram_counts in zip(keys, unigrams, strict=True):
        joined = np.concatenate(bigram_keys) if bigram_keys else np.zeros(0, np.int64)
        distinct, counts = np.unique(joined, return_counts=True)
        tables.append(
            BigramCounts(vocab.size, unigram_counts, distinct, counts, int(unigram_counts.sum()))
        )
    return tables


def _training_pairs(
    recipe: Recipe, shards: Shards, vocab: Vocab, with_bigrams: bool
) -> Iterator[tuple[Pairs, ...]]:
    """Yield the predictions of training: one epoch, or with masking as many as the caller reads.

    Where each epoch masks other tokens, several epochs predict every token about once.
    """
    if recipe.model.is_count_based:
        yield from _ngram_pairs(recipe, shards, vocab, MAX_COUNTED)
        return
    if shards.tokens_total < recipe.packing.length:
        return
    feed = replace(training_feed(recipe, shards, vocab), reads_whole=True)
    length = recipe.packing.length
    at_once = max(1, min(CHUNK // length, feed.packed.rows_per_epoch))
    rows = MAX_COUNTED // length
    if with_bigrams:
        rows = min(rows, feed.packed.rows_per_epoch)
    for start in range(0, rows, at_once):
        numbers = np.arange(start, min(start + at_once, rows))
        yield _pairs_of(feed.batch(numbers, recipe.train.seed))


def _heldout_pairs(
    recipe: Recipe, shards: Shards, vocab: Vocab, rows: int, streams: int
) -> Iterator[tuple[Pairs, ...]]:
    """Yield the predictions that the held-out loss is measured on."""
    if recipe.model.is_count_based:
        yield from _ngram_pairs(recipe, shards, vocab, rows * recipe.packing.length)
        return
    for batch in heldout_feed(recipe, shards, vocab, streams).heldout(rows):
        yield _pairs_of(batch)


def _ngram_pairs(
    recipe: Recipe, shards: Shards, vocab: Vocab, max_tokens: int
) -> Iterator[tuple[Pairs, ...]]:
    """Yield all tokens of texts with the one before, as n-gram models read them."""
    texts = NgramTexts.of(shards, vocab, *recipe.bos_and_eos)
    end = min(len(texts), max_tokens)
    for at in range(0, end, CHUNK):
        overlap = min(at, 1)
        ids = texts.read(at - overlap, min(at + CHUNK, end)).astype(np.int64)
        is_text = ids[1:] != texts.start
        yield ((ids[:-1][is_text], ids[1:][is_text]),)


def _pairs_of(batch: Batch) -> tuple[Pairs, ...]:
    """Return the predictions of a batch, with the token that each one's position holds."""
    backward = batch.part(Backward)
    targets = [(batch.targets, batch.weights)]
    targets += [] if backward is None else [(backward.targets, backward.weights)]
    return tuple(_scored(batch.ids, *pair) for pair in targets)


def _scored(ids: Any, targets: Any, weights: Any) -> Pairs:
    is_scored = np.asarray(weights) > 0
    target = np.asarray(targets)[is_scored].astype(np.int64)
    same_shape = ids.shape == targets.shape  # in a query stream the targets stand apart
    context = np.asarray(ids)[is_scored].astype(np.int64) if same_shape else np.zeros_like(target)
    return context, target
