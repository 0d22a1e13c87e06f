"""Results as tables: Markdown for people, CSV and JSON for programs."""

from __future__ import annotations

import csv
import io
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from itertools import pairwise
from typing import Any

from foreword.comparison import verdicts
from foreword.comparison.forecast import ComparisonForecast, Forecast
from foreword.comparison.grid import Cell, GridTask
from foreword.comparison.power import power_notes
from foreword.comparison.probing import RANDOM, named, texts_of
from foreword.comparison.results import NUMBERS, Measure, Results
from foreword.comparison.run import RESULTS
from foreword.comparison.sweep import SEED, describe, ranked, settings_at_edge
from foreword.disk import atomic, stored
from foreword.evaluation.margins import points
from foreword.evaluation.statistics import LEVEL, half_width_of_share, signal_notes
from foreword.formatting import at_most, duration, power, quantity
from foreword.settings.config import to_toml
from foreword.tuning.scores import metric_name

MISSING = "–"
SAMPLES, SCRATCH = "What they say", "from scratch"  # a title, a column
BEST = ("best of the sweep", "loss", "next best", "its loss")
BLANK = re.compile(r"«|\[MASK\]|<extra_id_\d+>")  # a blank, or a filled one
CONTEXT_WORDS = 4  # words shown on either side of a blank


@dataclass(frozen=True)
class MarkdownTable:
    """A table for people.

    Attributes:
        title: heading above the table.
        columns: names of the columns.
        rows: the cells of each row, one per column.
    """

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]

    def without_empty_columns(self) -> MarkdownTable:
        """Return the table without columns in which all is missing."""
        filled = [
            n for n in range(len(self.columns)) if any(row[n] != MISSING for row in self.rows)
        ]
        columns = tuple(self.columns[n] for n in filled)
        rows = tuple(tuple(row[n] for n in filled) for row in self.rows)
        return replace(self, columns=columns, rows=rows)

    def markdown(self) -> str:
        """Return the table as Markdown."""
        lines = [self.columns, ("---",) * len(self.columns), *self.rows]
        body = "\n".join(f"| {' | '.join(map(_escaped, line))} |" for line in lines)
        return f"## {self.title}\n\n{body}\n"


def tables(results: Results) -> list[MarkdownTable]:
    """Return the tables of pretraining, its measures, sweeps and samples; none is empty."""
    grid = results.comparison.grid
    all_tables = [
        _verdicts(results),
        _pretraining(results),
        _measured(results, "Held-out loss by source", texts_of(grid.sources)),
        _measured(results, "Probes", named(grid.probes)),
        _fine_tuning(results),
        _margins(results),
        _sweeps(results),
        _samples(results),
    ]
    return [table for table in all_tables if table.rows]


def notes(results: Results) -> list[str]:
    """Return the notes on the tables: how to read them, what failed and what is not done."""
    grid = results.comparison.grid
    assert grid.budget is not None
    percent = f"{LEVEL:.0%}"
    # What the losses are, and whether they compare.
    lines = [] if grid.has_budgets else [f"Each cell: {grid.budget.describe()}."]
    if grid.sources:
        lines.append(
            "Held-out losses are nats per prediction. That of a cell is the mean of its own "
            "sources by their shares in its training; between cells of one objective compare the "
            "losses by source, which are on the same texts, or their bits per byte (results.csv) "
            "if tokenizers differ."
        )
    elif results.is_one_objective:
        lines.append("Held-out losses are nats per token, and all cells predict all of the text.")
    else:
        lines.append(
            "Held-out losses are nats per prediction of each cell's own objective and are not "
            "comparable between objectives. Bits per byte are; they are given where all of the "
            "text is predicted."
        )
    if bounds := [cell.name for cell in grid.cells if results.is_bound(cell)]:
        lines.append(
            f"Losses of {', '.join(bounds)}, and perplexities of answers, are upper bounds of the "
            "text's negative log-likelihood (masked diffusion), estimated by random masking; no "
            "verdict sets them against exact ones."
        )
    # What the intervals are over, and what they leave out.
    if grid.most_seeds > 1:
        lines.append(
            f"± is half the {percent} interval (Student's t) over {grid.most_seeds} seeds "
            "of pretraining, each the mean of its fine-tunings; from scratch, over seeds of "
            "fine-tuning."
        )
    elif grid.tasks:
        lines.append(
            f"± is half the {percent} interval (Student's t) over seeds of fine-tuning. Each cell "
            "was pretrained once, so it leaves out the variation between seeds of pretraining."
        )
    sizes = [_describe_dev_size(task, results) for task in grid.tasks if task.name in results.dev]
    if sizes:
        lines.append(f"± also leaves out the variation between dev examples: {'; '.join(sizes)}.")
    by_cell = [results.margins(cell, task) for task in grid.tasks for cell in grid.cells]
    if any(by_cell):
        of = "pretraining" if grid.most_seeds > 1 else "fine-tuning"
        has_seeds = any(one.seeds > 1 for margins in by_cell for one in margins.values())
        over = f"over seeds of {of} and over" if has_seeds else "with one seed over"
        alone = "" if has_seeds else " alone"
        lines.append(
            f"Margins are points of accuracy with their {percent} intervals, {over} "
            f"examples{alone}: both sides answer the same ones, so differences are paired."
        )
    noise = "of a cell's mean over seeds, or of its score over examples with one seed"
    lines += verdicts.notes(verdicts.verdicts(results), grid.seeds)
    signals = signal_notes(results.signals(), "cells", noise)
    lines += [f"{line[0].upper()}{line[1:]}." for line in signals]
    lines += power_notes(results)
    limits = [f"{task.name}: the first {task.rows:,} rows" for task in grid.tasks if task.rows]
    if limits:
        lines.append(f"Training examples used: {'; '.join(limits)}.")
    lines += _sweep_notes(results)
    # What is wrong or missing.
    lines += results.comparison.warnings
    lines += [f"Failed: {f.job}: {f.error}" for f in results.comparison.failures]
    jobs = results.comparison.jobs()
    missing = sum(results.comparison.seconds_taken(job) is None for job in jobs)
    if missing:
        lines.append(f"{missing} of {len(jobs)} jobs are not done.")
    return lines


