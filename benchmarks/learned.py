"""What models learned: every suite and every task, for several models, in one page of tables.

    python benchmarks/learned.py encoder=runs/encoder decoder=runs/decoder runs/counts
        --data DATA --out learned [--quick] [--only SST-2,COPA] [--examples 1000] [--seeds 3]

Each model is asked the suites of learned.toml as it is, beside the same network with random
weights, and fine-tuned on its tasks, beside the same from scratch, a bag of words and the best
answer without a network. The folder OUT has the tables, learned.md and learned.csv, rewritten after
each cell, and what is done, which another call does not do again: cells of the same settings and
checkpoint, and seeds. Files that are not there are named, and so is what a model cannot do, with
the reason.
"""

from __future__ import annotations

import argparse
import csv
import io
import shutil
import tempfile
import time
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import foreword
from foreword.cli._process import configure_process
from foreword.data.fingerprint import digest
from foreword.disk import atomic, stored
from foreword.errors import TrainingStoppedError, UserError
from foreword.probes._files import evenly
from foreword.process import allocator
from foreword.runs.run_folder import open_run
from foreword.runs.trained_model import TrainedModel
from foreword.settings import config, kinds
from foreword.tables.examples import Labelled
from foreword.tables.reads_rows import ReadsLabelled
from foreword.train import tensor_files
from foreword.tuning.example_reader import ExampleReader, sources_of
from foreword.tuning.job import Examples, TuneJob
from foreword.tuning.published_head import with_published_head
from foreword.tuning.scores import as_gain, metric_name
from foreword.tuning.settings import TuneSettings
from foreword.tuning.tasks._contract import Task
from foreword.tuning.tune import tune

SUITES = Path(__file__).with_suffix(".toml")
HEADINGS = {"asked": "As they are, without training", "tuned": "Fine-tuned"}
BASELINES = {"asked": ("chance",), "tuned": ("baseline", "bag of words")}
LEGEND = {
    "asked": "With a 95 % interval over questions; behind the semicolon the same network with "
    "random weights.",
    "tuned": "Mean and standard deviation over seeds; behind the semicolon the same network from "
    "scratch. The baseline needs no network: the most frequent label (of each word), the mean, ...",
}
QUICK = {"examples": 48, "scored": 24, "seeds": 1, "epochs": 1, "limit": 10}
NONE = "–"
Figure = dict[str, float | None]


@dataclass(frozen=True)
class Row:
    """A suite that models are asked, or a task that they are tuned on: a table of learned.toml.

    Attributes:
        part: `asked` or `tuned`.
        name: what the tables call it.
        kind: of the probe or the task.
        settings: of the probe or the task, files among them.
        score: the figure; default: the first.
        train: examples to train on.
        dev: examples to score; if none, the last `share` of the others.
        share: see `dev`.
        columns: of the examples.
        scored: the most examples that are scored, evenly spaced.
    """

    part: str
    name: str
    kind: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    score: str = ""
    train: tuple[str, ...] = ()
    dev: tuple[str, ...] = ()
    share: float = 0.0
    columns: Mapping[str, str] = field(default_factory=dict)
    scored: int = 1000


def rows_of(data: Path, only: Sequence[str]) -> tuple[list[Row], list[str]]:
    """Return the rows whose files are there, and a line for each of the others."""
    rows, missing = [], []
    parts = tomllib.loads(SUITES.read_text(encoding="utf-8"))
    for part, table in ((part, table) for part, tables in parts.items() for table in tables):
        if only and not any(name in table["name"] for name in only):
            continue
        files = table.pop("files", {})
        train, dev = _list(table.pop("train", [])), _list(table.pop("dev", []))
        named = [*train, *dev, *files.values()]
        if absent := [name for name in named if not (data / name).exists()]:
            missing.append(f"{table['name']}: not there: {', '.join(absent)}")
            continue
        task = table.pop("task", {})
        below = {key: str(data / name) for key, name in files.items()}
        settings = {**table.pop("set", {}), **below, **task}
        table["kind"] = table.pop("kind", "") or settings.pop("kind")
        table["train"], table["dev"] = (tuple(str(data / n) for n in some) for some in (train, dev))
        rows.append(Row(part=part, settings=settings, **table))
    return rows, missing


def _list(value: Any) -> list[str]:
    return [value] if isinstance(value, str) else list(value)


# -- cells -----------------------------------------------------------------------------------------


def asked(row: Row, run: str, options: argparse.Namespace) -> dict[str, Any]:
    """Return the figures of a model in a suite or a probe, and those of random weights."""
    settings = dict(row.settings)
    if options.limit and "limit" in kinds.load("probes", row.kind).__dataclass_fields__:
        settings["limit"] = options.limit
    has_weights = not open_run(run, "cpu").recipe.model.is_count_based
    with tempfile.TemporaryDirectory() as out:
        given: dict[str, Any] = {"settings": settings, "out": out, "progress": False}
        found = foreword.probe(run, row.kind, untrained=has_weights, **given).finding
    figures = []
    for name in dict.fromkeys(one["run"] for one in found.rows):
        own = [one for one in found.rows if one["run"] == name]
        figures.append(next((one for one in own if "all" in one.values()), own[0]))
    return {"measure": found.measure, "figures": [dict(one) for one in figures]}


