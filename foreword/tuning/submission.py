"""Predictions for test files in the form of a leaderboard: `index<TAB>prediction`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from foreword.disk import atomic
from foreword.tables.columns import PREDICTION
from foreword.tables.examples import LabelledTexts
from foreword.tuning.suite import SuiteTask
from foreword.tuning.suite_files import read_unlabelled
from foreword.tuning.tuned_model import TunedModel, TunedWriter

HEADER = "index\tprediction\n"


def write_submission(
    model: TunedModel | TunedWriter,
    task: SuiteTask,
    files: Sequence[Path],
    out: Path,
    report: Callable[[int, int, str], None],
) -> tuple[int, int]:
    """Write the predictions for test files.

    A row without a text has the first label, or the middle of the range, since a leaderboard wants
    every row.

    Args:
        model: the tuned model.
        task: the task.
        files: the test files, read one after another.
        out: the file to write.
        report: called with the number of rows done, the number in all, and a note.

    Returns:
        The number of rows, and of those without a text.

    Raises:
        UserError: a file cannot be read or written.
    """
    rows = list(read_unlabelled(task, files))
    examples = LabelledTexts.of(example for _, example in rows if example is not None)
    done = 0

    def advance(number: int) -> None:
        nonlocal done
        done += number
        report(done, len(examples), f"{done:,} of {len(examples):,} rows")

    answers = iter(model.answer(examples, probabilities=False, done=advance)[0])
    default = task.labels[0] if task.labels else (sum(task.range) / 2 if task.range else "")
    lines = [
        f"{index}\t{_text(default if example is None else next(answers)[PREDICTION], task)}\n"
        for index, example in rows
    ]
    atomic.write_text(out, "".join([HEADER, *lines]))
    return len(rows), len(rows) - len(examples)


def _text(prediction: str | float, task: SuiteTask) -> str:
    """Return a prediction as text, a number within the range."""
    if isinstance(prediction, str):
        return prediction
    number = min(max(prediction, task.range[0]), task.range[1]) if task.range else prediction
    return f"{number:.3f}"
