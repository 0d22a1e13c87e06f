"""`--processes`: PyTorch's launcher starts the same command several times."""

from __future__ import annotations

import logging
import os
import signal
from contextlib import nullcontext
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace

import pytest
from torch.distributed.elastic.multiprocessing.errors import ChildFailedError, ProcessFailure
from torch.distributed.launcher import api

import foreword
from benchmarks.launched_processes import open_to_others, process_of
from foreword.cli._launch import INTERRUPTION, interrupted, launch, status_of
from foreword.cli._process import INTERRUPTED, PEER_ENDED
from foreword.cli.main import run as run_cli
from foreword.errors import PeerError, UserError
from foreword.train import checkpoint, joining
from foreword.verbs.resume import Resume
from tests import forking
from tests.train import runs

pytestmark = pytest.mark.skipif(not Path("/proc").is_dir(), reason="reads /proc")


@pytest.mark.full
def test_a_process_that_is_killed_as_all_save_ends_all_and_is_named(tmp_path: Path) -> None:
    text = runs.write_text(tmp_path / "text")
    file, run, output = tmp_path / "recipe.toml", tmp_path / "run", tmp_path / "output"
    file.write_text(
        runs.recipe("decoder", steps=100_000, checkpoints=10_000, evaluations=1).dumps()
    )
    words = ["pretrain", str(file), "--data", str(text), "--out", str(run), "--quiet"]
    words += ["--processes", "2", "--set", "parallel.kind=fsdp"]
    command = forking.start_into(words, output)
    forking.wait_until(lambda: len(checkpoint.all_in(run)) > 1)
    forking.wait_until(lambda: any((run / "checkpoints").glob(".step-*.part/weights-*")))
    assert not open_to_others(command.pid)
    killed, other = (process_of(rank, command.pid) for rank in (1, 0))
    os.kill(killed, signal.SIGKILL)
    assert command.wait() == 2
    printed = output.read_text()
    assert printed.startswith("foreword: rank 1 was killed (SIGKILL), probably out of memory; '")
    assert printed.endswith(f"resume {run}' continues\n")
    assert len(printed.splitlines()) == 1
    assert not Path(f"/proc/{other}").exists()
    assert checkpoint.newest(run, damaged := []).joinpath("weights-2-of-2.safetensors").is_file()
    assert not damaged


@pytest.mark.parametrize("other", [INTERRUPTED, PEER_ENDED, -signal.SIGTERM])
def test_a_killed_process_is_named_whatever_the_launchers_signal_made_of_the_others(
    other: int,
) -> None:
    failures = {0: SimpleNamespace(exitcode=other), 1: SimpleNamespace(exitcode=-signal.SIGKILL)}
    with pytest.raises(UserError, match=r"rank 1 was killed \(SIGKILL\)"):
        status_of(failures, Path("run"))


def test_a_launcher_says_that_a_signal_to_one_process_interrupted_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    failures = {
        0: ProcessFailure(0, 1, PEER_ENDED, "none"),
        1: ProcessFailure(1, 2, INTERRUPTED, "none"),
    }

    def end(*_: object) -> None:
        Path(os.environ[INTERRUPTION]).touch()  # as rank 1 does
        raise ChildFailedError("foreword", failures)

    monkeypatch.setattr(api, "elastic_launch", lambda *_: end)
    monkeypatch.setattr(logging, "disable", lambda: None)
    assert launch(Resume(tmp_path, processes=2)) == INTERRUPTED
    assert "interrupted before the run began; run the same command again" in capsys.readouterr().err
    assert INTERRUPTION not in os.environ


def test_processes_that_a_signal_ended_are_interrupted() -> None:
    failures = {0: SimpleNamespace(exitcode=PEER_ENDED), 1: SimpleNamespace(exitcode=INTERRUPTED)}
    assert status_of(failures, Path("run")) == INTERRUPTED


def test_another_number_than_torchruns_is_refused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert run_cli(["resume", "run", "--processes", "3"]) == 2
    assert "--processes 3: torchrun has started 2; leave it out" in capsys.readouterr().err


def test_more_processes_than_the_machine_has_room_for_are_refused(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run_cli(["resume", "run", "--processes", "1000000"]) == 2
    assert "--processes 1,000,000: each " in capsys.readouterr().err


def test_python_starts_no_processes(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="start the program by torchrun --nproc-per-node 2"):
        foreword.resume(tmp_path, processes=2)


@pytest.mark.parametrize(
    ("variables", "message"),
    [
        ({"RANK": "0", "WORLD_SIZE": "two"}, "WORLD_SIZE=two: torchrun sets this variable"),
        ({"RANK": "one", "WORLD_SIZE": "2"}, "RANK=one: torchrun sets this variable"),
        ({"RANK": "0", "WORLD_SIZE": "2"}, "process 0 of 2, but there is no MASTER_ADDR"),
        (
            {"RANK": "1", "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "1"},
            "process 1 of 2 does not meet the others at 127.0.0.1:1; start all by torchrun, or",
        ),
    ],
)
def test_variables_that_torchrun_left_behind_are_named(
    variables: dict[str, str],
    message: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(joining, "MEETING", timedelta(milliseconds=1))
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert run_cli(["resume", "run"]) == 2
    assert message in capsys.readouterr().err


def interruption() -> PeerError:
    error = PeerError()
    error.__cause__ = KeyboardInterrupt()
    return error


@pytest.mark.parametrize("rank", [0, 1])
def test_the_first_of_the_processes_says_that_they_were_interrupted(
    rank: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Before training: a step is finished and saved."""
    monkeypatch.setenv("RANK", str(rank))
    monkeypatch.setenv("WORLD_SIZE", "2")
    (tmp_path / "recipe.toml").touch()
    with nullcontext() if rank == 0 else pytest.raises(PeerError):
        assert interrupted(Resume(tmp_path), interruption()) == 130
    assert ("interrupted; 'foreword resume" in "".join(capsys.readouterr())) == (rank == 0)


def test_a_launcher_is_told_of_an_interruption_and_decides_what_to_say(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    note = tmp_path / "interruption"
    monkeypatch.setenv(INTERRUPTION, str(note))
    assert interrupted(Resume(tmp_path), interruption()) == INTERRUPTED
    assert note.exists()
    assert "".join(capsys.readouterr()) == ""
