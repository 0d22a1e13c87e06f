"""What a model was tuned for, as the files of its folder hold it."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from foreword.disk import stored
from foreword.errors import UserError
from foreword.runs.recipe import Recipe
from foreword.settings import config, kinds, plugins
from foreword.tables.columns import Columns
from foreword.tables.examples import Labelled, LabelledTexts
from foreword.tables.given import texts_or_table
from foreword.tables.table import require_columns
from foreword.tuning.input_template import InputTemplate
from foreword.tuning.tasks._contract import Task
from foreword.types import Array

# Of the folder of a network with a task's head. 2: means over a text have its special tokens too.
KIND, VERSION = "tuned", 2
FILE = "labels.json"
SCORES = "scores.json"  # a copy of the evaluation
CHOSEN = "parts.json"  # of a folder with an average of candidates, besides


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
