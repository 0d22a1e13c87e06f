"""How far back the loss reaches: the gradient with respect to the states before it."""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, ClassVar

import numpy as np
import torch
from annotated_types import Interval

from foreword.errors import UserError
from foreword.evaluate.prompting import PromptedModel
from foreword.probes._contract import Finding, ProbedModel, Row
from foreword.probes._marks import MAX_RUNS, line_style, title
from foreword.probes._reach import GradientNorms, gradient_norms, states_of_layer
from foreword.ranges import LARGEST, Count, CountOrZero, Ranged
from foreword.runs.recipe import Recipe
from foreword.runs.setup import heldout_feed
from foreword.train.feed import HELDOUT_SEED
from foreword.types import Batch

SHOWN = (0, 1, 4, 16, 64, 256, 1024)
SHARE = 0.01  # of the greatest norm, below which a gradient counts as gone
BAND = (0.1, 0.9)
FLOOR = 1e-12  # of the greatest mean: one line that falls to 1e-60 would press all others together


@dataclass(frozen=True)
class GradientReach(Ranged):
    """The norm of d loss_t / d h_(t-k): of the loss at place t, to the state k steps before it.

    The loss is that of the single prediction made at place t, in nats; h_s is the state of one
    layer at place s, and the derivative runs along every way from it to the loss: steps to come,
    layers above, attention. It tells how much a small push of that state would move the loss.

    Layer 0 is what enters the first layer, layer n what leaves the n-th. Without a choice it is
    the lowest layer whose states hand on, from place to place, what stands before them: of a
    recurrent model the hidden state of its first layer (for an LSTM h, the cell being one of the
    ways from it to the loss), of all others what enters the first layer at that place. In both
    cases all that the token at t-k can do to later places goes through this state, and so the
    curves compare; their levels also depend on the scale of the states, their fall does not.

    Of a model with a source the states are its encoder's, and k goes back through the target to its
    beginning and then through the source from its end: the way that a model without attention must
    carry everything.

    Computed in double precision, on a copy, on rows of the run's held-out text as training makes
    them, each row begun without a state carried over. The mean is geometric, over places and rows.
    In a linear network, h_t = W h_(t-1) + U x_t, the norm is that of (W')^k g, with g the gradient
    at t itself.

    Attributes:
        layer: whose states; see above.
        rows: of text.
        length: tokens of a row; as in training if unsaid.
        positions: in each row, spread evenly over the last half of its predictions.

    Reference: Hochreiter 1991; Bengio et al. 1994; Pascanu et al. 2013, section 2.
    Differs from the papers: they bound the norm of the matrix d h_t / d h_(t-k); here it is that
    of a vector, the loss's gradient, which is what training sees.
    """

    reads_text: ClassVar[bool] = True

    layer: CountOrZero | None = None
    rows: Count = 8
    length: Annotated[int, Interval(ge=2, le=LARGEST)] | None = None
    positions: Count = 16

    def measure(self, models: Sequence[ProbedModel]) -> Finding:
        """The norm at each distance, for each model.

        Raises:
            UserError: a model predicts no tokens or shows no states, or there is too little text;
                all models are asked before the first one is looked into.
        """
        details: list[Row] = []
        rows: list[Row] = []
        notes: list[str] = []
        asked = [self._batch_and_layer(probed) for probed in models]  # all, before any is computed
        for probed, (batch, layer) in zip(models, asked, strict=True):
            found = _measure_norms(probed.trained, batch, layer, self.positions)
            curve = _curve(found)
            details += [{"run": probed.label, "layer": layer, **point} for point in curve]
            rows.append({"run": probed.label, "layer": layer, **_headline(curve)})
            notes += _notes(probed.label, curve, found)
        notes.append(
            f"geometric means of |d loss / d state k steps back|; reach: the first k from which on "
            f"it stays below {SHARE:.0%} of its greatest; per step: the factor of its fall to there"
        )
        title = "the gradient of the loss with respect to the state k steps back"
        if _floor(details) > min((row["mean"] for row in details if row["mean"] > 0), default=0):
            notes.append(f"the plot ends at {FLOOR:g} of the greatest mean; the figures go on")
        rows = _same_keys(rows)
        return Finding(title, rows, details, notes, lambda figure: _plot(figure, details))

    def _batch_and_layer(self, probed: ProbedModel) -> tuple[Batch, int]:
        """The rows that a model is looked at with, and the layer, tried on the first row.

        Raises:
            UserError: see `measure`.
        """
        prompted = probed.trained
        prompted.require_token_head()
        reader = prompted.recipe.objective.token_backbone(prompted.model)
        layer = reader.first_state if self.layer is None else self.layer
        with probed.shards() as shards:
            recipe = self._recipe(prompted)
            if shards.tokens_total < recipe.packing.length:
                raise UserError(
                    f"{prompted.name}: {shards.tokens_total} tokens of held-out text do not fill "
                    f"one row of {recipe.packing.length}; name a longer text with --data"
                )
            feed = heldout_feed(recipe, shards, prompted.vocab)
            count = min(self.rows, feed.packed.rows_per_epoch)
            batch, first = (feed.batch(np.arange(n), HELDOUT_SEED) for n in (count, 1))
        try:
            states_of_layer(reader, first.to(prompted.device), layer)
        except UserError as error:
            raise UserError(f"{prompted.name}: {error}") from error
        return batch, layer

    def _recipe(self, prompted: PromptedModel) -> Recipe:
        """The model's recipe, with rows as long as asked."""
        packing: Any = prompted.recipe.packing
        return replace(
            prompted.recipe, packing=replace(packing, length=self.length or packing.length)
        )


