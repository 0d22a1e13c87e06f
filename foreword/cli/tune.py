"""`foreword tune`: fine-tune a pretrained model on labelled text and say how well it does."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from foreword.ranges import Count, LearningRate, Temperature

if TYPE_CHECKING:
    from foreword.tune.contracts import Labelled
    from foreword.tune.result import TuneResult
    from foreword.tune.run import TuneSettings
    from foreword.tune.table import Columns


def tune(
    run: Annotated[Path, typer.Argument(help="A run folder, or one of its checkpoints.")],
    train: Annotated[
        list[Path],
        typer.Option(help="Labelled text: .tsv, .csv, .jsonl, .parquet; a file for each task."),
    ],
    dev: Annotated[list[Path], typer.Option(help="Labelled text to score on, never trained on.")],
    task: Annotated[str, typer.Option(help="What to learn.")] = "classify",
    text: Annotated[
        str,
        typer.Option(help="The column of the text; by number from 0 if files have no header."),
    ] = "text",
    pair: Annotated[str, typer.Option(help="The column of a second text.")] = "",
    label: Annotated[str, typer.Option(help="The column of the label.")] = "label",
    prefix: Annotated[
        list[str] | None,
        typer.Option(help="Put before the texts of each --train and --dev, to say what is asked."),
    ] = None,
    temperature: Annotated[
        Temperature, typer.Option(help="Above 1, several tasks have more alike shares of an epoch.")
    ] = 1.0,
    columns: Annotated[
        str, typer.Option(help="Names of all columns, a,b,c, where the files have no header.")
    ] = "",
    strategy: Annotated[str, typer.Option(help="full, or frozen: the head alone.")] = "full",
    from_scratch: Annotated[
        bool, typer.Option("--from-scratch", help="The same network from random weights.")
    ] = False,
    compare: Annotated[
        bool,
        typer.Option("--compare", help="Three rows: pretrained, pretrained frozen, from scratch."),
    ] = False,
    seeds: Annotated[Count, typer.Option(help="Runs, of which mean and deviation are given.")] = 3,
    epochs: Annotated[Count, typer.Option(help="Times each example is seen.")] = 3,
    batch: Annotated[Count, typer.Option(help="Examples per step.")] = 16,
    lr: Annotated[
        LearningRate | None,
        typer.Option(help="Peak learning rate; by the model's width if unsaid (frozen: 1e-3)."),
    ] = None,
    assign: Annotated[
        list[str] | None,
        typer.Option(
            "--set", help="task.pooling=mean, tune.optimizer.decay=0.1, ...; may be repeated."
        ),
    ] = None,
    max_length: Annotated[
        Count | None, typer.Option(help="Tokens of an example; pretraining's rows if unsaid.")
    ] = None,
    name: Annotated[
        str, typer.Option(help="Of the results; the folder and the file of --train.")
    ] = "",
    out: Annotated[
        Path | None, typer.Option(help="For the tuned model; RUN/tuned/NAME if unsaid.")
    ] = None,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda or mps.")] = "auto",
    precision: Annotated[str, typer.Option(help="Of training: auto, bf16 or fp32.")] = "auto",
    json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> None:
    """Fine-tune a pretrained model on labelled text.

    Trains on --train and scores the last epoch on --dev, once per seed; nothing is chosen by the
    score. The scores go to RUN/evaluations, the first seed's model to --out.
    """
    from foreword import config, kinds
    from foreword.cli import console
    from foreword.cli._places import stays
    from foreword.errors import UserError
    from foreword.tune import result as results
    from foreword.tune.table import Columns
    from foreword.tune.task_mixture import mixed

    if compare and (from_scratch or strategy != "full"):
        raise UserError("--compare goes without --strategy and --from-scratch: it runs them all")
    if "/" in name:
        raise UserError(f"--name {name}: a name, not a path; --out takes a path")
    table = config.assign({"task": {"kind": task}, "tune": {}}, assign or ())
    if odd := sorted(table.keys() - {"task", "tune"}):
        raise UserError(f"--set {odd[0]}: expected task.NAME=value or tune.NAME=value")
    kind = config.build_kind(kinds.Part("tune/tasks"), table["task"], "task")
    variants = _variants(
        {
            "strategy": {"kind": strategy} | ({} if lr is None else {"lr": lr}),
            "from_scratch": from_scratch,
            "seeds": seeds,
            "epochs": epochs,
            "batch": batch,
            "max_length": max_length,
            "precision": precision,
            **table["tune"],
        },
        compare=compare,
    )
    wanted = Columns(text, label, pair)
    named = [column.strip() for column in columns.split(",")] if columns else []
    by_number = wanted.are_numbers and not named
    train_tasks, train_skipped = _examples(train, prefix or [], wanted, named, by_number)
    dev_tasks, dev_skipped = _examples(dev, prefix or [], wanted, named, by_number)
    train_examples = mixed(train_tasks, temperature)
    dev_examples = [example for examples in dev_tasks for example in examples]

    from foreword.runs.provenance import command
    from foreword.runs.trained_model import open_run
    from foreword.tune.input_template import lacking
    from foreword.tune.run import tune as fine_tune

    opened = open_run(run, device)
    stays(opened.run)
    name = name or _name_of(train[0])
    evaluation = opened.run / "evaluations" / f"tune-{task}-{name}.json"
    out = out or opened.run / "tuned" / name
    results.check_free(evaluation, out)
    for note in opened.notes:
        console.say(note)
    if added := lacking(opened.recipe, opened.vocab):
        console.say(f"new tokens to frame texts by, of which it has none: {', '.join(added)}")
    with console.progress() as bar:
        result = fine_tune(
            opened,
            kind,
            train_examples,
            dev_examples,
            variants,
            bar.stage("tuning"),
        )
    data = {
        "train": _one_or_all(train),
        "dev": _one_or_all(dev),
        "text": text,
        "pair": pair,
        "label": label,
        **({"prefix": prefix, "temperature": temperature} if prefix else {}),
    }
    result = replace(
        result,
        examples=result.examples | {"skipped": train_skipped + dev_skipped},
        settings=result.settings | {"data": data},
    )
    results.save_network(result, out)
    document = results.save_evaluation(result, evaluation, name, command())
    if json:
        console.emit(document | {"evaluation": str(evaluation), "out": str(out)})
    else:
        _show(result, document["title"])
        console.say(f"scores: {evaluation}\ntuned model: {out}")


def _examples(
    files: Sequence[Path],
    prefixes: Sequence[str],
    wanted: Columns,
    named: Sequence[str],
    by_number: bool,
) -> tuple[list[list[Labelled]], int]:
    """The examples of each file, asked as its prefix says, and how many rows were left out."""
    from foreword.errors import UserError
    from foreword.tune.table import labelled, read_table
    from foreword.tune.task_mixture import asked

    if len(prefixes) not in (0, len(files)):
        said = f"{len(prefixes)} for {len(files)} files"
        raise UserError(
            f"--prefix: one for each --train and each --dev, in their order; got {said}"
        )
    tasks, skipped = [], 0
    for n, file in enumerate(files):
        examples, left_out = labelled(read_table(file, named, by_number), wanted)
        skipped += left_out
        tasks.append([asked(e, prefixes[n]) for e in examples] if prefixes else examples)
    return tasks, skipped


def _name_of(train: Path) -> str:
    """The folder and the file, `CoLA-small`; of a file that is called `train` the folder alone."""
    folder, file = train.resolve().parent.name, train.name.partition(".")[0]
    return "-".join(part for part in (folder, file) if part and part != "train") or "data"


def _one_or_all(files: Sequence[Path]) -> str | list[str]:
    return str(files[0]) if len(files) == 1 else [str(file) for file in files]


def _variants(table: dict[str, Any], *, compare: bool) -> list[TuneSettings]:
    """The settings, or the three that are compared."""
    from foreword import config
    from foreword.tune.run import TuneSettings, variants

    settings = config.build(TuneSettings, {k: v for k, v in table.items() if v is not None}, "tune")
    return variants(settings) if compare else [settings]


def _show(result: TuneResult, title: str) -> None:
    from foreword.cli import console
    from foreword.tune.result import is_score

    rows = result.rows
    metrics = [key for key in rows[0] if is_score(key) and not key.endswith("_std")]
    cells = []
    for row in rows:
        is_run = "lr" in row
        name = f"{row['start']}, {row['strategy']}" if is_run else row["strategy"]
        scores = [_with_deviation(row[m], row[f"{m}_std"]) for m in metrics]
        cells.append([name, *scores, f"{row['lr']:.2g}" if is_run else ""])
    console.table(title, ["", *metrics, "lr"], cells)
    for row in rows:
        if said := _layers(row):
            console.say(f"{row['start']}, {row['strategy']}: {said}")
    count = result.examples
    first = rows[0]
    console.say(
        f"{count['train']:,} examples to train on, {count['dev']:,} to score; "
        f"{count['cut']:,} cut to {result.template.length} tokens, "
        f"{count['skipped']:,} skipped for want of text or label; "
        f"{_count(first['seeds'], 'seed')}, scored after {_count(first['epochs'], 'epoch')}; "
        "± is the standard deviation over seeds"
    )
    if skipped := sum(row.get("skipped_steps", 0) for row in rows):
        console.say(f"{skipped:,} steps were not finite and skipped")


def _layers(row: Mapping[str, Any]) -> str:
    """What was learned of the layers, where they are mixed."""
    learned = {k: v for k, v in row.items() if k.startswith("layer_") and not k.endswith("_std")}
    gamma = learned.pop("layer_gamma", None)
    if gamma is None:
        return ""
    shares = ", ".join(f"{share:.3f}" for share in learned.values())
    return f"shares of the layers, from what enters the first: {shares}; gamma {gamma:.3f}"


def _with_deviation(mean: float, deviation: float | None) -> str:
    return f"{mean:.3f}" if deviation is None else f"{mean:.3f} ± {deviation:.3f}"


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
