"""Models tuned to answer with labels, numbers or vectors: what they share, however they compute."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch

from foreword.errors import UserError
from foreword.settings import kinds
from foreword.tables.columns import PREDICTION
from foreword.tables.examples import LabelledTexts
from foreword.tuning.tasks._contract import PROBABILITY, ExampleOutputs, Task, probability_columns
from foreword.tuning.tuned import TunedOn
from foreword.types import Array

Answered = tuple[list[dict[str, Any]], int]  # the columns of each answer; how many were cut


class Predictor(ABC):
    """The contract of a tuned model.

    Attributes:
        task: the task it was tuned for.
        labels: the labels, in the order of its outputs.
        source: the folder it was read from.
        tuned_on: the form of its training examples.
        device: where its parameters are.
        dtype: the precision it computes in.
    """

    task: Task
    labels: tuple[str, ...]
    source: Path
    tuned_on: TunedOn
    device: torch.device
    dtype: torch.dtype

    @abstractmethod
    def compute(
        self, examples: LabelledTexts, done: Callable[[int], None] = lambda count: None
    ) -> tuple[list[ExampleOutputs], int]:
        """Return what it computes for each example, and how many were cut to the model's length.

        Args:
            examples: with their prefixes.
            done: called with the number of examples computed since the last call.
        """

    @abstractmethod
    def with_task(self, task: Task) -> Self:
        """Return the model with other settings of its task."""

    def at_threshold(self, threshold: float) -> Self:
        """Return the model that predicts a label from this probability on.

        Raises:
            UserError: it has no label to which a threshold could apply.
        """
        settings = self.task.answers.at_threshold(threshold, self.labels)
        return self.with_task(replace(self.task, **settings))

    @property
    @abstractmethod
    def width(self) -> int:
        """The number of outputs of a text."""

    @property
    @abstractmethod
    def max_tokens(self) -> int:
        """The most tokens that it reads of an example, special ones included."""

    def __repr__(self) -> str:
        labels = f"{len(self.labels):,} labels, " if self.task.judge.has_classes else ""
        return f"<{kinds.name_of(self.task)}, {labels}{self.source}>"

    def predict(
        self, texts: Iterable[Any], pairs: Iterable[str] | None = None
    ) -> tuple[list[Any], Any]:
        """Return the most probable label of each text or pair, and all probabilities.

        Texts of similar length are computed together, so the order of many does not matter.

        Args:
            texts: texts, or pairs of texts, in a list, Series or array; or a table, such as a
                DataFrame, with the columns it was tuned on. One longer than `max_tokens` is read in
                windows, or cut, by the task's settings. For other tasks what `foreword.predict`
                takes.
            pairs: the second text of each, if it was tuned on pairs and they are given apart.

        Returns:
            Labels, lists of them if it was tuned on lists, and probabilities (texts, labels) in the
            order of `labels`; for an empty text, None and nan. Of other tasks the answers and their
            probabilities, as `foreword.predict` gives them.

        Raises:
            UserError: an item is not a text, the numbers of texts and second texts differ, or the
                task is regression or embedding, whose answers `outputs` returns.
        """
        examples, has_text = self.tuned_on.examples(texts, pairs, self.task)
        if PROBABILITY not in self.task.answers.types(
            self.labels, probabilities=False, is_pair=False
        ):
            raise UserError(f"this model was tuned to {self.task.answers.purpose}; use `outputs`")
        has_classes, results = self.task.judge.has_classes, self.outputs_of(examples)
        answers = iter(self.task.answers.rows(results, self.labels, probabilities=has_classes))
        rows = [next(answers) if known else {} for known in has_text]
        predictions = [row.get(PREDICTION) for row in rows]
        if not has_classes:
            return predictions, [row.get(PROBABILITY) for row in rows]
        names = probability_columns(self.labels)
        shares = [[row.get(name, np.nan) for name in names] for row in rows]
        return predictions, np.array(shares, np.float32).reshape(len(rows), len(names))

    def outputs(self, texts: Iterable[Any], pairs: Iterable[str] | None = None) -> Any:
        """Return the head's outputs for each text or pair, (texts, outputs) float32.

        These are logits (`classify`), the predicted number (`regress`) or a vector (`embed`); nan
        for an empty text. Where an example has several, such as the words of a sentence or the
        vectors of a pair: a list of (n, outputs) each.

        Raises:
            UserError: an item is not a text, or the numbers of texts and second texts differ.
        """
        examples, has_text = self.tuned_on.examples(texts, pairs, self.task)
        results = self.outputs_of(examples)
        if self.task.reader.takes_texts and all(len(result.outputs) == 1 for result in results):
            return self._in_place(results, has_text)
        arrays = iter(result.outputs for result in results)
        return [next(arrays) if known else None for known in has_text]

    def outputs_of(self, examples: LabelledTexts) -> list[ExampleOutputs]:
        """Return what it computes for each example."""
        return self.compute(examples)[0]

    def _in_place(self, results: Sequence[ExampleOutputs], has_text: Array) -> Array:
        """Return the output of each text, (texts, outputs) float32; nan where there is none."""
        outputs: Array = np.full((len(has_text), self.width), np.nan, np.float32)
        if results:
            outputs[has_text] = np.concatenate([result.outputs for result in results])
        return outputs

    def answer_types(self, *, probabilities: bool, is_pair: bool = False) -> dict[str, Any]:
        """Return the Arrow type of each column of its answers.

        Raises:
            UserError: the task has no probabilities.
        """
        return self.task.answers.types(self.labels, probabilities=probabilities, is_pair=is_pair)

    def answer(
        self, examples: LabelledTexts, *, probabilities: bool, done: Callable[[int], None]
    ) -> Answered:
        """Return the answer to each example, and how many were cut to the model's length.

        Args:
            examples: with their prefixes.
            done: called with the number of examples answered since the last call.
        """
        results, cut = self.compute(examples, done)
        return self.task.answers.rows(results, self.labels, probabilities=probabilities), cut