def forecast_table(forecast: ComparisonForecast) -> MarkdownTable:
    """Return the table of a forecast, a row per cell."""
    columns = (
        "cell",
        "parameters",
        "FLOPs/token",
        "tokens",
        "epochs",
        "memory",
        "sweep, about",
        "pretraining",
        "fine-tuning, about",
    )
    rows = [_forecast_row(cell, len(columns)) for cell in forecast.cells]
    return MarkdownTable("Forecast", columns, tuple(rows))


def _forecast_row(cell: Forecast, width: int) -> tuple[str, ...]:
    if cell.error or cell.note:
        return (cell.cell, cell.error or cell.note, *[""] * (width - 2))
    return (
        cell.cell,
        quantity(cell.parameters),
        power(cell.flops_per_token),
        quantity(cell.tokens),
        f"{cell.epochs:.2f}",
        f"{cell.bytes / 1e9:.1f} GB",
        duration(cell.sweep_seconds) if cell.sweep_seconds else MISSING,
        duration(cell.pretraining_seconds),
        duration(cell.tuning_seconds),
    )


def forecast_notes(forecast: ComparisonForecast, results: Results) -> list[str]:
    """Return the number of jobs and their time, and which differences they can show."""
    least = "about" if forecast.is_complete else "at least"
    jobs = f"{forecast.jobs} job{'s' * (forecast.jobs != 1)}"
    lines = [f"{jobs}, {least} {duration(forecast.seconds)} in total"]
    shares = [f"{cell.cell} {cell.embeddings:.1%}" for cell in forecast.cells if cell.embeddings]
    if shares:
        beside = "; the trials of a sweep share theirs, beside their budgets"
        lines.append(
            f"Making the first embeddings takes at most this share of a pretraining: "
            f"{', '.join(shares)}{beside * any(cell.sweep_seconds for cell in forecast.cells)}."
        )
    return [*lines, *power_notes(results)]


def _describe_dev_size(task: GridTask, results: Results) -> str:
    """Return the number of a task's dev examples, and for accuracy the interval they imply."""
    count = results.dev[task.name]
    text = f"{task.name} has {count:,}"
    if results.metric(task) != "accuracy":
        return text
    return f"{text}, so up to ± {half_width_of_share(count):.3f} ({LEVEL:.0%}, binomial)"


def as_json(results: Results) -> dict[str, Any]:
    """Return the content of `results.json`: all numbers, tables and notes."""
    as_dicts = [asdict(table) for table in tables(results)]
    found = list(map(asdict, verdicts.verdicts(results)))
    return {
        **results.as_json(),
        "verdicts": found,
        "tables": as_dicts,
        "notes": notes(results),
    }


def write(results: Results) -> None:
    """Write table.md, results.csv and results.json.

    Raises:
        UserError: the disk is full or the folder cannot be written.
    """
    out, grid = results.comparison.out, results.comparison.grid
    parts = [f"# {grid.description or 'Comparison'}\n"]
    parts += [table.markdown() for table in tables(results)]
    parts.append("".join(f"- {note}\n" for note in notes(results)))
    atomic.write_text(out / "table.md", "\n".join(parts))
    stored.write(out / RESULTS, as_json(results))
    atomic.write_text(out / "results.csv", _csv(results))


