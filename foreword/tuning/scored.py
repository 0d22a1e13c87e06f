"""Labelled examples as a fine-tuned model answers them, and its scores on any part of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from foreword.errors import UserError
from foreword.tables.examples import Labelled, LabelledTexts
from foreword.tuning.answers import AnswerExamples
from foreword.tuning.encoded import by_example
from foreword.tuning.encoding import scoring_examples
from foreword.tuning.network import Network
from foreword.tuning.outputs import scored_outputs
from foreword.tuning.predictor import Predictor
from foreword.tuning.rows import PooledExamples
from foreword.tuning.starting_network import build_network
from foreword.tuning.tasks._contract import Confusion, ExampleOutputs, Task
from foreword.tuning.tuned_model import TunedModel, TunedWriter
from foreword.types import Array


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
