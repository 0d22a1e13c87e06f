"""Work on a Ray cluster, here of two machines of one core: a worker dies, then a machine.

Ray takes seconds to start, so one test does all that needs it. `benchmarks/cluster.py` kills
machine after machine while shards are made and while recipes are compared.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import foreword
from foreword.cli.main import run as main
from foreword.data import shard_builder
from foreword.errors import UserError
from foreword.process.cluster import Cluster, connected
from tests.cleaning import texts
from tests.comparison import grids
from tests.train import runs

STORE = 80 * 1024 * 1024  # bytes of shared memory of a node, about the least


@pytest.fixture
def machines() -> Iterator[Any]:
    """Two machines of a cluster that we are connected to; the first is its head."""
    from ray.cluster_utils import Cluster as Machines

    head = {"num_cpus": 1, "include_dashboard": False, "object_store_memory": STORE}
    machines = Machines(initialize_head=True, head_node_args=head)
    machines.add_node(num_cpus=1, object_store_memory=STORE)
    with connected(machines.address):
        yield machines
    machines.shutdown()


def killed_at_first(mark: Path, function: Callable[..., Any], *args: Any) -> Any:
    """Run a function in a worker that is killed the first time."""
    if not mark.exists():
        mark.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return function(*args)


def submissions(
    monkeypatch: pytest.MonkeyPatch,
    mark: Path | None = None,
    kill_machine: Callable[[], None] = lambda: None,
) -> list[Any]:
    """Return what is submitted; the worker of the third task is killed, at the fifth a machine.

    Args:
        monkeypatch: of the test.
        mark: a file to be made when the worker is killed; without one it is not.
        kill_machine: kills a machine.
    """
    submit, submitted = Cluster.submit, list[Any]()

    def submit_and_kill(self: Cluster, *args: Any, **kwargs: Any) -> Any:
        submitted.append(args)
        if mark is not None and len(submitted) == 3:
            args = (killed_at_first, mark, *args)
        future = submit(self, *args, **kwargs)
        if len(submitted) == 5:
            kill_machine()
        return future

    monkeypatch.setattr(Cluster, "submit", submit_and_kill)
    return submitted


def prepare(machines: Any, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Make shards while a worker and a machine die: of the same bytes as those of one process."""
    (machine,) = machines.worker_nodes
    text = runs.write_text(folder / "text", capital=True)
    how: dict[str, Any] = {"kind": "word", "documents": "line", "progress": False}
    alone = foreword.prepare(text, folder / "alone", workers=1, **how)
    with monkeypatch.context() as patch:
        patch.setattr(shard_builder, "_BATCH", 900)
        kill = partial(machines.remove_node, machine, allow_graceful=False)
        submitted = submissions(patch, folder / "killed", kill)
        made = foreword.prepare(text, folder / "cluster", ray=machines.address, **how)
    assert (folder / "killed").exists() and len(submitted) > 5 and not machines.worker_nodes
    for name in sorted(path.name for path in alone.folder.glob("*.*")):
        assert (made.folder / name).read_bytes() == (alone.folder / name).read_bytes(), name
    return Path(alone.folder)


def compare(address: str, data: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Compare: every piece once, and no piece again."""
    grids.write_files(folder)
    task = {**grids.TASK, "scratch": False, "tune": {"seeds": 1, "epochs": 1}}
    grid = grids.write_grid(folder, data=[str(data)], tasks=[task], cells=[grids.MASKED])
    for kinds in (["run", "task", "task"], []):
        with monkeypatch.context() as patch:
            submitted = submissions(patch)
            result = foreword.compare(grid, out=folder / "out", ray=address, progress=False)
        assert result.is_done and not result.failures
        assert sorted("task" if inputs.job.task else "run" for _, inputs in submitted) == kinds
    # A cell that no machine is large enough for.
    with pytest.raises(
        UserError, match=r"cell 'masked': takes 64 cores and 0 GPUs, and no machine"
    ):
        wide = grids.write_grid(folder, data=[str(data)], tasks=[], cpus=64)
        foreword.compare(wide, out=folder / "wide", ray=address, progress=False)
    assert not (folder / "wide").exists()


def clean(folder: Path) -> None:
    """Clean: the same text as on this machine."""
    file = texts.write(folder / "a.jsonl", [texts.prose(1), texts.prose(2)])
    how: dict[str, Any] = {"recipe": folder / "language.toml", "progress": False}
    how["recipe"].write_text('[clean]\nsteps = ["language"]\n')
    ours = foreword.clean(file, folder / "here", workers=1, **how)
    theirs = foreword.clean(file, folder / "there", settings=["clean.executor.kind=ray"], **how)
    (text,) = ours.texts.iterdir()
    assert (theirs.texts / text.name).read_bytes() == text.read_bytes()


@pytest.mark.full
def test_a_cluster_makes_the_same_shards_and_text_and_trains_every_cell(
    machines: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = prepare(machines, tmp_path, monkeypatch)
    compare(machines.address, data, tmp_path, monkeypatch)
    clean(tmp_path)


@pytest.mark.product(few=1)
@pytest.mark.parametrize(
    ("address", "message"),
    [
        ("127.0.0.1:9", "no Ray cluster answers: Connection refused"),
        ("somewhere", "expected HOST:PORT"),
    ],
)
def test_a_cluster_that_does_not_answer_is_one_line(
    address: str, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = runs.write_text(tmp_path / "text", 1)
    assert main(["prepare", str(text), "--out", str(tmp_path / "out"), "--ray", address]) == 2
    assert message in (error := capsys.readouterr().err) and error.count("\n") == 1
    assert not (tmp_path / "out").exists()


def test_a_cluster_of_this_machine_is_open_to_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    name = "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"  # makes Ray listen on this machine alone
    monkeypatch.setenv(name, "")
    monkeypatch.delenv(name)
    ray = SimpleNamespace(is_initialized=lambda: True)
    monkeypatch.setitem(sys.modules, "ray", ray)
    for address, value in (("127.0.0.1:9", None), ("local", "0")):
        with connected(address):
            assert os.environ.get(name) == value


def test_a_missing_ray_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    text = runs.write_text(tmp_path / "text", 1)
    assert main(["prepare", str(text), "--out", str(tmp_path / "out"), "--ray", "local"]) == 2
    assert "pip install 'foreword[cluster]'" in capsys.readouterr().err
