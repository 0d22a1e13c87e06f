r"""What `tune` makes of few labels, beside counting: each set of labels at several sizes.

    python benchmarks/worth_it.py RUN --train F --dev F --labels 100,300,1000 --name sst --out DIR
    python benchmarks/worth_it.py RUN --books gutenberg/ --name authors --out DIR
    python benchmarks/worth_it.py RUN --train wnut17/train.conll.gz --dev wnut17/dev.conll.gz \
        --option task=tag --labels 1000 --name wnut --out DIR

--books takes passages of books as `long_texts.py` does, labelled by their author; the passages to
score are of the second halves. Each label of `--labels` of a tagging task is a sentence.
A cell draws its labels anew for each seed. Prints, and writes to DIR/worth_it.csv, the scores of
`best` and of counting alone, the margin with its 95 % interval over examples and seeds where the
score is an accuracy, what was taken, and the seconds. What is done already is not done again.
"""

from __future__ import annotations

import argparse
import csv
import time
from pathlib import Path
from typing import Any

from long_texts import passages

import foreword


def main() -> None:
    """Tune every cell, and print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("run", type=Path)
    parser.add_argument("--train")
    parser.add_argument("--dev")
    parser.add_argument("--books", type=Path, help="in place of --train and --dev")
    parser.add_argument("--passages", type=int, default=40, help="of each half of a book, at most")
    parser.add_argument("--labels", default="100,300,1000")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--minutes", type=float, default=30)
    parser.add_argument("--option", action="append", default=[], metavar="NAME=VALUE")
    parser.add_argument("--name", required=True)
    parser.add_argument("--out", type=Path, required=True)
    given = parser.parse_args()
    if given.books is None and not (given.train and given.dev):
        parser.error("name --train and --dev, or --books")
    parts: list[Any] = [given.train, given.dev]
    if given.books is not None:
        halves = passages(sorted(given.books.glob("*.txt")), given.passages)
        parts = [[(one.text, one.label) for one in half] for half in halves]
    options: dict[str, Any] = dict(option.split("=", 1) for option in given.option)
    given.out.mkdir(parents=True, exist_ok=True)
    table = given.out / "worth_it.csv"
    for count in map(int, given.labels.split(",")):
        start = time.monotonic()
        result = foreword.tune(
            given.run, *parts, examples=count, seeds=given.seeds,
            name=f"{given.name}-{count}", strategy="best",
            settings=[f"tune.strategy.minutes={given.minutes}"], **options,
        )  # fmt: skip
        row = {"set": given.name, "labels": count} | cells(result)
        row["seconds"] = round(time.monotonic() - start)
        is_new = not table.exists()
        with table.open("a", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, row.keys())
            if is_new:
                writer.writeheader()
            writer.writerow(row)
        print(" ".join(f"{name} {value}" for name, value in row.items()), flush=True)


def cells(result: Any) -> dict[str, str]:
    """Return what a row of the table has of a result."""
    rows = {row["strategy"]: row for row in result.rows}
    best, counting = rows["best"], rows.get("counting alone", {})
    metric = next(name for name in best if name not in ("start", "strategy", "seeds"))
    margin = next((m for m in result.content["margins"] if m["over"] == "counting alone"), None)
    points = (
        ""
        if margin is None
        else "{:+.1f} ({:+.1f} to {:+.1f})".format(
            *(100 * margin[name] for name in ("difference", "low", "high"))
        )
    )
    taken = [
        f"{one['title']} {one['weight']:.2f}"
        for one in result.content["candidates"]
        if one.get("weight")
    ]
    return {
        "metric": metric,
        "best": score(best, metric),
        "counting": score(counting, metric),
        "margin": points,
        "taken": "; ".join(taken),
    }


def score(row: dict[str, Any], metric: str) -> str:
    """Return a mean and its deviation over seeds."""
    if metric not in row:
        return ""
    std = row.get(f"{metric}_std")
    return f"{row[metric]:.3f}" + ("" if std is None else f" ± {std:.3f}")


if __name__ == "__main__":
    main()
