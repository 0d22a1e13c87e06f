"""The options of `tune`: the labelled text, and how to fine-tune on it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from foreword.cli._options import Options
from foreword.errors import UserError
from foreword.ranges import Count, LearningRate, Temperature

if TYPE_CHECKING:
    from foreword.tune.examples import LabelledTexts
    from foreword.tune.fine_tuner import TuneSettings
    from foreword.tune.table import Columns
    from foreword.tune.tasks._contract import Labelled, Task


@dataclass(frozen=True)
class LabelledTextOptions(Options):
    """The files of labelled text, and which of their columns hold what."""

    train: Annotated[
        list[Path],
        typer.Option(help="Labelled text: .tsv, .csv, .jsonl, .parquet; one file per task."),
    ]
    dev: Annotated[list[Path], typer.Option(help="Labelled text to score on, never trained on.")]
    text: Annotated[
        str,
        typer.Option(help="Column of the text; a number from 0 if the files have no header."),
    ] = "text"
    pair: Annotated[str, typer.Option(help="Column of a second text.")] = ""
    label: Annotated[str, typer.Option(help="Column of the label.")] = "label"
    prefix: Annotated[
        list[str] | None,
        typer.Option(help="Task prefix for the texts of each --train and --dev, in their order."),
    ] = None
    temperature: Annotated[
        Temperature,
        typer.Option(help="Task mixture: above 1, tasks have more equal shares of an epoch."),
    ] = 1.0
    columns: Annotated[
        str, typer.Option(help="Names of all columns, a,b,c, if the files have no header.")
    ] = ""

    def read(self) -> tuple[Sequence[Labelled], Sequence[Labelled], int]:
        """Return the training examples, the dev examples, and how many rows were skipped.

        Raises:
            UserError: a file cannot be read, or the prefixes do not match the files.
        """
        from foreword.tune.examples import LabelledTexts
        from foreword.tune.task_mixture import mix_tasks

        train, train_skipped = self._tasks(self.train)
        dev, dev_skipped = self._tasks(self.dev)
        dev_examples = LabelledTexts.of(example for examples in dev for example in examples)
        return mix_tasks(train, self.temperature), dev_examples, train_skipped + dev_skipped

    def _tasks(self, files: Sequence[Path]) -> tuple[list[LabelledTexts], int]:
        """Return the examples of each file with its task prefix, and how many rows were skipped."""
        from foreword.tune.examples import LabelledTexts
        from foreword.tune.table import labelled, read_table
        from foreword.tune.task_mixture import with_prefix

        prefixes, selected = self.prefix or [], self._selected_columns()
        names = [column.strip() for column in self.columns.split(",")] if self.columns else []
        by_number = selected.are_numbers and not names
        if len(prefixes) not in (0, len(files)):
            raise UserError(
                "--prefix: requires one for each --train and each --dev, in their order; got "
                f"{len(prefixes)} for {len(files)} files"
            )
        tasks, skipped = [], 0
        for n, file in enumerate(files):
            examples, skipped_here = labelled(read_table(file, names, by_number), selected)
            skipped += skipped_here
            if prefixes:
                examples = LabelledTexts.of(with_prefix(e, prefixes[n]) for e in examples)
            tasks.append(examples)
        return tasks, skipped

    def _selected_columns(self) -> Columns:
        from foreword.tune.table import Columns

        return Columns(self.text, self.label, self.pair)

    def as_table(self) -> dict[str, Any]:
        """Return the options as the evaluation's settings record them."""
        table: dict[str, Any] = {
            "train": _one_or_all(self.train),
            "dev": _one_or_all(self.dev),
            "text": self.text,
            "pair": self.pair,
            "label": self.label,
        }
        if self.prefix:
            table |= {"prefix": self.prefix, "temperature": self.temperature}
        return table


@dataclass(frozen=True)
class FineTuningOptions(Options):
    """The task, and the settings of fine-tuning."""

    task: Annotated[str, typer.Option(help="The task: classify, regress or text_to_text.")] = (
        "classify"
    )
    strategy: Annotated[str, typer.Option(help="full, or frozen to train the head alone.")] = "full"
    from_scratch: Annotated[
        bool, typer.Option("--from-scratch", help="Train the same network from random weights.")
    ] = False
    compare: Annotated[
        bool,
        typer.Option("--compare", help="Compare pretrained, pretrained frozen and from scratch."),
    ] = False
    seeds: Annotated[
        Count, typer.Option(help="Number of seeds; scores are their mean and deviation.")
    ] = 3
    epochs: Annotated[Count, typer.Option(help="Number of epochs.")] = 3
    batch: Annotated[Count, typer.Option(help="Examples per step.")] = 16
    lr: Annotated[
        LearningRate | None,
        typer.Option(help="Peak learning rate; default: by the model's width (frozen: 1e-3)."),
    ] = None
    assign: Annotated[
        list[str] | None,
        typer.Option(
            "--set", help="A setting: task.pooling=mean, tune.optimizer.decay=0.1; repeatable."
        ),
    ] = None
    max_length: Annotated[
        Count | None,
        typer.Option(help="Maximum tokens of an example; default: the row length of pretraining."),
    ] = None
    precision: Annotated[str, typer.Option(help="Training precision: auto, bf16 or fp32.")] = "auto"

    def resolve(self) -> tuple[Task, list[TuneSettings]]:
        """Return the task, and the settings of each variant to fine-tune.

        Raises:
            UserError: options contradict each other, or a setting is unknown.
        """
        from foreword import config, kinds
        from foreword.tune.run import TuneSettings, variants

        if self.compare and (self.from_scratch or self.strategy != "full"):
            raise UserError(
                "--compare cannot be combined with --strategy or --from-scratch: it runs them all"
            )
        table = config.assign({"task": {"kind": self.task}, "tune": {}}, self.assign or ())
        if unknown := sorted(table.keys() - {"task", "tune"}):
            raise UserError(f"--set {unknown[0]}: expected task.NAME=value or tune.NAME=value")
        task: Task = config.build_kind(kinds.Part("tune/tasks"), table["task"], "task")
        options = {
            "strategy": {"kind": self.strategy} | ({} if self.lr is None else {"lr": self.lr}),
            "from_scratch": self.from_scratch,
            "seeds": self.seeds,
            "epochs": self.epochs,
            "batch": self.batch,
            "max_length": self.max_length,
            "precision": self.precision,
            **table["tune"],
        }
        given = {name: value for name, value in options.items() if value is not None}
        settings = config.build(TuneSettings, given, "tune")
        return task, variants(settings) if self.compare else [settings]


def _one_or_all(files: Sequence[Path]) -> str | list[str]:
    return str(files[0]) if len(files) == 1 else [str(file) for file in files]
