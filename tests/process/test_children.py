"""Child processes that call functions beside each other, fail alone, and end with this one."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from foreword.errors import UserError, WorkerError
from foreword.process.children import Children


def meet(folder: Path, name: str) -> int:
    """Wait in a child for a second call to begin, and return its process."""
    (folder / name).touch()
    while len(list(folder.iterdir())) < 2:
        time.sleep(0.01)
    return os.getpid()


def refuse() -> None:
    raise UserError("this is refused")


def fail() -> None:
    raise KeyError("a fault")


def lack_memory() -> None:
    raise MemoryError("no more")


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def work_for_ever(mark: Path) -> None:
    mark.write_text(str(os.getpid()))
    time.sleep(600)


def test_calls_run_beside_each_other_and_fail_alone(tmp_path: Path) -> None:
    with Children(2, "--jobs 1") as children:
        first, second = (children.submit(meet, tmp_path, name) for name in "ab")
        assert first.result() != second.result() != os.getpid()
        for function, error, message in [
            (refuse, UserError, "this is refused"),
            (fail, WorkerError, "a worker process failed: KeyError"),
            (lack_memory, UserError, "out of memory: no more"),
            (die, UserError, r"died \(status 137\), probably out of memory; use fewer: --jobs 1"),
        ]:
            with pytest.raises(error, match=message):
                children.submit(function).result()
        assert children.submit(os.getpid).result() != os.getpid()  # of the one in its place


def test_a_process_that_cannot_be_made_costs_no_place(monkeypatch: pytest.MonkeyPatch) -> None:
    with Children(1, "") as children:
        with monkeypatch.context() as patch:
            patch.setattr(sys, "executable", "/no/such/python")
            with pytest.raises(FileNotFoundError):
                children.submit(os.getpid).result()
        assert children.submit(os.getpid).result(60) != os.getpid()


def is_alive(process: int) -> bool:
    return (
        Path(f"/proc/{process}").exists()
        and "Z" not in Path(f"/proc/{process}/stat").read_text().split()[2]
    )


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_children_end_with_their_parent(tmp_path: Path, number: signal.Signals) -> None:
    mark = tmp_path / "child"
    code = (
        "from pathlib import Path; from foreword.process.children import Children\n"
        f"from {__name__} import work_for_ever\n"
        f"with Children(1, '') as c: c.submit(work_for_ever, Path({str(mark)!r})).result()"
    )
    parent = subprocess.Popen(
        [sys.executable, "-c", code], stderr=subprocess.DEVNULL, cwd=Path(__file__).parents[2]
    )
    while not (mark.exists() and mark.read_text()):
        time.sleep(0.05)
        assert parent.poll() is None
    child = int(mark.read_text())
    assert is_alive(child)
    parent.send_signal(number)
    parent.wait()
    for _ in range(100):
        if not is_alive(child):
            return
        time.sleep(0.1)
    os.kill(child, signal.SIGKILL)
    pytest.fail("the child goes on without its parent")
