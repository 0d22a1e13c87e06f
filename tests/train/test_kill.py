"""`foreword resume` continues processes killed at any moment."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import time
from pathlib import Path

import pytest

from foreword.train import checkpoint, log
from tests import forking
from tests.forking import wait_until
from tests.train import runs

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")


def pretraining(family: str, text: Path, folder: Path) -> list[str]:
    """Return a command that pretrains for 40 steps, without --out."""
    file = folder / "recipe.toml"
    file.write_text(runs.recipe(family, steps=40, checkpoints=8, kept_checkpoints=3).dumps())
    return ["pretrain", str(file), "--data", str(text)]


@pytest.fixture
def words(text: Path, tmp_path: Path) -> list[str]:
    return pretraining("encoder", text, tmp_path)


@pytest.mark.full
def test_a_run_killed_at_any_moment_resumes_to_the_same_bytes(
    words: list[str], tmp_path: Path
) -> None:
    output, run, whole = tmp_path / "output", tmp_path / "run", tmp_path / "whole"
    assert forking.run(["--version"], output) == 0  # all is imported
    begin = time.monotonic()
    assert forking.run([*words, "--out", str(whole)], output) == 0
    took = time.monotonic() - begin
    reached = [  # one kill in each stage
        lambda: (run / "recipe.toml").exists(),
        lambda: (run / "tokenizer" / "tokenizer.json").exists(),
        lambda: (run / "shards" / ".part").exists(),
        lambda: (run / "shards" / "prepared.json").exists(),
        lambda: (run / "checkpoints").exists(),
        lambda: (run / "checkpoints" / ".step-00000010.part").exists(),
    ]
    moments = random.Random(0)
    status = 1
    for kill in range(9):
        is_begun = (run / "recipe.toml").exists()
        again = ["resume", str(run)] if is_begun else [*words, "--out", str(run)]
        process = forking.start_into(again, output)
        if kill < len(reached):
            wait_until(reached[kill], took)
        else:
            time.sleep(moments.uniform(0, took))
        status = process.end()
        assert status in (0, -signal.SIGKILL), output.read_text()
    assert forking.run(["resume", str(run)], output) == 0, output.read_text()
    assert runs.last_bytes(run) == runs.last_bytes(whole)
    assert runs.logged(run, "train") == runs.logged(whole, "train")
    assert sorted(run.rglob(".*")) == [run / ".lock", run / "shards" / ".lock"]


@pytest.mark.full
def test_a_killed_run_resumes_with_its_memory(text: Path, tmp_path: Path) -> None:
    """Checkpoints hold the memory that rows pass to the next."""
    words = pretraining("transformer_xl", text, tmp_path)
    output, run, whole = tmp_path / "output", tmp_path / "run", tmp_path / "whole"
    assert forking.run([*words, "--out", str(whole)], output) == 0
    process = forking.start_into([*words, "--out", str(run)], output)
    wait_until((run / "checkpoints" / checkpoint.name_of(15)).exists)
    assert process.end() in (0, -signal.SIGKILL), output.read_text()
    assert forking.run(["resume", str(run)], output) == 0, output.read_text()
    assert "memory.safetensors" in runs.last_bytes(whole)
    assert runs.last_bytes(run) == runs.last_bytes(whole)
    assert runs.logged(run, "train") == runs.logged(whole, "train")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_while_training_leaves_with_130(
    number: signal.Signals, words: list[str], tmp_path: Path
) -> None:
    output, run = tmp_path / "output", tmp_path / "run"
    process = forking.start_into([*words, "--out", str(run), "--steps", "100000"], output)
    wait_until(lambda: (run / log.FILE).exists() and len(log.read(run)) > 0)
    os.kill(process.pid, number)
    assert process.wait() == 130
    assert output.read_text().splitlines()[-1].endswith(f"foreword resume {run}' continues")
    state = checkpoint.read_state(checkpoint.newest(run))
    assert state["step"] > 0


@pytest.mark.full
def test_a_run_whose_terminal_is_closed_is_saved(words: list[str], tmp_path: Path) -> None:
    ours, terminal = os.openpty()
    os.set_blocking(ours, False)
    run = tmp_path / "run"

    def has_begun() -> bool:
        with contextlib.suppress(BlockingIOError):
            os.read(ours, 1 << 16)
        return (run / log.FILE).exists() and len(log.read(run)) > 0

    more = ["--out", str(run), "--steps", "100000"]
    process = forking.start_into([*words, *more], Path(os.ttyname(terminal)))
    wait_until(has_begun)
    os.close(terminal)
    os.close(ours)
    for _ in range(2):  # the shell sends it, and the system too
        os.kill(process.pid, signal.SIGHUP)
    assert process.wait() == 130
    assert checkpoint.read_state(checkpoint.newest(run))["step"] > 0


@pytest.mark.full
def test_a_signal_before_training_leaves_with_130(words: list[str], tmp_path: Path) -> None:
    text = runs.write_text(tmp_path / "more", files=400)
    output, run = tmp_path / "output", tmp_path / "run"
    process = forking.start_into([*words, str(text), "--out", str(run)], output)
    wait_until(lambda: output.exists() and "training the tokenizer" in output.read_text())
    os.kill(process.pid, signal.SIGTERM)
    assert process.wait() == 130
    last = output.read_text().splitlines()[-1]
    assert last.startswith("interrupted; '") and last.endswith(f"foreword resume {run}' continues")
    assert not checkpoint.all_in(run)
    assert forking.run(["resume", str(run)], output) == 0


@pytest.mark.product(few=1)
@pytest.mark.parametrize(("largest_file", "where"), [(10_000, "tokenizer"), (45_000, "step-")])
def test_a_full_disk_is_reported_in_one_line(
    largest_file: int, where: str, words: list[str], tmp_path: Path
) -> None:
    """A limit on the size of files refuses a tokenizer or a checkpoint as a full disk does."""
    output, run = tmp_path / "output", tmp_path / "run"
    status = forking.run([*words, "--out", str(run)], output, largest_file=largest_file)
    assert status == 2, output.read_text()
    lines = [line for line in output.read_text().splitlines() if line.startswith("foreword: ")]
    assert len(lines) == 1
    assert where in lines[0]
    assert "File too large" in lines[0]
    assert "Traceback" not in output.read_text()
    if where == "tokenizer":
        assert not run.exists()
    else:
        assert not list((run / "checkpoints").iterdir())  # nothing by halves
        assert forking.run(["resume", str(run)], output) == 0
