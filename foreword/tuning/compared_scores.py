"""The scores of fine-tuned models on the same labelled examples, with intervals by bootstrap."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from foreword.errors import UserError
from foreword.evaluation.statistics import NO_INTERVAL, bootstrap_each
from foreword.formatting import interval
from foreword.settings import kinds
from foreword.tables.examples import Labelled
from foreword.tuning.encoded import cut_warning
from foreword.tuning.predictor import Predictor
from foreword.tuning.scored import ScoredExamples, scored
from foreword.tuning.scores import WHY_UNDEFINED, metric_name, of_classes
from foreword.tuning.text_metrics import word_rules
from foreword.tuning.tuned_model import TunedWriter
from foreword.types import Array

DRAWS = 500  # of the bootstrap


def compared_scores(
    models: Mapping[str, Predictor | TunedWriter],
    examples: Sequence[Sequence[Labelled]],
    skipped: int,
    stage: Callable[[str], Callable[..., None]],
) -> dict[str, Any]:
    """Return the scores of each model, and how each other one differs from the first.

    Args:
        models: fine-tuned models of one task, by name.
        examples: the same examples as each of the models reads them.
        skipped: the number of rows that are no examples, for the notes.

    Raises:
        UserError: the models have different scores.
    """
    answered = [
        scored(model, part, stage(f"answering: {name}"))
        for (name, model), part in zip(models.items(), examples, strict=True)
    ]
    names, first = list(models), answered[0]
    scores = [each.scores() for each in answered]
    _require_same_scores(names, scores)
    advance, draws = stage("bootstrap"), iter(range(DRAWS))

    def statistics(numbers: Array) -> list[float]:
        advance(next(draws), DRAWS)
        return _statistics([each.scores(numbers) for each in answered])

    intervals = bootstrap_each(statistics, len(examples[0]), DRAWS)
    left = iter(intervals)
    rows: list[dict[str, Any]] = []
    for name, of, each in zip(names, scores, answered, strict=True):
        row: dict[str, Any] = {"model": name}
        for metric, score in of.items():
            low, high = next(left)
            row |= {metric: score, f"{metric}_low": low, f"{metric}_high": high}
        rows.append(row | {"examples": len(each.results)})
    metric = next(iter(scores[0]))
    notes = [_note(first, skipped), *word_rules(scores[0])]
    cuts = (cut_warning(each.cut, len(each.results), each.max_tokens) for each in answered)
    notes += filter(None, cuts)
    for name, of, (low, high) in zip(names[1:], scores[1:], left, strict=True):
        difference = scores[0][metric] - of[metric]
        ends = interval(low, high, "+") or "no interval"
        shown = f"{difference:+.3f} ({ends}) on the same examples"
        shown = "undefined" if math.isnan(difference) else shown
        notes.append(f"{names[0]} against {name}: {metric_name(metric)} {shown}")
    for name, of in zip(names, scores, strict=True):
        if unknown := [metric_name(key) for key, score in of.items() if math.isnan(score)]:
            notes.append(f"{name}: {', '.join(unknown)} undefined, {WHY_UNDEFINED}")
    known = zip(_statistics(scores), intervals, strict=True)
    if any(low is None and not math.isnan(value) for value, (low, _) in known):
        notes.append(NO_INTERVAL)
    confusion = first.confusion()
    return {
        "task": kinds.name_of(first.task),
        "rows": [{key: _known(value) for key, value in row.items()} for row in rows],
        **({} if confusion is None else {"labels": first.labels}),
        **of_classes(first.labels, confusion),
        "notes": notes,
    }


def _require_same_scores(names: Sequence[str], scores: Sequence[Mapping[str, float]]) -> None:
    """Check that the models have the same scores, so that they compare."""
    known = [", ".join(map(metric_name, of)) for of in scores]
    for name, metrics in zip(names, known, strict=True):
        if metrics != known[0]:
            raise UserError(
                f"{names[0]} has {known[0]}, and {name} has {metrics}; evaluate them alone"
            )


def _statistics(scores: Sequence[Mapping[str, float]]) -> list[float]:
    """Return all scores of each model, then the first one of the first less that of each other."""
    values = [list(of.values()) for of in scores]
    differences = [values[0][0] - other[0] for other in values[1:]]
    return [*(value for of in values for value in of), *differences]


def _known(value: Any) -> Any:
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _note(answered: ScoredExamples, skipped: int) -> str:
    """Return what a reader of the intervals has to know."""
    rows = f", {skipped:,} rows skipped (empty, or without a label)" if skipped else ""
    cut = f", {answered.cut:,} cut to the model's length" if answered.cut else ""
    return (
        f"{len(answered.results):,} examples{rows}{cut}; intervals: 95 %, by bootstrap over "
        "them: what other examples would change, not what another seed of fine-tuning would"
    )
