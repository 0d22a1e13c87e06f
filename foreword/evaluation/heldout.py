"""The loss of a model's objective on held-out text, and of count-based baselines."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from foreword.data.holdout import SplitFiles
from foreword.data.prepared_text import PreparedText, data_warnings
from foreword.data.shards import Shards
from foreword.data.write_shards import PrepareSettings, prepare
from foreword.disk import atomic
from foreword.errors import UserError
from foreword.evaluation import baselines
from foreword.evaluation.baselines import Baseline
from foreword.runs.corpus import run_shards
from foreword.runs.measure import bits_per_byte, measure, perplexity_of
from foreword.runs.stages import Stage, unwatched
from foreword.runs.trained_model import TrainedModel
from foreword.types import Vocab

ALL = 1 << 62  # rows
_CHUNK = 1 << 24  # tokens searched at once


@dataclass(frozen=True)
class HeldOut:
    """A loss on held-out text.

    Attributes:
        what: the model or the baseline.
        loss: nats per prediction.
        predictions: the number of predictions; a masked language model predicts some of the tokens.
        bits_per_byte: bits per byte of text if every token is predicted, else None.
        has_perplexity: whether the exponential of the loss is a perplexity; it is not for a sum of
            losses, or for scores that are not probabilities.
        components: the loss of each term of a sum, and other means.
        unknown: share of the text's tokens that are [UNK]; these have a low loss, so a high share
            makes the loss less comparable.
        about: what the figure is, as a sentence; "" if obvious.
        batches: sum in nats and predictions of each batch of rows; none of count-based models.
        is_bound: whether the loss is an upper bound of that of the text; then so are perplexity and
            bits per byte.
    """

    what: str
    loss: float
    predictions: int
    bits_per_byte: float | None
    has_perplexity: bool = True
    components: Mapping[str, float] = field(default_factory=dict)
    unknown: float = 0.0
    about: str = ""
    batches: tuple[tuple[float, float], ...] = ()
    is_bound: bool = False

    @property
    def perplexity(self) -> float | None:
        """exp of the loss, None without a meaning, infinite for an impossible text."""
        return perplexity_of(self.loss) if self.has_perplexity else None

    def as_row(self) -> dict[str, float | int | str | None]:
        """Return a row of JSON, which says `is_bound` of a bound alone."""
        return {
            "what": self.what,
            "loss": _finite(self.loss),
            "perplexity": _finite(self.perplexity),
            "bits_per_byte": _finite(self.bits_per_byte),
            "predictions": self.predictions,
            **({"is_bound": True} if self.is_bound else {}),
        }


def shards_of(prompted: TrainedModel, run: Path) -> PreparedText:
    """Return the token shards of a run, checked against the model's tokenizer.

    Raises:
        UserError: they are missing, or were made with another tokenizer.
    """
    prepared = run_shards(run)
    if prepared.manifest["tokenizer"]["fingerprint"] != prompted.tokenizer.fingerprint:
        raise UserError(f"{prepared.folder}: these shards were made with another tokenizer")
    return prepared


def on_prepared(
    prompted: TrainedModel,
    prepared: PreparedText,
    rows: int = ALL,
    streams: int = 0,
    stage: Stage = unwatched,
    draws: int = 1,
) -> list[HeldOut]:
    """Return the loss on the held-out text of a run's shards, and those of count-based baselines.

    The rows and their masks are those of the held-out loss during training.

    Args:
        prompted: the run's model.
        prepared: the run's token shards.
        rows: the maximum number of rows to read.
        streams: the number of parallel streams that a model with a memory reads the text in; 1
            reads it as one stream, 0 as many as evaluation during training.
        stage: receives the name of each stage, and its progress.
        draws: how often each row is masked, for a model whose loss is a bound.

    Raises:
        UserError: they hold out too little.
    """
    per_token = prepared.bytes_per_token(ends=prompted.recipe.ends_texts)
    losses = [on_shards(prompted, (prepared.heldout, per_token), rows, streams, stage, draws)]
    if prompted.recipe.objective.predicts.tokens and prepared.train.tokens_total:
        # Bigrams are not comparable with a model that does not predict every token after its own
        # left neighbour.
        predicts_all = losses[0].bits_per_byte is not None and not losses[0].is_bound
        watch = stage("counting tokens to compare with")
        counts = baselines.of_counts(
            prompted, prepared, rows, streams, watch, with_bigrams=predicts_all
        )
        losses += _token_loss(prompted, losses[0], counts)
        for baseline in counts:
            bits = bits_per_byte(baseline.loss, per_token) if predicts_all else None
            losses.append(
                HeldOut(
                    baseline.name, baseline.loss, baseline.predictions, bits, about=baseline.about
                )
            )
    return losses + list(_by_source(prompted, prepared, rows, streams, stage, draws))


def _by_source(
    prompted: TrainedModel,
    prepared: PreparedText,
    rows: int,
    streams: int,
    stage: Stage,
    draws: int,
) -> Iterator[HeldOut]:
    """Yield the loss on each source of a mixture that holds out a row or more."""
    for name, source in prepared.sources.items():
        if source.heldout.tokens_total >= prompted.recipe.packing.length:
            per_token = source.bytes_per_token(ends=prompted.recipe.ends_texts)
            shards = source.heldout, per_token
            heldout = on_shards(prompted, shards, rows, streams, stage, draws)
            yield replace(heldout, what=f"{heldout.what}: {name}")


def _token_loss(
    prompted: TrainedModel, whole: HeldOut, counts: Sequence[Baseline]
) -> list[HeldOut]:
    """Return the part of a sum of losses that compares with counts of tokens; none otherwise."""
    name = prompted.recipe.objective.predicts.component
    if not counts or name not in whole.components:
        return []
    loss, predictions = whole.components[name], counts[0].predictions
    what = f"{whole.what}: {name.replace('_', ' ')}"
    about = "the part of the loss that the counts compare with"
    return [HeldOut(what, loss, predictions, None, about=about)]


def on_shards(
    prompted: TrainedModel,
    shards: tuple[Shards, float],
    rows: int = ALL,
    streams: int = 0,
    stage: Stage = unwatched,
    draws: int = 1,
) -> HeldOut:
    """Return the loss on the shards that `shards_of_texts` yields; see `on_prepared`.

    Raises:
        UserError: the text is shorter than a row.
    """
    (text, bytes_per_token), watch = shards, stage("measuring the loss")
    # The loss as training measures it.
    measured = measure(prompted, text, rows=rows, streams=streams, watch=watch, draws=draws)
    if measured is None:
        raise UserError(
            f"{text.tokens_total} tokens of held-out text do not fill one row of "
            f"{prompted.recipe.packing.length}; name a "
            "longer text with --data"
            if text.tokens_total
            else "there is no held-out text; name a text with --data"
        )
    return HeldOut(
        prompted.description,
        measured.loss,
        measured.predictions,
        measured.bits_per_byte(bytes_per_token),
        measured.has_perplexity,
        measured.components,
        unknown_in(text, prompted.vocab),
        batches=measured.batches,
        is_bound=measured.is_bound,
        about=_about(measured.batches, draws) if measured.is_bound else "",
    )


def _about(batches: Sequence[tuple[float, float]], draws: int) -> str:
    """Return the sentence about a loss that is a bound, its batches in order of `draws`."""
    by = f"{draws} random masking{'s' * (draws > 1)} of each row"
    if draws > 1:
        totals = np.asarray(batches).reshape(draws, -1, 2).sum(1)  # nats, predictions
        error = (totals[:, 0] / totals[:, 1]).std(ddof=1) / math.sqrt(draws)
        by += f" with a standard error of {error:.3f} nats"
    return (
        f"an upper bound of the text's negative log-likelihood, estimated by {by}; an exact loss "
        "above it belongs to a worse model, one below it decides nothing"
    )


@contextmanager
def shards_of_texts(
    prompted: TrainedModel,
    texts: Sequence[str],
    note: Callable[[str], None] | None = None,
    stage: Stage = unwatched,
) -> Iterator[tuple[Shards, float]]:
    """Prepare texts as temporary shards; yield them and their bytes per predicted token.

    Args:
        prompted: the model.
        texts: files, folders or globs.
        note: receives the data warnings.
        stage: receives the name of each stage, and its progress.

    Raises:
        UserError: they cannot be read.
    """
    with atomic.temporary_folder() as folder:
        settings = PrepareSettings(heldout=0.0)
        read = prompted.recipe.read
        progress = stage("cutting text into tokens")
        files = SplitFiles.find(texts, read)
        prepared = prepare(files, prompted.tokenizer, folder, settings, progress)
        warnings = data_warnings(
            prepared.manifest["read"]["counts"], prepared.counts["train"].unknown
        )
        if note is not None and warnings:
            note("; ".join(f"{count:,} {what}" for what, count in warnings.items()))
        yield prepared.train, prepared.bytes_per_token("train", ends=prompted.recipe.ends_texts)


def unknown_in(shards: Shards, vocab: Vocab) -> float:
    """Return the share of a text's tokens that are [UNK]."""
    starts = range(0, shards.tokens_total, _CHUNK)
    count = sum(int((shards.tokens[at : at + _CHUNK] == vocab.unknown).sum()) for at in starts)
    return count / max(1, shards.tokens_total)


def _finite(value: float | None) -> float | None:
    """Return the value if JSON can hold it, else None."""
    return value if value is not None and math.isfinite(value) else None