def _verdicts(results: Results) -> MarkdownTable:
    """Return the table of verdicts: a row per measure."""
    rows = [(verdicts.title(one), one.text) for one in verdicts.verdicts(results)]
    return MarkdownTable("Verdicts", ("measure", "verdict"), tuple(rows))


def _sweeps(results: Results) -> MarkdownTable:
    """Return the table of sweeps: the two best trials of each cell."""
    columns = ("cell", *BEST, "tried", "diverged")
    rows, comparison = [], results.comparison
    for cell in comparison.grid.cells:
        if results.best(cell) is None:
            continue
        trials = results.trials_of(cell)
        best = [text for t in ranked(trials)[:2] for text in (describe(t.values), f"{t.loss:.3f}")]
        best += [MISSING] * (len(BEST) - len(best))
        diverged = sum(trial.loss is None for trial in trials)
        counts = Counter(trial.round for trial in trials)
        tried = " + ".join(str(counts[number]) for number in sorted(counts))
        rows.append((cell.name, *best, tried, str(diverged)))
    return MarkdownTable("Sweep", columns, tuple(rows))


def _sweep_notes(results: Results) -> list[str]:
    """Return what the sweeps were, and which of them end at an edge of what was tried."""
    comparison, grid = results.comparison, results.comparison.grid
    if not any(grid.trials(cell) for cell in grid.cells):
        return []
    rounds = max(len(grid.rounds(cell)) for cell in grid.cells)
    again = ", and the better half again for twice that" if rounds > 1 else ""
    again += ", and so on" if rounds > 2 else ""
    again += f", {rounds} rounds in all" if rounds > 1 else ""
    lines = [
        f"Before its seeds, each combination of a sweep's values was trained once, for "
        f"{grid.sweep_share:.0%} of the budget{again}; the cell's runs have the values of the "
        "lowest loss on a validation part drawn from the training documents, which is not the "
        "held-out text of these tables."
    ]
    swept = [cell for cell in grid.cells if results.best(cell) is not None]
    at_edges = {cell.name: settings_at_edge(comparison.trials.of(cell)) for cell in swept}
    best_at_edge = [f"{name}: {', '.join(values)}" for name, values in at_edges.items() if values]
    if best_at_edge:
        lines.append(
            f"At the edge of the values tried, so others may be better: {'; '.join(best_at_edge)}."
        )
    return lines


def _pretraining(results: Results) -> MarkdownTable:
    columns = (
        "cell",
        "recipe",
        "parameters",
        "on disk",
        "tokens",
        "FLOPs",
        "time",
        "tokens/s",
        "held-out loss",
        "perplexity",
        "bits per byte",
    )
    rows = []
    for cell in results.comparison.grid.cells:
        mean = {key: results.cell_interval(cell, key) for key in NUMBERS}
        if mean["parameters"] is None:
            continue
        number = {key: value.mean if value else float("nan") for key, value in mean.items()}
        rows.append(
            (
                cell.name,
                _recipe_name(cell),
                quantity(number["parameters"]),
                f"{number['bytes'] / 1e6:,.1f} MB",
                quantity(number["tokens"]),
                power(number["flops"]),
                duration(number["seconds"]),
                quantity(number["tokens_per_second"]),
                *(
                    at_most(str(mean[key] or MISSING), results.is_bound(cell))
                    for key in ("heldout_loss", "perplexity", "bits_per_byte")
                ),
            )
        )
    return MarkdownTable("Pretraining", columns, tuple(rows)).without_empty_columns()


def _measured(results: Results, title: str, measures: Sequence[Measure]) -> MarkdownTable:
    """Return a table of measurements: a row per cell, a column for each, and for random weights."""
    rows = [
        (cell.name, *row)
        for cell in results.comparison.grid.cells
        if (row := _scores(results, cell, measures))
    ]
    return MarkdownTable(title, _columns(results, measures, RANDOM), tuple(rows))


def _fine_tuning(results: Results) -> MarkdownTable:
    """Return the table of scores: a row per cell and per baseline, a column per start."""
    grid = results.comparison.grid
    columns = _columns(results, grid.tasks, SCRATCH)
    # A row per cell that has scores.
    rows = []
    for cell in grid.cells if grid.tasks else ():
        if not results.comparison.tasks_of(cell):
            rows.append((cell.name, *["not applicable"] * (len(columns) - 1)))
        elif row := _scores(results, cell, grid.tasks):
            rows.append((cell.name, *row))
    # A row per baseline.
    baselines = [score for score in results.scores if not score.cell]
    for name in dict.fromkeys(score.start for score in baselines):
        baseline_row = [name]
        for task in grid.tasks:
            value = results.task_interval("", task, name)
            baseline_row += [str(value or MISSING), *[""] * task.scratch]
        rows.append(tuple(baseline_row))
    return MarkdownTable("Fine-tuning", columns, tuple(rows))


