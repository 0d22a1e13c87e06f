"""Labelled examples as fine-tuned models answer them, and their scores on any part of them.

Several models are compared on the same examples, with intervals by bootstrap.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from foreword.errors import UserError
from foreword.evaluation.statistics import NO_INTERVAL, bootstrap_each
from foreword.evaluation.text_metrics import word_rules
from foreword.formatting import interval
from foreword.settings import kinds
from foreword.tables.examples import Labelled, LabelledTexts
from foreword.tuning.answers import AnswerExamples
from foreword.tuning.encoded import by_example, cut_warning
from foreword.tuning.network import Network
from foreword.tuning.outputs import scored_outputs
from foreword.tuning.packed_examples import PooledExamples
from foreword.tuning.scores import WHY_UNDEFINED, metric_name, of_classes
from foreword.tuning.starting_network import build_network
from foreword.tuning.tasks._contract import BOUND, Confusion, ExampleOutputs, Task
from foreword.tuning.tasks._writing import ABOUT_BOUND, is_bound
from foreword.tuning.tune_data import scoring_examples
from foreword.tuning.tuned_model import Predictor, TunedModel, TunedWriter
from foreword.types import Array

DRAWS = 500  # of the bootstrap


@dataclass(frozen=True)
class ScoredExamples:
    """Labelled examples with what a fine-tuned model computed for them.

    Attributes:
        results: each example with its inputs and outputs; of a task that writes its text, (1,).
        max_tokens: the most tokens of an input.
    """

    task: Task
    labels: tuple[str, ...]
    results: Sequence[ExampleOutputs]
    max_tokens: int

    @property
    def cut(self) -> int:
        """How many examples were cut to the model's length."""
        return sum(any(one.was_cut for one in result.inputs) for result in self.results)

    def scores(self, numbers: Array | None = None) -> dict[str, float]:
        """Return metrics by name, the most telling first.

        Args:
            numbers: the examples to score, by number; some may occur more than once; default: all.
        """
        return self.task.judge.scores(*self._of(numbers))

    def confusion(self) -> Confusion | None:
        """Return how often each label (row) got each answer (column); None without classes."""
        return self.task.judge.confusion(*self._of(None))

    def _of(self, numbers: Array | None) -> tuple[Array, Any]:
        chosen = range(len(self.results)) if numbers is None else numbers.tolist()
        results = [self.results[n] for n in chosen]
        outputs = np.concatenate([result.outputs for result in results])
        if self._single_targets is not None:
            return outputs, self._single_targets[chosen]
        return outputs, self._targets(results)

    def _targets(self, results: Sequence[ExampleOutputs]) -> Any:
        inputs = [one for result in results for one in result.inputs]
        return self.task.targets([result.example for result in results], self.labels, inputs)

    @cached_property
    def _single_targets(self) -> Array | None:
        """The target of each example, (examples,), if each has one; else None."""
        targets = self._targets(self.results)
        is_single = isinstance(targets, np.ndarray) and len(targets) == len(self.results)
        return targets if is_single else None


def scored(
    tuned: Predictor | TunedWriter,
    examples: Sequence[Labelled],
    advance: Callable[[int, int], None] = lambda done, total: None,
) -> ScoredExamples:
    """Return what a fine-tuned model computes for labelled examples.

    Args:
        examples: the examples, at least one.
        advance: called with the examples computed so far, and their total.

    Raises:
        UserError: a label is unknown, or the task compares the model with the one it began from.
    """
    task, labels = tuned.task, tuned.labels
    if isinstance(tuned, Predictor) and not isinstance(tuned, TunedModel):
        results, _ = tuned.compute(LabelledTexts.of(examples))
        advance(len(examples), len(examples))
        return ScoredExamples(task, labels, results, tuned.max_tokens)
    network, part = network_and_examples(tuned, examples)
    is_done = np.zeros(len(part), bool)

    def done(numbers: Array) -> None:
        is_done[numbers] = True
        advance(int(is_done.sum()), len(is_done))

    outputs = scored_outputs(task, network, part, done)
    return ScoredExamples(
        task, labels, by_example(examples, part.encoded, outputs), tuned.max_tokens
    )


