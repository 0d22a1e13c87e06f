"""`foreword tune`: fine-tune a pretrained model on labelled text and score it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from foreword.cli import console
from foreword.cli._model_options import Device, Json, Run
from foreword.cli._tune_options import FineTuningOptions, LabelledTextOptions
from foreword.errors import UserError

if TYPE_CHECKING:
    from foreword.tune.result import TuneResult


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
    json: Json = False,
) -> None:
    """Fine-tune a pretrained model on labelled text.

    Trains on --train and scores the last epoch on --dev, once per seed; nothing is chosen by the
    score. The scores go to RUN/evaluations, the first seed's model to --out.
    """
    from foreword.cli._places import guard_run
    from foreword.runs.provenance import command
    from foreword.runs.trained_model import open_run
    from foreword.tune import result as results
    from foreword.tune.input_template import missing_special_tokens
    from foreword.tune.run import tune as fine_tune

    # Check every option and read the text before the model is trained.
    task, variants = fine_tuning.resolve()
    if "/" in name:
        raise UserError(f"--name {name}: must be a name, not a path; --out takes a path")
    train, dev, skipped = labelled_text.read()

    # Open the model, and make sure before the work that no result will be overwritten.
    trained = open_run(run, device)
    guard_run(trained.run)
    name = name or _name_of(labelled_text.train[0])
    evaluation = trained.run / "evaluations" / f"tune-{fine_tuning.task}-{name}.json"
    out = out or trained.run / "tuned" / name
    results.require_free(evaluation, out)
    for note in trained.notes:
        console.say(note)
    if added := missing_special_tokens(trained.recipe, trained.vocab):
        console.say(f"special tokens added for the input template: {', '.join(added)}")

    with console.progress() as bar:
        result = fine_tune(trained, task, train, dev, variants, bar.stage("tuning"))

    # Record where the examples came from, and write the model and its scores.
    result = replace(
        result,
        examples=result.examples | {"skipped": skipped},
        settings=result.settings | {"data": labelled_text.as_table()},
    )
    results.save_network(result, out)
    document = results.save_evaluation(result, evaluation, name, command())
    if json:
        console.emit(document | {"evaluation": str(evaluation), "out": str(out)})
    else:
        _show(result, document["title"])
        console.say(f"scores: {evaluation}\ntuned model: {out}")


def _name_of(train: Path) -> str:
    """Return folder and file, `CoLA-small`; for a file named `train`, the folder alone."""
    folder, file = train.resolve().parent.name, train.name.partition(".")[0]
    return "-".join(part for part in (folder, file) if part and part != "train") or "data"


def _show(result: TuneResult, title: str) -> None:
    from foreword.tune.result import is_score

    # The table: one row per variant, one column per metric.
    rows = result.rows
    metrics = [key for key in rows[0] if is_score(key) and not key.endswith("_std")]
    cells = []
    for row in rows:
        is_run = "lr" in row
        name = f"{row['start']}, {row['strategy']}" if is_run else row["strategy"]
        scores = [_with_deviation(row[m], row[f"{m}_std"]) for m in metrics]
        cells.append([name, *scores, f"{row['lr']:.2g}" if is_run else ""])
    console.table(title, ["", *metrics, "lr"], cells)

    # What else a reader of the scores has to know.
    for row in rows:
        if layers := _layers(row):
            console.say(f"{row['start']}, {row['strategy']}: {layers}")
    count = result.examples
    first = rows[0]
    console.say(
        f"{count['train']:,} training examples, {count['dev']:,} dev examples; "
        f"{count['cut']:,} cut to {result.template.length} tokens, "
        f"{count['skipped']:,} rows skipped (no text or no label); "
        f"{_count(first['seeds'], 'seed')}, scored after {_count(first['epochs'], 'epoch')}; "
        "± is the standard deviation over seeds"
    )
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


def _with_deviation(mean: float, deviation: float | None) -> str:
    return f"{mean:.3f}" if deviation is None else f"{mean:.3f} ± {deviation:.3f}"


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
