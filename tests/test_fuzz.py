"""The fuzzer itself: cases that are the same each time, and a few hundred of the quick ones."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]


def fuzz(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "benchmarks/fuzz.py", "--work", str(folder), *words]
    return subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=False)


def test_odd_commands_and_recipes_are_refused_in_one_line(tmp_path: Path) -> None:
    kinds = "mutated recipe,--set,arguments,table"
    done = fuzz(tmp_path, "--seed", "11", "--cases", "200", "--kinds", kinds, "--jobs", "1")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "200 cases, 0 different findings" in done.stdout
    assert not list(tmp_path.iterdir())
