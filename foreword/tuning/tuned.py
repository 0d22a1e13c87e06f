"""What a model was tuned for, as the files of its folder hold it, and the contract of such models.

They answer with labels, numbers or vectors, however they compute.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch

from foreword.disk import stored
from foreword.errors import UserError
from foreword.runs.recipe import Recipe
from foreword.settings import config, kinds, plugins
from foreword.tables.columns import PREDICTION, Columns
from foreword.tables.examples import Labelled, LabelledTexts
from foreword.tables.given import texts_or_table
from foreword.tables.table import require_columns
from foreword.tuning.input_template import InputTemplate
from foreword.tuning.tasks._contract import PROBABILITY, ExampleOutputs, Task, probability_columns
from foreword.types import Array

# Of the folder of a network with a task's head. 2: means over a text have its special tokens too.
KIND, VERSION = "tuned", 2
FILE = "labels.json"
SCORES = "scores.json"  # a copy of the evaluation
CHOSEN = "parts.json"  # of a folder with an average of candidates, besides
Answered = tuple[list[dict[str, Any]], int]  # the columns of each answer; how many were cut


@dataclass(frozen=True)
class TunedOn:
    """The form of the examples that a model was tuned on.

    Attributes:
        text: the column of the text.
        pair: the column of the second text, "" for none.
        prefixes: the task prefix of each file, if they had one.
        is_pair: whether examples are pairs; None if it is not known.
    """

    text: str = "text"
    pair: str = ""
    prefixes: tuple[str, ...] = ()
    is_pair: bool | None = None

    def examples(self, texts: Any, pairs: Any, task: Task) -> tuple[LabelledTexts, Array]:
        """Return texts or pairs as examples in the form of training.

        Those that are empty are left out: besides the others, which ones these are is returned,
        (texts,) bool.

        Args:
            texts: texts, pairs in tuples, or a table with the columns of training.
            pairs: the second text of each, or None.

        Raises:
            UserError: an item is not a text, the numbers of texts and second texts differ, second
                texts are missing or too many, or there are several prefixes to choose from.
        """
        tuned_columns = Columns(self.text, "", self.pair)
        table, columns = texts_or_table(
            texts, "texts", tuned_columns, pairs, are_texts=task.reader.takes_texts
        )
        require_columns(table, columns)
        self.require_form(is_pair=bool(columns.pair))
        read = [task.reader.read(row, columns, table.source_of(n)) for n, row in table.sound_rows()]
        has_text = np.array([example is not None for example in read], bool)
        return LabelledTexts.of(self.with_prefix(e, None) for e in read if e is not None), has_text

    def require_form(self, *, is_pair: bool) -> None:
        """Raise UserError unless there are second texts if and only if training had them."""
        if self.is_pair is not None and self.is_pair != is_pair:
            raise UserError(
                "this model was tuned on pairs; the second texts are missing (--pair, pairs=)"
                if self.is_pair
                else "this model was tuned on single texts; leave the second texts out"
            )

    def with_prefix(self, example: Labelled, prefix: str | None) -> Labelled:
        """Return an example with the task prefix given, or with that of training.

        Raises:
            UserError: there are several to choose from.
        """
        if prefix is None and len(set(self.prefixes)) > 1:
            names = ", ".join(map(repr, self.prefixes))
            raise UserError(f"--prefix: this model was tuned with several; choose one of {names}")
        chosen = next(iter(self.prefixes), None) if prefix is None else prefix
        return example if chosen is None else example.with_prefix(chosen)


@dataclass(frozen=True)
class Tuned:
    """The task of a tuned model, as `labels.json` in its folder holds it.

    Attributes:
        labels: the labels, in the order of the head's outputs.
    """

    task: Task
    labels: tuple[str, ...]
    template: InputTemplate
    tuned_on: TunedOn

    def save(self, folder: Path, recipe: Recipe) -> None:
        """Write the file, with the plug-ins that it and the recipe of pretraining need."""
        about = {
            "task": config.kind_table(self.task),
            "labels": self.labels,
            "template": asdict(self.template),
            "plugins": plugins.used_by(self.task, recipe),
            "tuned_on": asdict(self.tuned_on),
        }
        (folder / FILE).write_text(stored.dumps(about), encoding="utf-8")

    @classmethod
    def read(cls, folder: Path) -> Tuned:
        """Read the file from a model's folder.

        Raises:
            UserError: the file is damaged, or a plug-in is missing.
        """
        about = stored.read(folder / FILE)
        plugins.require_noted(about.get("plugins", []), folder)
        tasks = kinds.Part("tuning/tasks")
        return cls(
            config.build_kind(tasks, config.as_stored(tasks, about["task"]), "task"),
            tuple(about["labels"]),
            config.build(InputTemplate, dict(about["template"]), "template"),
            config.build(TunedOn, dict(about.get("tuned_on", {})), "tuned_on"),
        )


def is_tuned(folder: Path) -> bool:
    """Return whether `foreword tune` saved a model in this folder."""
    return (folder / FILE).is_file()


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
            outputs: Array = np.full((len(has_text), self.width), np.nan, np.float32)
            if results:
                outputs[has_text] = np.concatenate([result.outputs for result in results])
            return outputs
        arrays = iter(result.outputs for result in results)
        return [next(arrays) if known else None for known in has_text]

    def outputs_of(self, examples: LabelledTexts) -> list[ExampleOutputs]:
        """Return what it computes for each example."""
        return self.compute(examples)[0]

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
