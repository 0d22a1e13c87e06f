"""How far back the loss reaches: its gradient with respect to earlier states."""

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
from foreword.nn.model import neural
from foreword.probes._contract import Finding, ProbedModel, Row
from foreword.probes._marks import MAX_RUNS, line_style, title
from foreword.probes._reach import GradientNorms, gradient_norms, states_of_layer
from foreword.runs.recipe import Recipe
from foreword.runs.setup import heldout_feed
from foreword.runs.trained_model import TrainedModel
from foreword.settings.ranges import LARGEST, Count, CountOrZero, Ranged
from foreword.train.feed import HELDOUT_SEED
from foreword.types import Batch

SHOWN = (0, 1, 4, 16, 64, 256, 1024)
SHARE = 0.01  # of the largest norm, below which a gradient counts as vanished
BAND = (0.1, 0.9)
FLOOR = 1e-12  # of the largest mean: a line down to 1e-60 would squeeze all others together


@dataclass(frozen=True)
class GradientReach(Ranged):
    """The norm of d loss_t / d h_(t-k), the gradient of the loss to the state k positions earlier.

    The loss is that of the single prediction at position t, in nats; h_s is the state of one layer
    at position s. The derivative runs along all paths from it to the loss: later steps, layers
    above, attention. It is how much a small change of that state changes the loss.

    Layer 0 is the input of the first layer, layer n the output of the n-th. The default is the
    lowest layer whose states carry what precedes them to later positions: in a recurrent model the
    hidden state of its first layer (for an LSTM h; the cell is one of the paths from it to the
    loss), in all others the input of the first layer. In both cases all influence of the token at
    t-k on later positions goes through this state, so the curves are comparable; their levels also
    depend on the scale of the states, their decay does not.

    In a model with a source the states are its encoder's, and k goes back through the target to its
    beginning and then through the source from its end: the path along which a model without
    attention must carry everything.

    Computed in double precision on a copy of the model, on rows of the run's held-out text made as
    in training, each row without a memory of earlier ones. The mean is geometric, over positions
    and rows. In a linear network, h_t = W h_(t-1) + U x_t, the norm is that of (W')^k g, with g the
    gradient at t itself.

    Attributes:
        layer: layer of the states; default: see above.
        rows: number of rows of text.
        length: tokens per row; default: as in training.
        positions: predictions per row, spread evenly over the last half of them.

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
        """Measure the norm at each distance for each model.

        Raises:
            UserError: a model predicts no tokens or exposes no states, or there is too little text;
                all models are checked before the first is measured.
        """
        details: list[Row] = []
        rows: list[Row] = []
        notes: list[str] = []
        inputs = [self._batch_and_layer(probed) for probed in models]  # all, before any is measured
        for probed, (batch, layer) in zip(models, inputs, strict=True):
            norms = _measure_norms(probed.trained, batch, layer, self.positions)
            curve = _curve(norms)
            details += [{"run": probed.label, "layer": layer, **point} for point in curve]
            rows.append({"run": probed.label, "layer": layer, **_headline(curve)})
            notes += _notes(probed.label, curve, norms)
        notes.append(
            f"geometric means of |d loss / d state k steps back|; reach: the first k from which it "
            f"stays below {SHARE:.0%} of its maximum; per step: the factor per step until there"
        )
        title = "the gradient of the loss with respect to the state k steps back"
        if _floor(details) > min((row["mean"] for row in details if row["mean"] > 0), default=0):
            notes.append(f"the plot ends at {FLOOR:g} of the largest mean; the figures continue")
        rows = _same_keys(rows)
        reaches = {row["run"]: float(row["reach"].split()[0]) for row in rows}  # "31 or more"
        return Finding(
            title,
            rows,
            details,
            notes,
            plot=lambda figure: _plot(figure, details),
            measure="reach",
            scores=reaches,
        )

    def _batch_and_layer(self, probed: ProbedModel) -> tuple[Batch, int]:
        """Return the rows and the layer to measure a model on, tested on the first row."""
        prompted = probed.trained
        prompted.require_token_head("causal, masked, permuted, encoder-decoder")
        try:
            reader = neural(prompted.recipe.objective.token_backbone(prompted.model))
        except UserError as error:
            raise UserError(f"{prompted.name}: {error}") from error
        layer = reader.first_contextual_layer if self.layer is None else self.layer
        # The rows, from the model's text.
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
        # A test of the layer.
        try:
            states_of_layer(reader, first.to(prompted.device), layer)
        except UserError as error:
            raise UserError(f"{prompted.name}: {error}") from error
        return batch, layer

    def _recipe(self, prompted: TrainedModel) -> Recipe:
        """Return the model's recipe with rows of the probe's length."""
        packing: Any = prompted.recipe.packing
        return replace(
            prompted.recipe, packing=replace(packing, length=self.length or packing.length)
        )


def _measure_norms(
    prompted: TrainedModel, batch: Batch, layer: int, positions: int
) -> GradientNorms:
    """Return the norms, measured on a copy in double precision; in single, small ones are 0."""
    # MPS has no double precision.
    device = torch.device("cpu") if prompted.device.type == "mps" else prompted.device
    model = copy.deepcopy(prompted.model).eval().to(device, torch.float64)
    reader = neural(prompted.recipe.objective.token_backbone(model))
    return gradient_norms(model, batch.to(device), layer, positions, reader)


def _curve(norms: GradientNorms) -> list[dict[str, Any]]:
    """Return a record for each distance: geometric mean, quantiles, share of zeros, count."""
    curve = []
    for k in np.unique(norms.distance):
        values = norms.norm[norms.distance == k]
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
    """Return the reach of the gradient, its factor per step, and its mean at a few distances."""
    means = {point["k"]: point["mean"] for point in curve}
    distances = [k for k in means if k >= 1]
    top = max(distances, key=means.__getitem__, default=0)
    reach, factor = "0", None
    if distances and means[top] > 0:
        end = max(k for k in distances if means[k] >= SHARE * means[top])
        vanished = [k for k in distances if k > end]
        reach = str(vanished[0]) if vanished else f"{end} or more"
        end = vanished[0] if vanished and means[vanished[0]] > 0 else end
        start = top if top < end else distances[0]
        if end > start:
            factor = (means[end] / means[start]) ** (1 / (end - start))
    return {"reach": reach, "per step": factor, **{f"k={k}": means[k] for k in SHOWN if k in means}}


def _notes(name: str, curve: Sequence[Row], norms: GradientNorms) -> list[str]:
    notes = []
    zeros = [point["k"] for point in curve if point["zero"] == 1]
    if zeros and all(point["zero"] == 1 for point in curve if point["k"] >= zeros[0]):
        notes.append(f"{name}: from k = {zeros[0]} on the gradient is exactly 0")
    if norms.ahead:
        notes.append(f"{name}: predictions also depend on later positions, which are not shown")
    if norms.broken:
        notes.append(f"{name}: {norms.broken:,} norms are not finite and left out")
    return notes


def _same_keys(rows: Sequence[Row]) -> list[Row]:
    """Return the rows with the keys of all; None for missing values."""
    keys = dict.fromkeys(["run", "layer", "reach", "per step"])
    keys |= {f"k={k}": None for k in SHOWN if any(f"k={k}" in row for row in rows)}
    return [keys | dict(row) for row in rows]


def _plot(figure: Any, details: Sequence[Row]) -> None:
    """Plot the norms against the distances, a line and a band for each run, down to the floor."""
    figure.set_size_inches(7.6, 5.2)
    axes: Any = figure.add_subplot()
    names = list(dict.fromkeys(row["run"] for row in details))
    runs, floor = names[:MAX_RUNS], _floor(details)
    for number, name in enumerate(runs):
        points = [row for row in details if row["run"] == name and row["mean"] > 0]
        k = [row["k"] for row in points]
        style = line_style(number, len(runs), len(points))
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
        axes.set_ylabel(f"{axes.get_ylabel()}\ndown to {FLOOR:g} of the largest")
    axes.grid(alpha=0.3)
    figure.legend(loc="outside lower center", ncols=2, frameon=False)


def _floor(details: Sequence[Row]) -> float:
    """Return the lower end of the plot."""
    return FLOOR * max((row["mean"] for row in details), default=0.0)
