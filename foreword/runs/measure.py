"""The loss of a model's own objective on a text, and its record in the log."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch

from foreword.data.shards import Shards
from foreword.models.ngram import table_of
from foreword.ngrams import texts
from foreword.nn.model import Model
from foreword.runs.recipe import Recipe
from foreword.runs.setup import SourceFeed, heldout_feed
from foreword.runs.trained_model import TrainedModel
from foreword.train.budget import Progress
from foreword.train.feed import Feed
from foreword.train.step import LossFunction, evaluate
from foreword.types import Batch

Watch = Callable[[float, float], None]  # rows done, rows in all


@dataclass(frozen=True)
class Measure:
    """The loss of a model on a text.

    Attributes:
        loss: nats per prediction.
        predictions: number of predictions; a masked language model predicts a share of the tokens.
        predicts_all: whether it is a loss of the text: every token is predicted, by probabilities.
        has_perplexity: whether the loss is the logarithm of a perplexity, unlike a sum of several
            losses, or scores that are not probabilities.
        components: nats per prediction of each term of a sum, and other reported means.
        sources: nats per prediction on each source of a mixture, by name.
        batches: sum in nats and predictions of each batch of rows; none of count-based models.
        is_bound: whether the loss is an estimate of an upper bound of the text's negative
            log-likelihood (`Prediction.any_order`).
    """

    loss: float
    predictions: int
    predicts_all: bool
    has_perplexity: bool
    components: Mapping[str, float] = field(default_factory=dict)
    sources: Mapping[str, float] = field(default_factory=dict)
    batches: tuple[tuple[float, float], ...] = ()
    is_bound: bool = False

    @property
    def perplexity(self) -> float | None:
        """The perplexity, or None if it is not defined."""
        return perplexity_of(self.loss) if self.has_perplexity else None

    def bits_per_byte(self, bytes_per_token: float) -> float | None:
        """Return bits per byte for a text of this many bytes per token; None if not defined."""
        return bits_per_byte(self.loss, bytes_per_token) if self.predicts_all else None


def bits_per_byte(nats_per_token: float, bytes_per_token: float) -> float:
    """Convert nats per token to bits per byte of text."""
    return nats_per_token / math.log(2) / bytes_per_token


def perplexity_of(loss: float) -> float:
    """Return exp of a loss in nats; infinite for an impossible text."""
    return math.inf if math.isinf(loss) else math.exp(min(loss, 700.0))


def measure(
    trained: TrainedModel,
    shards: Shards,
    *,
    rows: int | None = None,
    streams: int = 0,
    watch: Watch | None = None,
    draws: int = 1,
) -> Measure | None:
    """Measure the loss on a text: row by row, or on the whole text for count-based models.

    Args:
        trained: the model.
        shards: the text.
        rows: maximum rows, or as many tokens for a count-based model; default
            `train.heldout_rows`, or the whole text.
        streams: number of streams that a model with memory reads in parallel; 0 for that of
            training.
        watch: called with the rows done and their total.
        draws: how often each row is corrupted, for a model whose loss is a bound.

    Returns:
        The measurement, or None if the text is too short.
    """
    recipe, vocab = trained.recipe, trained.vocab
    if recipe.model.is_count_based:
        limit = None if rows is None else rows * recipe.packing.length
        table = table_of(trained.model)
        text = texts.NgramTexts.of(shards, vocab, *recipe.bos_and_eos)
        counts, is_normalised = texts.measure(table, text, limit), table.header.is_normalised
        measured = Measure(counts.loss, counts.tokens, is_normalised, is_normalised)
        return measured if counts.tokens else None
    if shards.tokens_total < recipe.packing.length:
        return None
    feed = heldout_feed(recipe, shards, vocab, streams)
    limit = recipe.train.heldout_rows if rows is None else rows
    return measure_rows(recipe, trained.model, feed, limit, trained.dtype, watch, draws=draws)


def measure_rows(
    recipe: Recipe,
    model: Model,
    feed: Feed,
    rows: int,
    dtype: torch.dtype,
    watch: Watch | None = None,
    loss_fn: LossFunction | None = None,
    draws: int = 1,
) -> Measure:
    """Measure the loss on the first rows of a text; by `loss_fn` if that gathers its weights."""
    is_bound = recipe.objective.predicts.any_order
    draws = draws if is_bound else 1
    batches: Iterable[Batch] = feed.heldout(rows, draws)
    if watch is not None:
        batches = _watched(batches, draws * min(rows, feed.packed.rows_per_epoch), watch)
    evaluated = evaluate(model, batches, loss_fn or partial(recipe.objective.loss, model), dtype)
    predictions, components = round(evaluated.count) // draws, evaluated.components
    return Measure(
        evaluated.loss,
        predictions,
        feed.predicts_all,
        not components,
        components,
        batches=evaluated.batches,
        is_bound=is_bound,
    )


def measure_sources(
    recipe: Recipe,
    model: Model,
    sources: Sequence[SourceFeed],
    rows: int,
    dtype: torch.dtype,
    watch: Watch | None = None,
    loss_fn: LossFunction | None = None,
) -> Measure | None:
    """Measure the loss on each source of a mixture, and their mean by shares of training.

    Args:
        recipe: recipe of the model.
        model: the model, on its device.
        sources: the sources; those without held-out text are left out.
        rows: maximum rows of all sources together, the same number of each.
        dtype: precision of the computation.
        watch: called with the rows done and their total, of each source in turn.
        loss_fn: as in `measure_rows`.

    Returns:
        The measurement, or None if no source has enough text.
    """
    results = [
        (source, measure_rows(recipe, model, source.heldout, limit, dtype, watch, loss_fn))
        for limit in [max(1, rows // max(1, len(sources)))]
        for source in sources
        if source.heldout is not None and source.share > 0
    ]
    if not results:
        return None
    whole = sum(source.share for source, _ in results)

    def mean(value_of: Callable[[Measure], float]) -> float:
        return sum(source.share * value_of(result) for source, result in results) / whole

    first = results[0][1]
    return Measure(
        mean(lambda result: result.loss),
        sum(result.predictions for _, result in results),
        first.predicts_all,
        first.has_perplexity,
        {name: mean(partial(_component, name)) for name in first.components},
        {source.name: result.loss for source, result in results},
        is_bound=first.is_bound,
    )


def _component(name: str, measured: Measure) -> float:
    return measured.components[name]


def _watched(batches: Iterable[Batch], rows: int, watch: Watch) -> Iterator[Batch]:
    done = 0
    for batch in batches:
        yield batch
        done += len(batch.ids)
        watch(done, rows)


def heldout_record(spent: Progress, measured: Measure, bytes_per_token: float) -> dict[str, Any]:
    """Return the record of a held-out loss for `metrics.jsonl`.

    Args:
        spent: what the run has used so far.
        measured: the measurement.
        bytes_per_token: mean bytes of a token of the text.
    """
    return {
        "kind": "heldout",
        "step": spent.steps,
        "loss": measured.loss,
        "perplexity": measured.perplexity,
        "bits_per_byte": measured.bits_per_byte(bytes_per_token),
        "predictions": measured.predictions,
        **({"is_bound": True} if measured.is_bound else {}),
        "tokens": spent.tokens,
        "flops": spent.flops,
        "seconds": round(spent.seconds, 3),
        **measured.components,
        **({"sources": dict(measured.sources)} if measured.sources else {}),
    }
