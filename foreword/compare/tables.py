"""Results as tables: for people in Markdown, for programs as CSV and JSON."""

from __future__ import annotations

import csv
import io
import re
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import Any

from foreword import atomic, stored
from foreword.compare.grid import Cell, GridTask
from foreword.compare.interval import LEVEL, half_width_of_share
from foreword.compare.results import NUMBERS, Results
from foreword.formatting import duration, power, quantity

MISSING = "–"
BLANK = re.compile(r"«|\[MASK\]|<extra_id_\d+>")  # a blank, or what it was filled with
CONTEXT_WORDS = 4  # words shown on either side of one


@dataclass(frozen=True)
class MarkdownTable:
    """A table for people.

    Attributes:
        title: above it.
        columns: their names.
        rows: as many texts each.
    """

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]

    def markdown(self) -> str:
        """As Markdown."""
        lines = [self.columns, ("---",) * len(self.columns), *self.rows]
        body = "\n".join(f"| {' | '.join(map(_escaped, line))} |" for line in lines)
        return f"## {self.title}\n\n{body}\n"


def tables(results: Results) -> list[MarkdownTable]:
    """Pretraining, fine-tuning, samples; those without anything to say are left out."""
    found = [_pretraining(results), _fine_tuning(results), _samples(results)]
    return [table for table in found if table.rows]


def notes(results: Results) -> list[str]:
    """What must be said beside the tables."""
    grid = results.comparison.grid
    assert grid.budget is not None
    percent = f"{LEVEL:.0%}"
    said = [f"Each cell: {grid.budget.describe()}."]
    if results.is_one_objective:
        said.append("Held-out losses are nats per token, and all cells predict all of the text.")
    else:
        said.append(
            "Held-out losses are nats per prediction of each cell's own objective: between "
            "objectives they do not compare. Bits per byte do, and are given where all of the text "
            "is predicted."
        )
    if grid.seeds > 1:
        said.append(
            f"± is half the {percent} interval (Student's t) over {grid.seeds} seeds of "
            "pretraining, each the mean of its fine-tunings; from scratch, of fine-tuning."
        )
    elif grid.tasks:
        said.append(
            f"± is half the {percent} interval (Student's t) over seeds of fine-tuning. Each cell "
            "was pretrained once: what another seed of pretraining would change is not in it."
        )
    sizes = [_describe_dev_size(task, results) for task in grid.tasks if task.name in results.dev]
    if sizes:
        said.append(f"What other dev examples would change is not in ± either: {'; '.join(sizes)}.")
    cut = [f"{task.name}: the first {task.rows:,} rows" for task in grid.tasks if task.rows]
    if cut:
        said.append(f"Of the training examples, {'; '.join(cut)}.")
    said += [f"Failed: {f.work}: {f.error}" for f in results.comparison.failures]
    missing = len(results.comparison.work()) - _count_done(results)
    if missing:
        said.append(f"{missing} of {len(results.comparison.work())} pieces are not done.")
    return said


def _describe_dev_size(task: GridTask, results: Results) -> str:
    """How many dev examples a task has, and how far they may lead an accuracy astray."""
    count = results.dev[task.name]
    said = f"{task.name} has {count:,}"
    if results.metric(task) != "accuracy":
        return said
    return f"{said}, so up to ± {half_width_of_share(count):.3f} ({LEVEL:.0%}, binomial)"


def as_document(results: Results) -> dict[str, Any]:
    """All of it, for `results.json`."""
    shown = [asdict(table) for table in tables(results)]
    return {**results.as_document(), "tables": shown, "notes": notes(results)}


