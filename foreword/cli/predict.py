"""`foreword predict`: labels, numbers or texts of a fine-tuned model for the rows of a file."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from foreword.cli import console
from foreword.cli._column_options import ColumnOptions
from foreword.cli._model_options import Device, Json, Quiet


def predict(
    tuned: Annotated[Path, typer.Argument(help="The folder that 'foreword tune' wrote.")],
    file: Annotated[
        Path,
        typer.Argument(
            help="Rows: .tsv, .csv, .jsonl, .parquet, or what the task reads (.conllu), plain, .gz "
            "or .zst; - for lines of text."
        ),
    ],
    column_options: ColumnOptions,
    out: Annotated[
        Path | None,
        typer.Option(
            help="File to write: .jsonl, .csv, .tsv, .parquet, .conll for sentences, .json by id; "
            "default: JSON lines to the screen."
        ),
    ] = None,
    probabilities: Annotated[
        bool, typer.Option("--probabilities", help="Also give the probability of each label.")
    ] = False,
    device: Device = "auto",
    precision: Annotated[str, typer.Option(help="Precision: fp32, bf16 or auto.")] = "fp32",
    quiet: Quiet = False,
    json: Json = False,
) -> None:
    """Predict with a fine-tuned model: a label, a number or a text for each row of a file.

    The output has the rows in their order, with their columns and 'prediction'; for labels also
    'probability'. A model of sentence embeddings gives the vector of a text, and the cosine of a
    pair. A row without text has no prediction. Of a tagged sentence both are lists, with an item
    for each word; --out with .conll writes a word per line.
    """
    from foreword.api.predict import STANDARD
    from foreword.api.predict import predict as work

    result = work(
        tuned,
        str(file),
        out=out if out is not None or json else STANDARD,
        **asdict(column_options),
        probabilities=probabilities,
        device=device,
        precision=precision,
        progress=not quiet,
    )
    if json:
        out_file = {} if result.out is None else {"out": str(result.out)}
        rows = {"predictions": result.rows} if result.out is None else {}
        console.emit({**out_file, **vars(result.counts), **rows})
        return
    if quiet:
        return
    counts = result.counts
    labels = ", ".join(f"{label}: {count:,}" for label, count in counts.labels.most_common(10))
    rows_read = f"{counts.rows:,} {'row' if counts.rows == 1 else 'rows'}"
    console.say(f"{rows_read}{f'; {labels}' if labels else ''}")
    if result.out is not None:
        console.say(f"predictions: {result.out}")