def _margins(results: Results) -> MarkdownTable:
    """Return the table of margins: a row per task and cell, a column for each it is over."""
    grid = results.comparison.grid
    by_row = {
        (task.name, cell.name): margins
        for task in grid.tasks
        for cell in grid.cells
        if (margins := results.margins(cell, task))
    }
    names = list(dict.fromkeys(name for margins in by_row.values() for name in margins))
    rows = tuple(
        (*row, *(points(margins[name]) if name in margins else MISSING for name in names))
        for row, margins in by_row.items()
    )
    return MarkdownTable("Margins", ("task", "cell", *(f"over {name}" for name in names)), rows)


def _columns(results: Results, measures: Sequence[Measure], scratch: str) -> tuple[str, ...]:
    """Return the columns of scores: one for each measure, and one for random weights beside it."""
    columns = ["cell"]
    for each in measures:
        columns.append(f"{each.name}, {metric_name(results.metric(each))}".rstrip(", "))
        columns += [scratch] * each.scratch
    return tuple(columns)


def _scores(results: Results, cell: Cell, measures: Sequence[Measure]) -> list[str]:
    """Return a cell's scores in these columns, upper bounds marked; none if it has no score."""
    scores = [
        (each, results.task_interval(cell.name, each, start))
        for each in measures
        for start in ("pretrained", *["from scratch"] * each.scratch)
    ]
    shown = [at_most(str(one or MISSING), results.is_bound(cell, each)) for each, one in scores]
    return shown if any(one for _, one in scores) else []


def _samples(results: Results) -> MarkdownTable:
    """Return the table of all samples of each cell's first seed."""
    rows = [
        (run.cell, _shorten(sample.get("prompt")), _shorten(sample.get("text")))
        for run in results.runs
        if run.seed == 1
        for sample in run.samples
    ]
    return MarkdownTable(SAMPLES, ("cell", "from", "text"), tuple(rows))


def _csv(results: Results) -> str:
    """Return all numbers in long form, a line per number."""
    text = io.StringIO()
    lines = csv.writer(text, lineterminator="\n")
    lines.writerow(("cell", "seed", "task", "start", "tuning_seed", "metric", "value"))
    for run in results.runs:
        for key in NUMBERS:
            value = getattr(run, key)
            if value is not None:
                lines.writerow((run.cell, run.seed, "pretraining", "", "", key, value))
    for trial in results.trials:
        values = " ".join(f"{name}={to_toml(value)}" for name, value in trial.values.items())
        loss = "" if trial.loss is None else trial.loss
        name = "sweep" if trial.round == 1 else f"sweep, round {trial.round}"
        lines.writerow((trial.cell, SEED, name, values, "", "validation_loss", loss))
    for score in results.scores:
        seeds = score.seed or "", score.tuning_seed or ""
        for metric, value in score.scores.items():
            labels = (score.cell, seeds[0], score.task, score.start, seeds[1])
            lines.writerow((*labels, metric, value))
    for verdict in verdicts.verdicts(results):
        for pair in verdict.pairs:
            where = (pair.better, "", verdict.measure, f"over {pair.worse}", "")
            lines.writerow((*where, f"{verdict.metric}, difference", pair.difference))
            lines.writerow((*where, f"{verdict.metric}, corrected p", pair.corrected))
    return text.getvalue()


def _recipe_name(cell: Cell) -> str:
    return cell.recipe.rsplit("/", 1)[-1].removesuffix(".toml")


def _shorten(text: str | None, limit: int = 160) -> str:
    """Return a text on one line; a long one cut to the context of its blanks or its beginning."""
    text = " ".join((text or "").split())
    if len(text) <= limit:
        return text
    words = text.split()
    blanks = [n for n, word in enumerate(words) if BLANK.search(word)]
    if not blanks:
        return text[:limit].rsplit(" ", 1)[0] + " …"
    context = range(-CONTEXT_WORDS, CONTEXT_WORDS + 1)
    near = sorted({at + n for at in blanks for n in context if 0 <= at + n < len(words)})
    parts = ["… " * (near[0] > 0) + words[near[0]]]
    parts += ["… " * (b > a + 1) + words[b] for a, b in pairwise(near)]
    return " ".join(parts) + " …" * (near[-1] < len(words) - 1)


def _escaped(cell: str) -> str:
    """Escape what Markdown would read as a column or, like `<unk>`, as a tag."""
    return cell.replace("|", "\\|").replace("<", "&lt;")