def tuned(row: Row, run: str, options: argparse.Namespace, seeds: Path) -> dict[str, Any]:
    """Return the rows of a model tuned on a task, from scratch, and of the baselines.

    Args:
        row: the task.
        run: the model.
        options: of the command line.
        seeds: folder of finished seeds.
    """
    trained = open_run(run, "cpu")
    trained.require_gradients()
    task = task_of(row, trained)
    train, dev = examples(row, task, options.scored)
    settings = TuneSettings(
        seeds=options.seeds,
        epochs=options.epochs,
        examples=options.examples if options.examples < len(train) else None,
    )
    if options.lr:
        settings = replace(settings, strategy=replace(settings.strategy, lr=options.lr))  # type: ignore[call-arg]
    variants = [settings, replace(settings, from_scratch=True)]
    with allocator.returning_freed():
        job = TuneJob(task, Examples(train, dev), variants, folder=seeds)
        result = tune(trained, job)
    assert job.seeds_folder is not None
    shutil.rmtree(job.seeds_folder, ignore_errors=True)
    return {
        "measure": result.rows[0].chosen_metric(),
        "figures": [row.as_row() for row in result.rows],
    }


def task_of(row: Row, trained: TrainedModel) -> Task:
    """Return the task of a row, with the head that the model is tuned with by default."""
    task: Task = config.build_kind(
        kinds.Part("tuning/tasks"), {"kind": row.kind, **row.settings}, "task"
    )
    return with_published_head(task, trained)


def examples(row: Row, task: Task, most: int) -> tuple[Sequence[Labelled], Sequence[Labelled]]:
    """Return the examples to train on, and those to score."""
    reader = ExampleReader(task, ReadsLabelled(**row.columns, bad_rows=0.0))
    train = [one for name in row.train for one in sources_of(name, "train", task)]
    dev = [one for name in row.dev for one in sources_of(name, "dev", task)]
    read, _ = reader.read({"train": train, "dev": dev or train})
    together, most = read.train, min(most, row.scored)
    if dev:
        return together, evenly(list(read.dev), most)
    first = len(together) - max(1, round(row.share * len(together)))
    return together[:first], evenly(list(together[first:]), most)


def cell_of(row: Row, name: str, run: str, options: argparse.Namespace) -> dict[str, Any]:
    """Return what a model reached, as it is kept, or measured now and kept."""
    numbers = ("examples", "scored", "seeds", "epochs", "lr") if row.part == "tuned" else ("limit",)
    settings = {key: getattr(options, key) for key in numbers}
    trained = open_run(run, "cpu")
    task = config.to_table(task_of(row, trained)) if row.part == "tuned" else row.settings
    asked_of = [row.kind, task, row.train, row.dev, row.share, row.columns, row.scored]
    files = [atomic.checksum(path) for path in map(Path, (*row.train, *row.dev)) if path.is_file()]
    has_weights = (trained.folder / tensor_files.name_of("weights")).is_file()  # not counts
    weights = tensor_files.checksum(trained.folder, "weights") if has_weights else ""
    key = digest([asked_of, files, settings, str(trained.folder), weights])
    file = options.out / "cells" / f"{row.kind}-{name}-{key[:12]}.json"
    if file.is_file():
        return stored.read(file)
    started = time.process_time()
    try:
        if row.part == "asked":
            cell = asked(row, run, options)
        else:
            cell = tuned(row, run, options, file.with_suffix(".seeds"))
    except (UserError, TrainingStoppedError) as error:
        cell = {"refused": str(error).removeprefix(f"{run}: ")}
    cell |= {"row": row.name, "model": name, "seconds": round(time.process_time() - started, 1)}
    if "refused" not in cell:
        file.parent.mkdir(parents=True, exist_ok=True)
        stored.write(file, cell)
    return cell


# -- tables ----------------------------------------------------------------------------------------


def figures_of(row: Row, cell: Mapping[str, Any]) -> dict[str, Figure]:
    """Return the figures of a cell, each with its deviation or interval, by what they are of."""
    if "figures" not in cell:
        return {}
    measure = row.score or cell["measure"]
    first, *others = cell["figures"]
    if row.part == "asked":
        is_main = measure == cell["measure"]  # whose interval and chance the others are
        keys = ("low", "high") if is_main else ()
        found = {"model": {"score": first[measure], **{key: first.get(key) for key in keys}}}
        chance = first.get("chance", first.get("baseline")) if is_main else None
        return (
            found
            | ({"other": {"score": others[0][measure]}} if others else {})
            | ({"chance": {"score": chance}} if chance is not None else {})
        )
    known = [one for one in others[1:] if measure in one]
    words = [one for one in known if str(one["strategy"]).startswith("bag of words")]
    plain = [one for one in known if one not in words]
    named = {"model": first, "other": others[0]}
    if words:
        named["bag of words"] = words[0]
    if plain:
        named["baseline"] = max(plain, key=lambda one: as_gain(measure, one[measure]))
    return {
        name: {"score": one.get(measure), "deviation": one.get(f"{measure}_std")}
        for name, one in named.items()
    }


