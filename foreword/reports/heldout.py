"""The one held-out loss that a page names, and why others on it differ."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from foreword.errors import UserError
from foreword.evaluation.baselines import prediction_name
from foreword.formatting import figure, quantity
from foreword.reports.evaluations import LOSS, meaning
from foreword.reports.folder import Record, RunFolder, SavedEvaluation, number
from foreword.reports.meaning import loss_sentence
from foreword.runs.recipe import Recipe
from foreword.settings import config
from foreword.train import log

ROUNDING = 1e-3  # by which a loss differs with the size of the batches it is measured in


@dataclass(frozen=True)
class HeldOutLoss:
    """The held-out loss of a run: of an evaluation if there is one, else of training's sample.

    Attributes:
        loss: in nats per prediction.
        perplexity: nan if it has none.
        bits_per_byte: nan if not defined.
        components: the loss of each term of a sum, and other means.
        meaning: what it means, in words.
        note: on what it was measured, and which other loss the page shows.
        evaluation: the evaluation, or None.
        is_bound: whether loss, perplexity and bits per byte are upper bounds.
    """

    loss: float
    perplexity: float
    bits_per_byte: float
    components: Mapping[str, float]
    meaning: str
    note: str
    evaluation: SavedEvaluation | None = None
    is_bound: bool = False


def held_out_loss(run: RunFolder) -> HeldOutLoss | None:
    """Return the held-out loss of a run; None if it was not measured."""
    known = [record for record in run.heldout if not math.isnan(number(record, "loss"))]
    best = min(known, key=lambda record: number(record, "loss")) if known else None
    if best is None and run.heldout:
        best = run.heldout[-1]  # without a loss, but with components
    evaluated = _evaluated(run)
    if evaluated is not None:
        components = evaluated.content.get("components")
        row = evaluated.rows[0]
        return HeldOutLoss(
            loss=number(row, "loss"),
            perplexity=number(row, "perplexity"),
            bits_per_byte=number(row, "bits_per_byte"),
            components=_numbers(components) if isinstance(components, Mapping) else {},
            meaning=meaning(evaluated),
            note=_both(run, evaluated, best),
            evaluation=evaluated,
            is_bound=bool(row.get("is_bound")),
        )
    if best is None:
        return None
    return HeldOutLoss(
        loss=number(best, "loss"),
        perplexity=number(best, "perplexity"),
        bits_per_byte=number(best, "bits_per_byte"),
        components=log.components(best),
        meaning=_meaning(run, best),
        note=_sample(run, best),
        is_bound=bool(best.get("is_bound")),
    )


def _evaluated(run: RunFolder) -> SavedEvaluation | None:
    """Return the evaluation of the run's own held-out text, the one with most predictions."""
    candidates = [
        evaluation
        for evaluation in run.evaluations
        if evaluation.task == LOSS
        and not evaluation.content.get("text")
        and not math.isnan(number(evaluation.rows[0], "loss"))
    ]
    return max(
        candidates,
        key=lambda evaluation: _or_zero(number(evaluation.rows[0], "predictions")),
        default=None,
    )


def _both(run: RunFolder, evaluated: SavedEvaluation, best: Record | None) -> str:
    """Return why the loss of the evaluation and that of the curve differ; "" if they do not."""
    row, document = evaluated.rows[0], evaluated.content
    if best is None or math.isnan(number(best, "loss")):
        return ""
    is_same_text = number(row, "predictions") == number(best, "predictions")
    if is_same_text and math.isclose(number(row, "loss"), number(best, "loss"), rel_tol=ROUNDING):
        return ""
    most = number(document, "max_rows")
    amount = f"at most the first {quantity(most)} rows" if most == most else "all"
    parts = [f"Held-out loss {figure(number(row, 'loss'))}: on {amount} of the held-out text"]
    if number(row, "predictions") > 0:
        parts[0] += f" ({quantity(number(row, 'predictions'))} predictions)"
    if document.get("checkpoint"):
        parts[0] += f", by checkpoint {document['checkpoint']}"
    sample = "the same" if is_same_text else f"a sample, {_sampled(run, best)}"
    parts.append(
        f"the curve's lowest, {figure(number(best, 'loss'))}, is measured during training on "
        f"{sample}, at step {quantity(number(best, 'step'))}"
    )
    return "; ".join(parts) + "."


def _sample(run: RunFolder, best: Record) -> str:
    """Return what the loss of a run without an evaluation was measured on."""
    return (
        f"Held-out loss: the lowest during training, at step {quantity(number(best, 'step'))}, on "
        f"{_sampled(run, best)}. 'foreword evaluate' measures it on all of the held-out text, "
        "beside that of counts."
    )


def _sampled(run: RunFolder, best: Record) -> str:
    train = run.recipe.get("train")
    rows = number(train, "heldout_rows") if isinstance(train, Mapping) else math.nan
    text = f"at most the first {quantity(rows)} rows" if rows == rows else "its first rows"
    predictions = number(best, "predictions")
    return f"{text} ({quantity(predictions)} predictions)" if predictions > 0 else text


def _meaning(run: RunFolder, best: Record) -> str:
    """Return what the loss of a run means; of a sum, by its part that predicts tokens."""
    try:
        recipe = config.load(Recipe, run.path / "recipe.toml", is_stored=True)
    except UserError:
        return loss_sentence([best], "prediction")
    part = recipe.objective.predicts.component
    parts = [{"what": part, "loss": best[part]}] if part in log.components(best) else []
    return loss_sentence([best, *parts], prediction_name(recipe))


def _numbers(values: Mapping[str, Any]) -> dict[str, float]:
    return {str(name): number(values, name) for name in values}


def _or_zero(value: float) -> float:
    return value if value == value else 0.0