def network_and_examples(
    tuned: TunedModel | TunedWriter, examples: Sequence[Labelled]
) -> tuple[Network, PooledExamples | AnswerExamples]:
    """Return a fine-tuned network in evaluation mode, and examples as it was scored on them.

    Args:
        examples: the examples, at least one.

    Raises:
        UserError: a label is unknown, or the task compares the model with the one it began from.
    """
    task, labels = tuned.task, tuned.labels
    if task.needs.has_reference:
        raise UserError(
            f"{tuned.source}: is scored beside the model that it began from, which it does not "
            "hold; 'foreword tune ... --test FILE' scores it when training has ended"
        )
    if isinstance(tuned, TunedModel):
        part = scoring_examples(task, examples, labels, tuned.tokenizer, tuned.template, None)
        return tuned.network, part
    trained = tuned.trained
    network = build_network(trained, task, labels, None).to(trained.device).eval()
    part = scoring_examples(task, examples, labels, trained.tokenizer, tuned.template, trained)
    return network, part


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
        UserError: the models have different scores; those that write text may have more.
    """
    answered = [
        scored(model, part, stage(f"answering: {name}"))
        for (name, model), part in zip(models.items(), examples, strict=True)
    ]
    names, first = list(models), answered[0]
    are_bounds = [
        isinstance(model, TunedWriter) and is_bound(model.task, model.trained)
        for model in models.values()
    ]
    every = [each.scores() for each in answered]
    shared = _shared(models, every)
    scores = [{metric: of[metric] for metric in shared} for of in every]
    advance, draws = stage("bootstrap"), iter(range(DRAWS))

    def statistics(numbers: Array) -> list[float]:
        advance(next(draws), DRAWS)
        drawn = [each.scores(numbers) for each in answered]
        return _statistics([{metric: of[metric] for metric in shared} for of in drawn])

    intervals = bootstrap_each(statistics, len(examples[0]), DRAWS)
    left = iter(intervals)
    rows: list[dict[str, Any]] = []
    for name, of, each, has_bound in zip(names, scores, answered, are_bounds, strict=True):
        row: dict[str, Any] = {"model": name, **({"is_bound": True} if has_bound else {})}
        for metric, score in of.items():
            low, high = next(left)
            row |= {metric: score, f"{metric}_low": low, f"{metric}_high": high}
        rows.append(row | {"examples": len(each.results)})
    metric = shared[0]
    notes = [_note(first, skipped), *word_rules(scores[0])]
    if any(are_bounds):
        notes.append(ABOUT_BOUND)
    left_out = {metric_name(key) for of in every for key in of if key not in shared}
    if left_out:
        notes.append(f"{', '.join(sorted(left_out))}: left out, since not all models have it")
    cuts = (cut_warning(each.cut, len(each.results), each.max_tokens) for each in answered)
    notes += filter(None, cuts)
    for name, of, has_bound, (low, high) in zip(
        names[1:], scores[1:], are_bounds[1:], left, strict=True
    ):
        if has_bound != are_bounds[0] and metric == BOUND:
            notes.append(f"{names[0]} against {name}: a bound and a perplexity do not compare")
            continue
        difference = scores[0][metric] - of[metric]
        within = interval(low, high, "+") or "no interval"
        shown = f"{difference:+.3f} ({within}) on the same examples"
        shown = "undefined" if math.isnan(difference) else shown
        notes.append(f"{names[0]} against {name}: {metric_name(metric)} {shown}")
    for name, of in zip(names, scores, strict=True):
        if unknown := [metric_name(key) for key, score in of.items() if math.isnan(score)]:
            notes.append(f"{name}: {', '.join(unknown)} undefined, {WHY_UNDEFINED}")
    ends = zip(_statistics(scores), intervals, strict=True)
    if any(low is None and not math.isnan(value) for value, (low, _) in ends):
        notes.append(NO_INTERVAL)
    confusion = first.confusion()
    return {
        "task": kinds.name_of(first.task),
        "rows": [
            {
                k: None if isinstance(v, float) and not math.isfinite(v) else v
                for k, v in row.items()
            }
            for row in rows
        ],
        **({} if confusion is None else {"labels": first.labels}),
        **of_classes(first.labels, confusion),
        "notes": notes,
    }


def _shared(
    models: Mapping[str, Predictor | TunedWriter], scores: Sequence[Mapping[str, float]]
) -> list[str]:
    """Return the scores that all models have.

    Raises:
        UserError: a model has others, unless all write text: those in any order have fewer.
    """
    known = [", ".join(map(metric_name, of)) for of in scores]
    shared = [metric for metric in scores[0] if all(metric in of for of in scores)]
    write = all(isinstance(model, TunedWriter) for model in models.values())
    if len(set(known)) == 1 or (write and len(shared) == min(map(len, scores))):
        return shared
    first, *others = zip(models, known, strict=True)
    name, metrics = next(other for other in others if other[1] != first[1])
    raise UserError(f"{first[0]} has {first[1]}, and {name} has {metrics}; evaluate them alone")


def _statistics(scores: Sequence[Mapping[str, float]]) -> list[float]:
    """Return all scores of each model, then the first one of the first less that of each other."""
    values = [list(of.values()) for of in scores]
    differences = [values[0][0] - other[0] for other in values[1:]]
    return [*(value for of in values for value in of), *differences]


def _note(answered: ScoredExamples, skipped: int) -> str:
    """Return what a reader of the intervals has to know."""
    rows = f", {skipped:,} rows skipped (empty, or without a label)" if skipped else ""
    cut = f", {answered.cut:,} cut to the model's length" if answered.cut else ""
    return (
        f"{len(answered.results):,} examples{rows}{cut}; intervals: 95 %, by bootstrap over "
        "them: what other examples would change, not what another seed of fine-tuning would"
    )
