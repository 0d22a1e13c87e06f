"""What reading long texts whole is worth: the author of passages of 400 to 1,000 words.

    python benchmarks/long_texts.py RUN --books gutenberg/ [--passages 24] [--seeds 3] [--epochs 3]
                                    [--max-length N] [--windows cut mean max attention]

BOOKS are texts of Project Gutenberg, one author each; headers and footers are stripped. Passages to
train on come from the first half of a book and those to test on from its second half, with a
twentieth of the book between the two, so no passage of a test has a neighbour in training. The
names of a book's characters are in both halves: part of what is learned is the book.

RUN is fine-tuned on the same passages with the windows named, each in a process of its own, once
for each seed, with the settings of `foreword tune` but for the linear head of comparisons. The
table has the mean accuracy over seeds with a 95 % interval by bootstrap over the test passages, its
difference from the first row on the same passages, seconds of all seeds, the process's peak memory,
and how many passages were read in windows.
"""

from __future__ import annotations

import argparse
import json
import re
import resource
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from foreword.cli._process import configure_process
from foreword.evaluation.statistics import bootstrap
from foreword.runs.run_folder import open_run
from foreword.tables.examples import Labelled
from foreword.tuning.job import Examples, TuneJob
from foreword.tuning.settings import TuneSettings
from foreword.tuning.tasks.classify import Classify
from foreword.tuning.tune import tune
from foreword.types import Array

LEAST_WORDS, MOST_WORDS = 400, 1000
GAP = 0.05  # of a book, between the passages of training and those of the test
EDGES = re.compile(r"\*\*\* ?(?:START|END) OF .*")
READINGS = ("cut", "mean", "max", "attention")


def main() -> None:
    """Fine-tune with each reading of long texts, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("run", type=Path)
    parser.add_argument("--books", type=Path, required=True)
    parser.add_argument("--passages", type=int, default=24, help="of each half of a book, at most")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--max-length", type=int)
    parser.add_argument("--windows", nargs="+", default=list(READINGS), choices=READINGS)
    parser.add_argument("--only", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    configure_process()
    if arguments.only:
        print(json.dumps(_measured(arguments)))
        return
    print("| windows | accuracy | against the first | s | peak MiB | read whole |\n|" + "---|" * 6)
    first: Array | None = None
    for windows in arguments.windows:
        command = [sys.executable, *sys.argv, "--only", "--windows", windows]
        done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
        found = json.loads(done.stdout.splitlines()[-1])
        correct = np.asarray(found["correct"]).mean(axis=0)  # over seeds
        first = correct if first is None else first
        cells = [_interval(correct), _interval(correct - first, "+")]
        whole = f"{found['in_windows']} of {found['passages']}"
        print("|", " | ".join([windows, *cells, *found["cost"], whole]), "|", flush=True)


def _measured(arguments: argparse.Namespace) -> dict[str, object]:
    """Return what fine-tuning with the first of the readings gives and takes."""
    train, test = passages(sorted(arguments.books.glob("*.txt")), arguments.passages)
    settings = TuneSettings(
        seeds=arguments.seeds, epochs=arguments.epochs, max_length=arguments.max_length
    )
    trained = open_run(arguments.run)
    begin = time.perf_counter()
    task = Classify(windows=arguments.windows[0])
    result = tune(trained, TuneJob(task, Examples(train, test), [settings]))
    seconds = time.perf_counter() - begin
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return {
        "correct": result.correct[result.rows[0].name].tolist(),
        "cost": [f"{seconds:,.0f}", f"{peak:,.0f}"],
        "in_windows": result.examples["in_windows"],
        "passages": len(train) + len(test),
    }


def passages(books: Sequence[Path], most: int) -> tuple[list[Labelled], list[Labelled]]:
    """Return passages of each book, labelled by its name: of its first half, and of its second."""
    halves: tuple[list[Labelled], list[Labelled]] = ([], [])
    for book in books:
        text = book.read_text(encoding="utf-8", errors="replace")
        words = max(EDGES.split(text), key=len).split()
        middle, gap = len(words) // 2, int(GAP * len(words) / 2)
        parts = words[: middle - gap], words[middle + gap :]
        random = np.random.default_rng(sum(book.name.encode()))
        for half, part in zip(halves, parts, strict=True):
            begin = 0
            for _ in range(most):
                size = int(random.integers(LEAST_WORDS, MOST_WORDS + 1))
                if begin + size > len(part):
                    break
                half.append(Labelled(" ".join(part[begin : begin + size]), book.stem))
                begin += size
    known = {one.label for one in halves[1]} & {one.label for one in halves[0]}
    train, test = ([one for one in half if one.label in known] for half in halves)
    return train, test


def _interval(values: Array, sign: str = "") -> str:
    """Return the mean of values with its interval by bootstrap over them, if they differ."""
    low, high = bootstrap(lambda chosen: float(values[chosen].mean()), len(values))
    mean = f"{values.mean():{sign}.3f}"
    return mean if low is None or high is None else f"{mean} ({low:{sign}.3f} to {high:{sign}.3f})"


if __name__ == "__main__":
    main()
