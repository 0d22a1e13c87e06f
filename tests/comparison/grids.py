"""A tiny comparison on generated text: two cells and one task."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from foreword.comparison.grid import load_grid
from foreword.comparison.run import Comparison
from foreword.settings import config
from tests.train import runs
from tests.tuning.runs import reviews

TASK = {
    "name": "Reviews",
    "train": "train.tsv",
    "dev": ["dev.tsv", "dev.tsv"],
    "columns": ["source", "mark", "nothing", "said"],
    "text": "said",
    "label": "mark",
    "rows": 16,
    "metric": "matthews",
    "tune": {"seeds": 2, "epochs": 1, "strategy": {"kind": "full", "lr": 1e-3}},
}
MASKED = {"label": "masked", "recipe": "encoder.toml"}
CAUSAL = {"recipe": "decoder.toml", "set": {"model": {"layers": 1}}}


def table(**more: Any) -> dict[str, Any]:
    """Return a grid as a TOML table."""
    made = {
        "description": "Two small ones",
        "data": ["text"],
        "budget": {"unit": "steps", "amount": 3},
        "seeds": 1,
        "set": {"train": {"evaluations": 2, "checkpoints": 1}},
        "cells": [MASKED, CAUSAL],
        "tasks": [TASK],
        **more,
    }
    return {key: value for key, value in made.items() if value is not None}


def write_files(folder: Path) -> Path:
    """Write text, recipes and labelled examples for a grid into `folder`."""
    runs.write_text(folder / "text")
    for name in ("encoder", "decoder"):
        (folder / f"{name}.toml").write_text(runs.recipe(name).dumps(), encoding="utf-8")
    for name, count, seed in (("train", 32, 1), ("dev", 6, 2)):
        lines = [f"x\t{e.label}\t\t{e.text}\n" for e in reviews(count, seed)]
        (folder / f"{name}.tsv").write_text("".join(lines), encoding="utf-8")
    return folder


def write_grid(folder: Path, **more: Any) -> str:
    """Write the grid; return its path."""
    path = folder / "grid.toml"
    path.write_text(config.dumps(table(**more)), encoding="utf-8")
    return str(path)


class Quiet:
    """A receiver of progress that records and prints nothing.

    Args:
        act: called with the name of each job as it begins.
    """

    def __init__(self, act: Callable[[str], None] = lambda job: None) -> None:
        self.begun: list[str] = []
        self.notes: list[str] = []
        self.shares: list[tuple[str, float, str]] = []  # job, share, time left
        self._act = act

    def note(self, text: str) -> None:
        self.notes.append(text)

    def warn(self, text: str) -> None:
        self.notes.append(text)

    def stage(self, name: str) -> Callable[..., None]:
        work = re.fullmatch(r"\d+/\d+  (.+)", name)
        if work is None:
            self.notes.append(name)
            return lambda *_: None
        if work[1] not in self.begun:
            self.begun.append(work[1])
            self._act(work[1])
        return lambda share, total, left, note: self.shares.append((name, share, left))

    def record(self, record: object, progress: float) -> None:
        pass


def compare(folder: Path, out: Path, reporter: Quiet | None = None, **more: Any) -> Comparison:
    """Run the grid to its end."""
    comparison = Comparison(load_grid(write_grid(folder, **more)), out, reporter or Quiet())
    comparison.prepare()
    assert comparison.run()
    return comparison
