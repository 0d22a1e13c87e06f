"""`foreword tune`: fine-tune a pretrained model on labelled text and score it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from foreword.cli import console
from foreword.cli._model_options import Device, Json, Quiet, Track
from foreword.cli._tune_options import FineTuningOptions, LabelledTextOptions, SuiteOptions
from foreword.errors import UserError

if TYPE_CHECKING:
    from foreword.api.tune import TuningResult


def tune(
    run: Annotated[
        Path,
        typer.Argument(
            help="A run folder, one of its checkpoints/step-*, or a model tuned on another task."
        ),
    ],
    labelled_text: LabelledTextOptions,
    suite: SuiteOptions,
    fine_tuning: FineTuningOptions,
    name: Annotated[
        str, typer.Option(help="Name of the results; default: folder and file of --train.")
    ] = "",
    out: Annotated[
        Path | None, typer.Option(help="Folder for the tuned model; default: RUN/tuned/NAME.")
    ] = None,
    device: Device = "auto",
    track: Track = None,
    quiet: Quiet = False,
    json: Json = False,
) -> None:
    """Fine-tune a pretrained model on labelled text.

    Trains on --train and scores the last epoch on --dev, once per seed; nothing is chosen by the
    score, but for the threshold of `span`, and the epoch with --set tune.keep=best, where --set
    tune.patience=2 stops a seed after two epochs without a better score. A seed that diverges is
    counted and left out. The scores go to RUN/evaluations, the first seed's model to --out.
    Classes are scored by accuracy, macro F1 (the mean of each label's F1) and Matthews
    correlation.

    A tuned model as RUN gets a new head for the task (intermediate-task tuning).

    What is done already is not done again; a call that was interrupted continues after the last
    finished seed.

    With --suite, each task whose files are in --data is fine-tuned on and scored as its paper does:
    --suite glue reads the original files of GLUE. The learning rate is the strategy's times one of
    the suite's rate_factors (of GLUE 0.5, 1 and 2), or one of those given with --lr: of several the
    best is chosen for each task on a tenth of its training examples. The table has baselines and
    published scores beside the model's; files without labels get predictions to submit, in
    --out/submission.
    """
    if suite.suite is not None:
        _tune_suite(
            run, labelled_text, suite, fine_tuning, name, out, device, track,
            quiet=quiet, json=json,
        )  # fmt: skip
        return
    from foreword.api.tune import tune as work

    suite.refuse("requires --suite")
    if labelled_text.train is None or labelled_text.dev is None:
        option = "--train" if labelled_text.train is None else "--dev"
        raise UserError(f"{option}: required, labelled text; or --suite")
    result = work(
        run,
        **asdict(labelled_text),
        **fine_tuning.arguments(),
        name=name,
        out=out,
        device=device,
        track=track or (),
        progress=not quiet,
    )
    if json:
        saved = {"evaluation": str(result.evaluation), "out": str(result.out)}
        console.emit(dict(result.content) | saved)
    else:
        _show(result)
        if result.result is None:
            console.say("done already, with the same model, settings and examples")
        console.say(f"scores: {result.evaluation}\ntuned model: {result.out}")
        console.say(f"'foreword predict {result.out} FILE' uses it")


def _tune_suite(
    run: Path,
    labelled_text: LabelledTextOptions,
    suite: SuiteOptions,
    fine_tuning: FineTuningOptions,
    name: str,
    out: Path | None,
    device: str,
    track: list[str] | None,
    *,
    quiet: bool,
    json: bool,
) -> None:
    """Fine-tune on the tasks of a suite, and print their table."""
    from foreword.api.tune_suite import tune_suite

    labelled_text.refuse("cannot be combined with --suite, which names its own files")
    arguments = fine_tuning.arguments()
    task, compare = arguments.pop("task"), arguments.pop("compare")
    if task != "classify" or compare:
        option = "--compare" if compare else "--task"
        raise UserError(f"{option}: cannot be combined with --suite, which names its own tasks")
    if suite.data is None:
        raise UserError("--data: required with --suite, the folder of its files")
    result = tune_suite(
        run, str(suite.suite), suite.data, **arguments,
        tasks=[t for t in suite.tasks.split(",") if t.strip()],
        name=name, out=out, device=device, track=track or (), progress=not quiet,
    )  # fmt: skip
    if json:
        saved = {"evaluation": str(result.evaluation), "out": str(result.out)}
        console.emit(dict(result.content) | saved)
    else:
        heads, cells = result.table()
        console.table(str(result.content["title"]), [h.replace(" ", "\n") for h in heads], cells)
        for note in result.notes:
            if "warning: " not in note:  # which was shown before the work
                console.say(note)
        console.say(
            "in percent, ± the standard deviation over seeds; published scores marked (test) are "
            "of the test sets, all others of the dev sets"
        )
        console.say(f"scores: {result.evaluation}\ntuned models: {result.out}")
    if result.failures:
        raise typer.Exit(2)


def _show(result: TuningResult) -> None:
    from foreword.formatting import quantity
    from foreword.tuning.margins import lines as margin_lines
    from foreword.tuning.result import (
        is_score,
        metric_name,
        score_cells,
        setting_cells,
        train_count,
    )

    # The table: one row per variant, one column per metric.
    rows = result.rows
    metrics = [key for key in rows[0] if is_score(key) and not key.endswith("_std")]
    cells, settings = [], setting_cells(rows)
    for row, row_settings in zip(rows, settings, strict=True):
        is_run = "lr" in row
        name = f"{row['start']}, {row['strategy']}" if is_run else row["strategy"]
        scores = score_cells(row, metrics)
        cells.append([name, *scores, *row_settings.values()])
    heads = ["", *map(metric_name, metrics), *settings[0]]
    console.table(result.title, heads, cells)

    # What else a reader of the scores has to know.
    for row in rows:
        if layers := _layers(row):
            console.say(f"{row['start']}, {row['strategy']}: {layers}")
    count = result.content["examples"]
    first = rows[0]
    same = "trained parameters" not in settings[0] and "trained_parameters" in first
    trained = f"; {quantity(first['trained_parameters'])} parameters trained" if same else ""
    deviates = first["seeds"] > 1
    console.say(
        f"{train_count(count)}, {count['dev']:,} dev examples; "
        f"{count['cut']:,} cut to {result.content['max_tokens']} tokens, "
        f"{count['skipped']:,} rows skipped (empty, or without a label); "
        f"{_count(first['seeds'], 'seed')}, {_scored_when(first)}{trained}"
        + "; ± is the standard deviation over seeds"
        * deviates
    )
    for line in margin_lines(result.content.get("margins", ())):
        console.say(line)
    for note in result.content.get("notes", ()):
        if not note.startswith("warning: "):  # which was shown before the work
            console.say(note)
    if skipped := sum(row.get("skipped_steps", 0) for row in rows):
        console.say(f"{skipped:,} non-finite steps skipped")


def _layers(row: Mapping[str, Any]) -> str:
    """Return the learned weights of the scalar mix; "" for a row without one."""
    learned = {k: v for k, v in row.items() if k.startswith("layer_") and not k.endswith("_std")}
    gamma = learned.pop("layer_gamma", None)
    if gamma is None:
        return ""
    shares = ", ".join(f"{share:.3f}" for share in learned.values())
    return f"layer weights, embeddings first: {shares}; gamma {gamma:.3f}"


def _scored_when(row: Mapping[str, Any]) -> str:
    """Return which epoch's scores a row has."""
    if "kept_epoch" in row:
        return f"each at its best of at most {_count(row['epochs'], 'epoch')}"
    return f"scored after {_count(row['epochs'], 'epoch')}"


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
