"""The loss by position in rows several times as long as those of training."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar

import numpy as np

from foreword.data.shards import Shards
from foreword.errors import UserError
from foreword.probes._contract import Finding, ProbedModel, Row
from foreword.probes._marks import MAX_RUNS, line_style, title
from foreword.runs.setup import heldout_feed
from foreword.settings.ranges import Count, Ranged
from foreword.train.feed import Feed
from foreword.train.step import evaluate
from foreword.types import Batch, TermCounts

FEW = 200  # predictions at some positions, below which a loss says little


@dataclass(frozen=True)
class LossByPosition(Ranged):
    """The loss by position, also at positions beyond the length of training's rows.

    A position scheme that extrapolates predicts there as well as before, or better, since more can
    be seen. Learned positions were never trained there, and fail; where the table ends they cannot
    be read at all (`model.position.length` makes a longer one). Positions are taken half a row of
    training at a time. The model's score is its loss beyond the length of training.

    Rows are packed, masked and corrupted as in training. Where each document of a row has positions
    of its own, only long documents reach the last ones; the text is then best a long one.

    Attributes:
        times: how many times as long as in training the rows are.
        rows: the most rows to read; default: all of the text.

    Reference: Press et al. 2022 ("ALiBi"), section 2; Vaswani et al. 2017, section 3.5.
    """

    reads_text: ClassVar[bool] = True

    times: Count = 4
    rows: Count | None = None

    def measure(self, models: Sequence[ProbedModel]) -> Finding:
        """Measure the loss of each model at each range of positions.

        Raises:
            UserError: a model has fewer positions, predicts something else than tokens of its rows,
                or the text does not fill a row; all models are checked before one is measured.
        """
        with ExitStack() as stack:
            opened = [stack.enter_context(probed.shards()) for probed in models]
            feeds = [self._feed(*pair) for pair in zip(models, opened, strict=True)]
            return self._measure(models, feeds)

    def _measure(self, models: Sequence[ProbedModel], feeds: Sequence[Feed]) -> Finding:
        rows: list[Row] = []
        details: list[Row] = []
        scores: dict[str, float | None] = {}
        for probed, feed in zip(models, feeds, strict=True):
            length = probed.trained.recipe.packing.length
            found = _losses(probed, feed, self.times * length, length // 2 or 1, self.rows)
            details += found
            within, beyond = (_mean(part) for part in _split(found, length))
            last = _mean(found[-2:])
            row = {"run": probed.label, "trained to": length, "within": within, "beyond": beyond}
            rows.append({**row, f"at {self.times} times": last})
            scores[probed.label] = beyond
        few = {row["run"]: row["positions"] for row in details if row["predictions"] < FEW}
        notes = [f"{run}: fewer than {FEW} predictions at {at}" for run, at in few.items()]
        notes.append(
            "nats per prediction, at positions within and beyond the length of training's rows, "
            "and in the last such length"
        )
        name = f"the loss by position, in rows {self.times} times as long as in training"
        return Finding(
            name, rows, details, notes, lambda figure: _plot(figure, details), "loss", scores
        )

    def _feed(self, probed: ProbedModel, shards: Shards) -> Feed:
        """Return long rows of a model's text, tested on the first."""
        trained = probed.trained
        trained.require_token_head("causal, masked, encoder-decoder")
        if trained.is_count_based:
            raise UserError(f"{trained.name}: counts have no positions")
        packing: Any = trained.recipe.packing
        length = self.times * packing.length
        try:
            recipe = replace(trained.recipe, packing=replace(packing, length=length))
        except UserError as error:
            raise UserError(f"{trained.name}: cannot read such rows: {error}") from error
        together = max(1, (recipe.train.micro_batch or recipe.rows_per_step) // self.times)
        if shards.tokens_total < length:
            raise UserError(
                f"{trained.name}: {shards.tokens_total} tokens of held-out text do not fill "
                f"one row of {length}; name a longer text with --data"
            )
        feed = heldout_feed(recipe, shards, trained.vocab, together)
        first = next(feed.heldout(1))
        if np.shape(first.weights) != np.shape(first.positions) or first.part(TermCounts):
            raise UserError(
                f"{trained.name}: its loss has no positions; a model of one objective is required, "
                "which predicts tokens of its rows"
            )
        return feed


def _losses(
    probed: ProbedModel, feed: Feed, length: int, width: int, rows: int | None
) -> list[dict[str, Any]]:
    """Return the loss at each `width` positions of rows of `length` tokens."""
    trained, found = probed.trained, []
    loss_fn = partial(trained.recipe.objective.loss, trained.model)
    starts = range(0, length, width)
    for n, first in enumerate(starts):
        probed.progress(n, len(starts))
        batches = feed.heldout(rows or feed.packed.rows_per_epoch)
        between = _between(batches, first, first + width)
        measured = evaluate(trained.model, between, loss_fn, trained.dtype)
        known = measured.loss if math.isfinite(measured.loss) else None
        at = {"positions": f"{first} to {min(first + width, length) - 1}", "from": first}
        found.append({"run": probed.label, **at, "loss": known, "predictions": int(measured.count)})
    return found


def _between(batches: Iterable[Batch], first: int, stop: int) -> Iterator[Batch]:
    """Yield the batches with the predictions at some positions alone."""
    for batch in batches:
        is_between = (batch.positions >= first) & (batch.positions < stop)
        yield replace(batch, weights=np.where(is_between, batch.weights, np.float32(0)))


def _split(found: Sequence[Row], length: int) -> tuple[list[Row], list[Row]]:
    return [r for r in found if r["from"] < length], [r for r in found if r["from"] >= length]


def _mean(found: Sequence[Row]) -> float | None:
    """Return the mean loss of some ranges of positions; None without predictions."""
    count = sum(row["predictions"] for row in found if row["loss"] is not None)
    total = sum(row["predictions"] * row["loss"] for row in found if row["loss"] is not None)
    return total / count if count else None


def _plot(figure: Any, details: Sequence[Row]) -> None:
    """Plot the loss of each run against the position."""
    axes: Any = figure.add_subplot()
    names = list(dict.fromkeys(row["run"] for row in details))
    runs = names[:MAX_RUNS]
    for number, name in enumerate(runs):
        points = [row for row in details if row["run"] == name and row["loss"] is not None]
        style = line_style(number, len(runs), len(points))
        axes.plot([r["from"] for r in points], [r["loss"] for r in points], label=name, **style)
    heading = title("The loss by position, beyond the length of training", len(names))
    axes.set(xlabel="position", ylabel="nats per prediction", title=heading)
    axes.grid(alpha=0.3)
    figure.legend(loc="outside lower center", ncols=2, frameon=False)
