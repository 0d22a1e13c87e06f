"""The options of `tune`: the labelled text, and how to fine-tune on it."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from foreword.cli._options import Options
from foreword.settings.ranges import Count, LearningRate, Share, Temperature, Trainings


@dataclass(frozen=True)
class LabelledTextOptions(Options):
    """The files of labelled text, and which of their columns hold what."""

    train: Annotated[
        list[Path] | None,
        typer.Option(
            help="Labelled text: .tsv, .csv, .jsonl, .parquet, and what the task reads (.conllu, "
            ".conll); one file per task."
        ),
    ] = None
    dev: Annotated[
        list[Path] | None, typer.Option(help="Labelled text to score on, never trained on.")
    ] = None
    test: Annotated[
        list[Path] | None,
        typer.Option(help="Labelled text to score once, at the end: it can choose nothing."),
    ] = None
    text: Annotated[
        str | None,
        typer.Option(
            help="Column of the text, a number from 0 if the files have no header; default: text, "
            "or that of the task and the format."
        ),
    ] = None
    pair: Annotated[str | None, typer.Option(help="Column of a second text.")] = None
    label: Annotated[
        str | None,
        typer.Option(help="Column of the label; default: label, or that of the task and format."),
    ] = None
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


@dataclass(frozen=True)
class SuiteOptions(Options):
    """A suite of tasks in place of labelled text."""

    suite: Annotated[
        str | None,
        typer.Option(
            help="Fine-tune on each task of a suite instead: glue, or a .toml file.",
            metavar="NAME",
        ),
    ] = None
    data: Annotated[
        Path | None, typer.Option(help="With --suite: folder of its files, or of some of them.")
    ] = None
    tasks: Annotated[
        str, typer.Option(help="With --suite: its tasks to run, CoLA,RTE; default: all there are.")
    ] = ""


@dataclass(frozen=True)
class FineTuningOptions(Options):
    """The task, and the settings of fine-tuning."""

    task: Annotated[
        str,
        typer.Option(
            help="Task: classify, regress, tag, span, choice, embed, chat, prefer or text_to_text."
        ),
    ] = "classify"
    strategy: Annotated[
        str,
        typer.Option(
            help="What is trained: full, frozen (the head alone), top_layers, gradual_unfreezing, "
            "layer_decay, lora or prefix_tuning; 'foreword show strategies' describes them."
        ),
    ] = "full"
    from_scratch: Annotated[
        bool, typer.Option("--from-scratch", help="Train the same network from random weights.")
    ] = False
    compare: Annotated[
        bool,
        typer.Option(
            "--compare",
            help="Compare pretrained, pretrained frozen and from scratch; for classify also a bag "
            "of words.",
        ),
    ] = False
    seeds: Annotated[
        Trainings, typer.Option(help="Number of seeds; scores are their mean and deviation.")
    ] = 3
    epochs: Annotated[Count, typer.Option(help="Number of epochs.")] = 3
    batch: Annotated[Count, typer.Option(help="Examples per step.")] = 16
    examples: Annotated[
        Count | None,
        typer.Option(help="Number of training examples, drawn for each seed; default: all."),
    ] = None
    lr: Annotated[
        list[LearningRate] | None,
        typer.Option(
            help="Peak learning rate; default: by the model's width and the strategy. Of several "
            "--lr the best is chosen."
        ),
    ] = None
    choose: Annotated[
        str,
        typer.Option(
            help="What chooses one of several rates: train, a tenth of it, held out; or dev, as "
            "papers did."
        ),
    ] = "train"
    assign: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            help="A setting, repeatable: task.pooling=mean, tune.strategy.rank=4, "
            "tune.optimizer.decay=0, tune.schedule.warmup.share=0.06, tune.clip=0, "
            "tune.keep=best, tune.patience=2; 'foreword show tune' lists them.",
        ),
    ] = None
    bad_rows: Annotated[
        Share | None,
        typer.Option(
            help="Share of a file's rows that may be wrong: they are left out, counted and named, "
            "more are refused; default: 0.01."
        ),
    ] = None
    max_length: Annotated[
        Count | None,
        typer.Option(help="Maximum tokens of an example; default: the row length of pretraining."),
    ] = None
    precision: Annotated[str, typer.Option(help="Training precision: auto, bf16 or fp32.")] = "auto"

    def arguments(self) -> dict[str, Any]:
        """Return the options as `foreword.tune` takes them."""
        arguments = asdict(self)
        settings = arguments.pop("assign") or ()
        return arguments | {"settings": settings}
