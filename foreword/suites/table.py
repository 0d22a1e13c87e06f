"""The table of a suite: a row for each score, with baselines and published scores beside it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from foreword.errors import UserError
from foreword.evaluation.statistics import Signal, Spread, signal
from foreword.suites.suite import SuiteTask, TuningSuite
from foreword.tuning import bag_of_words
from foreword.tuning.scores import Scores, metric_name

OURS = "this model"
AVERAGE = "average"
Row = dict[str, Any]  # a line of the table
WORDS = "bag of words"
ABOUT = ("task", "metric", "is_share", "seeds", "is_gain", "lr", f"{OURS}_std")
ERROR, STANDARDISED = "_se", "standardised"  # ends the name of a standard error; a column


def score_rows(
    suite: TuningSuite, task: SuiteTask, content: Mapping[str, Any], dev: Sequence[str]
) -> list[Row]:
    """Return a row for each metric of each dev set of a task.

    Scores are as the task gives them: shares of 1 or, where `is_share` is false, on a scale of
    their own; None where there is none.

    Args:
        content: the scores of its fine-tuning, as in their file.
        dev: names of the dev sets; the first has the scores without a name before them.

    Raises:
        UserError: a metric is not a score of the task.
    """
    ours, *others = map(Scores.of, content["rows"])
    for metric in task.metrics:
        if metric not in ours.metrics:
            names = [name for name in ours.metrics if not name.startswith(tuple(dev[1:]))]
            known = ", ".join(names)
            raise UserError(
                f"metrics: '{metric}' is not a score of {task.name}: {known}; its results are kept"
            )
    words = next((row for row in others if row.strategy == bag_of_words.NAME), None)
    baseline = others[-1]
    rows = []
    for number, name in enumerate(dev):
        for metric in task.metrics:
            key = f"{name}_{metric}" if number else metric
            is_share = metric not in task.task.judge.not_shares
            rows.append(
                {
                    "task": name,
                    "metric": metric_name(metric),
                    "is_share": is_share,
                    OURS: _mean_of(ours, key),
                    f"{OURS}_std": ours.metrics[key].std if key in ours.metrics else None,
                    "seeds": ours.about["seeds"] - ours.about.get("diverged", 0),
                    "is_gain": metric not in task.task.judge.lower_is_better,
                    "lr": ours.about.get("lr"),
                    baseline.strategy: _mean_of(baseline, key),
                    WORDS: words and _mean_of(words, key),
                    **{
                        f"{model.name} ({model.on})": model.score(name, metric, is_share=is_share)
                        for model in suite.published
                    },
                }
            )
    return rows


def _mean_of(scores: Scores, key: str) -> float | None:
    return scores.metrics[key].mean if key in scores.metrics else None


def with_average(rows: Sequence[Row], tasks: Mapping[str, Sequence[str]]) -> list[Row]:
    """Return the rows, each with the columns of all, with their average over several tasks.

    Baselines of one kind stand in one column. Each task counts once: its score is the mean of its
    dev sets' and metrics'. A column that has no score for some task has no average; nor have scores
    that are not shares, such as BLEU.
    """
    renamed = [
        {("baseline" if name in ("majority class", "mean") else name): v for name, v in row.items()}
        for row in rows
    ]
    names = list(dict.fromkeys(name for row in renamed for name in row))
    rows = [{name: row.get(name) for name in names} for row in renamed]
    if len(tasks) < 2 or not all(row["is_share"] for row in rows):
        return list(rows)
    average: Row = dict.fromkeys(rows[0]) | {"task": AVERAGE, "metric": "", "is_share": True}
    for column in scores_of(rows):
        values = [
            [row[column] for row in rows if row["task"] in sets and row[column] is not None]
            for sets in tasks.values()
        ]
        average[column] = float(np.mean([np.mean(v) for v in values])) if all(values) else None
    return [*rows, average]


def scores_of(rows: Sequence[Row]) -> list[str]:
    """Return the columns that hold scores."""
    return [name for name in rows[0] if name not in ABOUT]


def cells_in_percent(rows: Sequence[Row]) -> tuple[list[str], list[list[str]]]:
    """Return the heads and the cells of the table for people, without columns of no score."""
    columns = [name for name in scores_of(rows) if any(row.get(name) is not None for row in rows)]
    cells = [
        [str(row.get("task")), str(row.get("metric")), *(in_percent(row, name) for name in columns)]
        for row in rows
    ]
    return ["task", "metric", *columns], cells


def in_percent(row: Row, column: str) -> str:
    """Return a score in percent, as published, with its deviation; a dash if there is none.

    What is not a share, such as BLEU, which is of 100, or a perplexity, is shown as it is.
    """
    value, deviation = row.get(column), row.get(f"{column}_std")
    if not isinstance(value, int | float) or math.isnan(value):
        return "–"
    unit = 100 if row.get("is_share", True) else 1
    text = f"{unit * value:.1f}"
    return f"{text} ± {unit * deviation:.1f}" if isinstance(deviation, int | float) else text


def run_rows(scores: Mapping[str, Sequence[Row]], losses: Mapping[str, float | None]) -> list[Row]:
    """Return a row for each of several runs: its loss, its scores and what they say together.

    A score has its standard error over seeds, the draws of examples among them. `standardised` is
    the mean over scores of their distance from the mean of all runs, in deviations between runs.
    """
    rows: list[Row] = []
    for name, of_run in scores.items():
        row: Row = {"run": name, "loss": losses[name]}
        for score in of_run:
            if score["task"] != AVERAGE:
                std, column = score[f"{OURS}_std"], f"{score['task']} {score['metric']}"
                row[column] = score[OURS]
                row[column + ERROR] = None if std is None else std / math.sqrt(score["seeds"])
        rows.append(row)
    gains = {f"{s['task']} {s['metric']}": s["is_gain"] for of in scores.values() for s in of}
    columns = [
        name
        for name in gains
        if all(row.get(name) is not None for row in rows) and len({row[name] for row in rows}) > 1
    ]
    if not columns:
        return rows
    shares = np.array([[row[name] for name in columns] for row in rows])
    errors = np.array([[row[name + ERROR] or 0.0 for name in columns] for row in rows])
    spread, signs = shares.std(axis=0, ddof=1), [1 if gains[name] else -1 for name in columns]
    means = (signs * (shares - shares.mean(axis=0)) / spread).mean(axis=1)
    of_means = np.linalg.norm(errors / spread, axis=1) / len(columns)
    return [
        row | {STANDARDISED: float(mean), STANDARDISED + ERROR: float(error)}
        for row, mean, error in zip(rows, means, of_means, strict=True)
    ]


def run_signals(scores: Mapping[str, Sequence[Row]]) -> dict[str, Signal | None]:
    """Return the signal to noise of each score of several runs, over their seeds."""
    spreads: dict[str, list[Spread]] = {}
    for row in (row for of_run in scores.values() for row in of_run):
        std = row.get(f"{OURS}_std")
        if row[OURS] is not None and std is not None:
            spread = Spread(row[OURS], std, row["seeds"])
            spreads.setdefault(f"{row['task']} {row['metric']}", []).append(spread)
    return {name: signal(of) for name, of in spreads.items()}
