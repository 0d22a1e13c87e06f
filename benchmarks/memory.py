"""The memory of a run as `foreword check` estimates it, beside what the run takes.

    python benchmarks/memory.py [RECIPE[:SETTING,...]...] [--data TEXT...] [--steps 6]

Each run is a process of its own: a few steps, evaluations, samples and checkpoints, from prepared
token shards. What it took is the peak of its resident set, as the system counts it; of mapped
shards the part that was read counts. Without a TEXT, one is made up.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

RECIPES = (
    "bert_tiny",
    "lstm_tiny",
    "bert_mini",
    "gpt2_mini",
    "t5_mini",
    "lstm_mini",
    "electra_mini",
    "transformer_xl_mini",
    "elmo_mini",
    "bert_base:train.batch=8,train.micro_batch=4",
    "gpt2_small:train.batch=2,train.micro_batch=2",
    "t5_base:train.batch=2,train.micro_batch=2",
)
WORDS = 40_000  # different words of a made-up text: enough for a vocabulary of 30,000


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("recipes", nargs="*", default=list(RECIPES))
    parser.add_argument("--data", nargs="*", default=[])
    parser.add_argument("--steps", type=int, default=6)
    arguments = parser.parse_args()
    print(f"{'':44}{'estimated':>12}{'measured':>12}{'ratio':>8}")
    with tempfile.TemporaryDirectory() as folder:
        texts = arguments.data or [str(_made_up(Path(folder) / "text.txt"))]
        for recipe in arguments.recipes:
            estimated, measured = compare(recipe, texts, arguments.steps, Path(folder))
            ratio = estimated / measured
            print(
                f"{recipe:44}{estimated / 1e6:>9,.0f} MB{measured / 1e6:>9,.0f} MB{ratio:>8.2f}",
                flush=True,
            )


def compare(recipe: str, texts: Sequence[str], steps: int, folder: Path) -> tuple[int, int]:
    """Return the bytes that `check` estimates for a recipe, and those that `pretrain` takes."""
    name, _, settings = recipe.partition(":")
    options = [name, "--steps", str(steps), *_set(settings.split(",") if settings else [])]
    options += _set(["train.evaluations=2", "train.checkpoints=2"])
    run = folder / "run"
    _run(["pretrain", *options, "--data", *texts, "--out", str(run)])  # makes the shards
    data = ["--data", str(run / "shards")]
    estimate, _ = _run(["check", *options, *data, "--rows", "0", "--json"])
    _, measured = _run(["pretrain", *options, *data, "--out", str(folder / "again")])
    for finished in (run, folder / "again"):
        shutil.rmtree(finished)
    return int(json.loads(estimate)["memory_bytes"]["total"]), measured


def _set(settings: Sequence[str]) -> list[str]:
    return [word for setting in settings for word in ("--set", setting)]


def _run(words: Sequence[str]) -> tuple[str, int]:
    """Return the output of a command of Foreword, and its peak memory in bytes."""
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as errors:
        files = [(os.POSIX_SPAWN_DUP2, out.fileno(), 1), (os.POSIX_SPAWN_DUP2, errors.fileno(), 2)]
        command = [sys.executable, "-m", "foreword", *words]
        child = os.posix_spawn(sys.executable, command, os.environ, file_actions=files)
        _, status, usage = os.wait4(child, 0)
        out.seek(0)
        errors.seek(0)
        if os.waitstatus_to_exitcode(status):
            raise SystemExit(f"{' '.join(command)}\n{errors.read().decode()}")
        return out.read().decode(), usage.ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def _made_up(path: Path) -> Path:
    rng = random.Random(1)
    letters = "aeioubcdfghklmnprst"
    words = ["".join(rng.choices(letters, k=rng.randint(3, 9))) for _ in range(WORDS)]
    with path.open("w", encoding="utf-8") as out:
        for _ in range(60_000):
            sentence = [words[int(WORDS * rng.random() ** 2)] for _ in range(rng.randint(5, 20))]
            out.write(" ".join(sentence).capitalize() + ".\n")
    return path


if __name__ == "__main__":
    main()
