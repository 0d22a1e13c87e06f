"""`foreword tune`: fine-tune a pretrained model on labelled text and score it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from foreword.cli import console
from foreword.cli._model_options import Device, Json, Quiet, Run, Track
from foreword.cli._tune_options import FineTuningOptions, LabelledTextOptions

if TYPE_CHECKING:
    from foreword.api.tune import TuningResult


def tune(
    run: Run,
    labelled_text: LabelledTextOptions,
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

    What is done already is not done again; a call that was interrupted continues after the last
    finished seed.
    """
    from foreword.api.tune import tune as work

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


def _show(result: TuningResult) -> None:
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
    cells = []
    for row in rows:
        is_run = "lr" in row
        name = f"{row['start']}, {row['strategy']}" if is_run else row["strategy"]
        scores = score_cells(row, metrics)
        cells.append([name, *scores, *setting_cells(row).values()])
    heads = ["", *map(metric_name, metrics), *setting_cells(rows[0])]
    console.table(result.title, heads, cells)

    # What else a reader of the scores has to know.
    for row in rows:
        if layers := _layers(row):
            console.say(f"{row['start']}, {row['strategy']}: {layers}")
    count = result.content["examples"]
    first = rows[0]
    console.say(
        f"{train_count(count)}, {count['dev']:,} dev examples; "
        f"{count['cut']:,} cut to {result.content['max_tokens']} tokens, "
        f"{count['skipped']:,} rows skipped (no text or no label); "
        f"{_count(first['seeds'], 'seed')}, {_scored_when(first)}; "
        "± is the standard deviation over seeds"
    )
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