def write(results: Results) -> None:
    """Writes table.md, results.csv and results.json.

    Raises:
        UserError: the disk is full or the folder cannot be written.
    """
    out, grid = results.comparison.out, results.comparison.grid
    parts = [f"# {grid.description or 'Comparison'}\n"]
    parts += [table.markdown() for table in tables(results)]
    parts.append("".join(f"- {note}\n" for note in notes(results)))
    atomic.write_text(out / "table.md", "\n".join(parts))
    stored.write(out / "results.json", as_document(results))
    atomic.write_text(out / "results.csv", _csv(results))


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
                str(mean["heldout_loss"] or MISSING),
                str(mean["perplexity"] or MISSING),
                str(mean["bits_per_byte"] or MISSING),
            )
        )
    return MarkdownTable("Pretraining", columns, tuple(rows))


def _fine_tuning(results: Results) -> MarkdownTable:
    """A row per cell, two columns per task; below, the guess that reads nothing."""
    grid = results.comparison.grid
    columns = ["cell"]
    for task in grid.tasks:
        columns.append(f"{task.name}, {results.metric(task)}".rstrip(", "))
        columns += ["from scratch"] * task.scratch
    rows = []
    for cell in grid.cells:
        row = []
        for task in grid.tasks:
            row.append(results.task_interval(cell.name, task, "pretrained"))
            if task.scratch:
                row.append(results.task_interval(cell.name, task, "from scratch"))
        if any(row):
            rows.append((cell.name, *(str(value or MISSING) for value in row)))
    guesses = [score for score in results.scores if not score.cell]
    for name in dict.fromkeys(score.start for score in guesses):
        row_texts = [name]
        for task in grid.tasks:
            value = results.task_interval("", task, name)
            row_texts += [str(value or MISSING), *[""] * task.scratch]
        rows.append(tuple(row_texts))
    return MarkdownTable("Fine-tuning", tuple(columns), tuple(rows))


def _samples(results: Results) -> MarkdownTable:
    """All samples of each cell's first seed."""
    rows = [
        (run.cell, _shorten(sample.get("prompt")), _shorten(sample.get("text")))
        for run in results.runs
        if run.seed == 1
        for sample in run.samples
    ]
    return MarkdownTable("What they say", ("cell", "from", "text"), tuple(rows))


def _csv(results: Results) -> str:
    """Long form: a line per number measured."""
    text = io.StringIO()
    lines = csv.writer(text, lineterminator="\n")
    lines.writerow(("cell", "seed", "task", "start", "tuning_seed", "metric", "value"))
    for run in results.runs:
        for key in NUMBERS:
            value = getattr(run, key)
            if value is not None:
                lines.writerow((run.cell, run.seed, "pretraining", "", "", key, value))
    for score in results.scores:
        for metric, value in score.scores.items():
            where = (score.cell, score.seed or "", score.task, score.start, score.tuning_seed or "")
            lines.writerow((*where, metric, value))
    return text.getvalue()


def _count_done(results: Results) -> int:
    tunings = {(s.cell, s.seed, s.task, s.start) for s in results.scores if s.cell}
    return len(results.runs) + len(tunings)


def _recipe_name(cell: Cell) -> str:
    return cell.recipe.rsplit("/", 1)[-1].removesuffix(".toml")


def _shorten(text: str | None, limit: int = 160) -> str:
    """On one line; of a long one, what stands around its blanks, or else its beginning."""
    text = " ".join((text or "").split())
    if len(text) <= limit:
        return text
    words = text.split()
    blanks = [n for n, word in enumerate(words) if BLANK.search(word)]
    if not blanks:
        return text[:limit].rsplit(" ", 1)[0] + " …"
    near = sorted({n for at in blanks for n in range(at - CONTEXT_WORDS, at + CONTEXT_WORDS + 1)})
    near = [n for n in near if 0 <= n < len(words)]
    shown = ["… " * (near[0] > 0) + words[near[0]]]
    shown += ["… " * (b > a + 1) + words[b] for a, b in pairwise(near)]
    return " ".join(shown) + " …" * (near[-1] < len(words) - 1)


def _escaped(cell: str) -> str:
    """Text that Markdown takes for no column and no tag, as `<unk>` would be."""
    return cell.replace("|", "\\|").replace("<", "&lt;")