def text_of(figure: Figure) -> str:
    """Return a figure with its deviation or interval."""
    score = figure.get("score")
    if score is None:
        return NONE
    text = f"{score:,.0f}" if abs(score) >= 1000 else f"{score:.3f}"
    if (deviation := figure.get("deviation")) is not None:
        return f"{text} ± {deviation:.3f}"
    low, high = figure.get("low"), figure.get("high")
    return text if low is None or high is None else f"{text} ({low:.3f}–{high:.3f})"


Cells = Mapping[tuple[str, str], Mapping[str, Any]]


def page_of(rows: Sequence[Row], models: Sequence[str], cells: Cells, setup: str) -> str:
    """Return the tables in Markdown, with what was refused and why."""
    lines = ["# What models learned", "", setup]
    for part, baselines in BASELINES.items():
        columns = ["", "measure", *baselines, *models]
        table = ["| " + " | ".join(columns) + " |", "|" + "---|" * len(columns)]
        for row in (row for row in rows if row.part == part):
            each = [figures_of(row, cells.get((row.name, model), {})) for model in models]
            first = next((found for found in each if found), {})
            measures = [
                cell["measure"]
                for (name, _), cell in cells.items()
                if name == row.name and "measure" in cell
            ]
            texts = [row.name, metric_name(row.score or measures[0]) if measures else NONE]
            texts += [text_of(first.get(name, {})) for name in baselines]
            for found in each:
                both = [text_of(found[name]) for name in ("model", "other") if name in found]
                texts.append("; ".join(both) or NONE)
            table.append("| " + " | ".join(texts) + " |")
        if len(table) > 2:
            lines += ["", f"## {HEADINGS[part]}", "", LEGEND[part], "", *table]
    refused: dict[str, list[str]] = {}
    for (name, model), cell in cells.items():
        if "refused" in cell:
            refused.setdefault(cell["refused"], []).append(f"{model}, {name}")
    if refused:
        lines += ["", "Not measured:", ""]
        lines += [f"- {'; '.join(who)}: {reason}" for reason, who in refused.items()]
    return "\n".join(lines) + "\n"


def table_of(rows: Sequence[Row], cells: Cells) -> str:
    """Return every figure as CSV, a line each."""
    text = io.StringIO()
    names = ("score", "deviation", "low", "high")
    out = csv.writer(text, lineterminator="\n")
    out.writerow(["part", "row", "measure", "model", "of", *names, "refused", "seconds"])
    by_name = {row.name: row for row in rows}
    for (name, model), cell in cells.items():
        row = by_name[name]
        start = [row.part, name, row.score or cell.get("measure", ""), model]
        end = [cell.get("refused", ""), cell["seconds"]]
        for of, figure in figures_of(row, cell).items() or [("model", {})]:
            out.writerow([*start, of, *(figure.get(key) for key in names), *end])
    return text.getvalue()


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure what is not kept, and write the tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("runs", nargs="+", metavar="[NAME=]RUN")
    parser.add_argument("--data", type=Path, required=True, help="folder of the files")
    parser.add_argument("--out", type=Path, required=True, help="folder of tables and cells")
    parser.add_argument("--only", default="", help="rows whose names have one of these: A,B")
    parser.add_argument("--quick", action="store_true", help="a trial with few examples")
    parser.add_argument("--examples", type=int, default=1000, help="training examples of a seed")
    parser.add_argument("--scored", type=int, default=500, help="the most examples scored")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--lr", type=float, help="learning rate; default: the strategy's")
    parser.add_argument("--limit", type=int, help="questions of a suite; default: learned.toml's")
    options = parser.parse_args(arguments)
    if options.quick:
        vars(options).update(QUICK)
    runs = {}
    for given in options.runs:
        name, _, run = given.rpartition("=")
        runs[name or Path(run).name] = run
        try:
            open_run(run, "cpu")
        except UserError as error:
            parser.error(str(error))
    rows, missing = rows_of(options.data, [name for name in options.only.split(",") if name])
    for line in missing:
        print(line, flush=True)
    setup = (
        f"Tuning: at most {options.examples:,} examples, seeds {options.seeds}, epochs "
        f"{options.epochs}; at most {options.scored:,} examples scored."
    )
    cells: dict[tuple[str, str], dict[str, Any]] = {}
    for row in rows:
        for name, run in runs.items():
            cell = cells[row.name, name] = cell_of(row, name, run, options)
            shown = figures_of(row, cell)
            text = text_of(shown["model"]) if shown else f"not measured: {cell['refused']}"
            print(f"{row.name}, {name}: {text}  ({cell['seconds']:g} s)", flush=True)
            page = page_of(rows, list(runs), cells, setup)
            atomic.write_text(options.out / "learned.md", page)
            atomic.write_text(options.out / "learned.csv", table_of(rows, cells))


if __name__ == "__main__":
    configure_process()
    main()