def _measure_norms(prompted: PromptedModel, batch: Batch, layer: int, places: int) -> GradientNorms:
    """The norms on a copy in double precision; in single, small gradients become 0."""
    # Not on a device that knows none.
    device = torch.device("cpu") if prompted.device.type == "mps" else prompted.device
    model = copy.deepcopy(prompted.model).eval().to(device, torch.float64)
    reader = prompted.recipe.objective.token_backbone(model)
    return gradient_norms(model, batch.to(device), layer, places, reader)


def _curve(found: GradientNorms) -> list[dict[str, Any]]:
    """A record for each distance that occurs: geometric mean, quantiles, count."""
    curve = []
    for k in np.unique(found.distance):
        values = found.norm[found.distance == k]
        positive = values[values > 0]
        mean = float(np.exp(np.log(positive).mean())) if len(positive) else 0.0
        low, high = (float(q) for q in np.quantile(values, BAND))
        zero = 1 - len(positive) / len(values)
        curve.append(
            {"k": int(k), "mean": mean, "low": low, "high": high}
            | {"zero": zero, "count": len(values)}
        )
    return curve


def _headline(curve: Sequence[Row]) -> dict[str, Any]:
    """How far it reaches, how fast it falls, and its mean at a few distances."""
    means = {point["k"]: point["mean"] for point in curve}
    back = [k for k in means if k >= 1]
    top = max(back, key=means.__getitem__, default=0)
    reach, factor = "0", None
    if back and means[top] > 0:
        end = max(k for k in back if means[k] >= SHARE * means[top])
        gone = [k for k in back if k > end]
        reach = str(gone[0]) if gone else f"{end} or more"
        end = gone[0] if gone and means[gone[0]] > 0 else end
        start = top if top < end else back[0]
        if end > start:
            factor = (means[end] / means[start]) ** (1 / (end - start))
    return {"reach": reach, "per step": factor, **{f"k={k}": means[k] for k in SHOWN if k in means}}


def _notes(name: str, curve: Sequence[Row], found: GradientNorms) -> list[str]:
    remarks = []
    gone = [point["k"] for point in curve if point["zero"] == 1]
    if gone and all(point["zero"] == 1 for point in curve if point["k"] >= gone[0]):
        remarks.append(f"{name}: from k = {gone[0]} on the gradient is exactly 0")
    if found.ahead:
        remarks.append(f"{name}: it also reads what stands behind a place; that is not shown")
    if found.broken:
        remarks.append(f"{name}: {found.broken:,} norms are not finite and left out")
    return remarks


def _same_keys(rows: Sequence[Row]) -> list[Row]:
    """Each row with the keys of all, None where it has none."""
    keys = dict.fromkeys(["run", "layer", "reach", "per step"])
    keys |= {f"k={k}": None for k in SHOWN if any(f"k={k}" in row for row in rows)}
    return [keys | dict(row) for row in rows]


def _plot(figure: Any, details: Sequence[Row]) -> None:
    """Distances against norms, a line and a band for each run, down to the floor."""
    figure.set_size_inches(7.6, 5.2)
    axes: Any = figure.add_subplot()
    names = list(dict.fromkeys(row["run"] for row in details))
    shown, floor = names[:MAX_RUNS], _floor(details)
    for number, name in enumerate(shown):
        points = [row for row in details if row["run"] == name and row["mean"] > 0]
        k = [row["k"] for row in points]
        style = line_style(number, len(shown), len(points))
        label = f"{name} (layer {points[0]['layer']})" if points else f"{name} (0)"
        axes.plot(k, [row["mean"] for row in points], label=label, markersize=4.5, **style)
        low = [row["low"] if row["low"] > 0 else math.nan for row in points]
        high = [row["high"] for row in points]
        axes.fill_between(k, low, high, color=style["color"], alpha=0.15, lw=0)
    axes.set(
        xlabel="k: steps back",
        ylabel="|d loss / d state k steps back|",
        yscale="log",
        title=title("How far back the loss reaches", len(names)),
    )
    if axes.get_ylim()[0] < floor:
        axes.set_ylim(floor, 3 * max(row["high"] for row in details))
        axes.set_ylabel(f"{axes.get_ylabel()}\ndown to {FLOOR:g} of the greatest")
    axes.grid(alpha=0.3)
    figure.legend(loc="outside lower center", ncols=2, frameon=False)


def _floor(details: Sequence[Row]) -> float:
    """Where the plot ends."""
    return FLOOR * max((row["mean"] for row in details), default=0.0)
