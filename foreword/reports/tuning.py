"""The scores of fine-tuning: what they mean, a chart with intervals, and a table."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from foreword.formatting import at_most, cell, figure
from foreword.reports import fragments
from foreword.reports.charts import scores_chart
from foreword.reports.folder import Record, SavedEvaluation, number
from foreword.reports.meaning import SCRATCH, is_baseline, pretraining_gain, score_sentence
from foreword.reports.tables import Table
from foreword.reports.tuning_curves import confusion, curves
from foreword.tuning.scores import ABOUT, Scores, metric_name, train_count
from foreword.tuning.tasks._contract import BOUND

SETTINGS = ("lr", "epochs", "seeds", "trained_parameters")  # columns where variants differ


def metrics(evaluation: SavedEvaluation) -> list[str]:
    """Return the scores of an evaluation, the most telling first; empty without fine-tuning."""
    first = evaluation.rows[0]
    if not {"start", "strategy"} <= set(first):
        return []
    return [name for name in Scores.of(first).metrics if isinstance(first[name], float | None)]


def worth(evaluation: SavedEvaluation) -> str:
    """Return what pretraining added; "" if the evaluation does not show it."""
    names = metrics(evaluation)
    if not names:
        return ""
    dev, margins = _count(evaluation, "dev"), evaluation.content.get("margins", ())
    return pretraining_gain(evaluation.rows, names[0], dev, margins)


def meaning(evaluation: SavedEvaluation) -> str:
    """Return what the scores mean; "" if the evaluation is not of a fine-tuning."""
    names = metrics(evaluation)
    sentences = [score_sentence(evaluation.rows, names[0]), worth(evaluation)] if names else []
    return " ".join(text for text in sentences if text)


def section(evaluation: SavedEvaluation) -> str:
    """Return the chart, the table, how the scores were made, the curves and the confusion."""
    names = metrics(evaluation)
    overview = chart(evaluation, names[0]) + table(evaluation, names).html()
    overview += fragments.note(_how(evaluation))
    return overview + curves(evaluation, names[0]) + confusion(evaluation)


def chart(evaluation: SavedEvaluation, metric: str) -> str:
    """Return the chart of a metric: a point per variant, its deviation over seeds as a bar."""
    rows = [row for row in evaluation.rows if not math.isnan(number(row, metric))]
    if not rows:
        return ""
    name, unit = metric_name(metric), _unit(evaluation)
    where = "on the dev examples" if unit == "seeds" else "out of fold"
    title = f"{name[:1].upper()}{name[1:]} {where}"
    points = {
        variant_name(row): [(number(row, metric), number(row, f"{metric}_std"))] for row in rows
    }
    title += _deviation_words(evaluation.rows, metric, unit)
    return scores_chart(title, name, points, colours=[_colour(row) for row in rows]).html()


def table(evaluation: SavedEvaluation, names: Sequence[str]) -> Table:
    """Return the scores with their deviations, a row per variant and baseline."""
    # Settings that differ between the variants have columns; the others are in the note.
    varied = [key for key in SETTINGS if len(_values(evaluation.rows, key)) > 1]
    others = [str(key) for row in evaluation.rows for key in row if _is_other(str(key), names)]
    others = list(dict.fromkeys(others))
    if any(number(row, "skipped_steps") > 0 for row in evaluation.rows):
        others.append("skipped_steps")
    columns = ["", *names, *varied, *others]
    rows = [
        [
            variant_name(row),
            *(_with_deviation(row, name) for name in names),
            *(_setting(row.get(key)) for key in (*varied, *others)),
        ]
        for row in evaluation.rows
    ]
    heads = [metric_name(column) for column in columns]
    return Table(heads, rows, [False, *[True] * (len(columns) - 1)])


def variant_name(row: Record) -> str:
    """Return the name of a variant or a baseline."""
    start, strategy = str(row.get("start", "")), str(row.get("strategy", ""))
    if is_baseline(row):
        return strategy
    return start if strategy == "full" else f"{start}, {strategy}"


def _is_other(key: str, names: Sequence[str]) -> bool:
    run = ("start", "strategy", *ABOUT)
    return key not in run and key not in names and key.removesuffix("_std") not in names


def _with_deviation(row: Record, name: str) -> str:
    deviation = number(row, f"{name}_std")
    text = figure(number(row, name), 3)
    text = text if math.isnan(deviation) else f"{number(row, name):.3f} ± {deviation:.3f}"
    return at_most(text, name.endswith(BOUND) and "is_bound" in row)


def _unit(evaluation: SavedEvaluation) -> str:
    """Return what scores have a mean over: seeds or folds."""
    settings = evaluation.content.get("settings")
    return "folds" if isinstance(settings, Mapping) and settings.get("folds") else "seeds"


def _deviation_words(rows: Sequence[Record], metric: str, unit: str) -> str:
    seeds = sorted({int(number(row, "seeds")) for row in rows if number(row, "seeds") > 0})
    if not any(not math.isnan(number(row, f"{metric}_std")) for row in rows):
        return "; one seed, so no intervals"
    return f"; bars: ± one standard deviation over {' or '.join(map(str, seeds))} {unit}"


def _how(evaluation: SavedEvaluation) -> str:
    """Return how the scores were made: examples, epochs, seeds, learning rate."""
    parts, unit = [], _unit(evaluation)
    train, dev = _count(evaluation, "train"), _count(evaluation, "dev")
    if train and dev:
        parts.append(f"{train_count(evaluation.content['examples'])}, {dev:,} scored")
    for key, words in (("epochs", "epochs"), ("seeds", unit), ("lr", "learning rate")):
        values = _values(evaluation.rows, key)
        if len(values) == 1:
            counted = words[:-1] if values[0] == "1" else words
            parts.append(f"{values[0]} {counted}" if key != "lr" else f"{words} {values[0]}")
    has_deviation = any(
        not math.isnan(number(row, key))
        for row in evaluation.rows
        for key in row
        if key.endswith("_std")
    )
    parts += [f"±: standard deviation over {unit} of fine-tuning"] * has_deviation
    return "; ".join(parts)


def _values(rows: Sequence[Record], key: str) -> list[str]:
    return list(dict.fromkeys(_setting(row[key]) for row in rows if row.get(key) is not None))


def _setting(value: object) -> str:
    return f"{value:.3g}" if isinstance(value, float) else cell(value)


def _count(evaluation: SavedEvaluation, name: str) -> int:
    examples = evaluation.content.get("examples")
    count = number(examples, name) if isinstance(examples, Mapping) else math.nan
    return int(count) if count == count else 0


def _colour(row: Record) -> str:
    if is_baseline(row):
        return "muted"
    return "second" if row.get("start") == SCRATCH else "accent"
