"""Work on a Ray cluster of several machines, here nodes of one machine, of which some die.

Ray takes seconds to start, so one test does all that needs it.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import foreword
from foreword.cli.main import run as main
from foreword.cluster import Cluster, connected
from foreword.data import shard_builder
from foreword.errors import UserError
from tests.comparison import grids
from tests.train import runs

STORE = 80 * 1024 * 1024  # bytes of shared memory of a node, about the least


@pytest.fixture
def machines() -> Iterator[Any]:
    """A cluster with a head and another machine, of one core each, that we are connected to."""
    from ray.cluster_utils import Cluster as Machines

    head = {"num_cpus": 1, "include_dashboard": False, "object_store_memory": STORE}
    machines = Machines(initialize_head=True, head_node_args=head)
    machines.add_node(num_cpus=1, object_store_memory=STORE)
    with connected(machines.address):
        yield machines
    machines.shutdown()


def submissions(monkeypatch: pytest.MonkeyPatch, machines: Any, kill_at: int) -> list[Any]:
    """Kill a machine when this many tasks have been submitted; return what is submitted."""
    submit, submitted = Cluster.submit, list[Any]()

    def submit_and_kill(self: Cluster, *args: Any, **kwargs: Any) -> Any:
        future = submit(self, *args, **kwargs)
        submitted.append(args)
        if len(submitted) == kill_at:
            machines.remove_node(list(machines.worker_nodes)[-1], allow_graceful=False)
        return future

    monkeypatch.setattr(Cluster, "submit", submit_and_kill)
    return submitted


def test_a_cluster_that_loses_a_machine_makes_the_same_shards_and_trains_every_cell(
    machines: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Shards: of the same bytes as those of one process.
    text = runs.write_text(tmp_path / "text", capital=True)
    how: dict[str, Any] = {"kind": "word", "documents": "line", "progress": False}
    alone = foreword.prepare(text, tmp_path / "alone", workers=1, **how)
    monkeypatch.setattr(shard_builder, "_BATCH", 300)
    with monkeypatch.context() as patch:
        submissions(patch, machines, kill_at=12)
        made = foreword.prepare(text, tmp_path / "cluster", ray=machines.address, **how)
    assert not machines.worker_nodes
    for name in sorted(path.name for path in alone.folder.glob("*.*")):
        assert (made.folder / name).read_bytes() == (alone.folder / name).read_bytes(), name

    # A comparison: every piece once, and no piece again. (benchmarks/cluster.py kills machines.)
    folder = grids.write_files(tmp_path)
    task = {**grids.TASK, "scratch": False, "tune": {"seeds": 1, "epochs": 1}}
    cell = [grids.MASKED]
    grid = grids.write_grid(folder, data=[str(alone.folder)], tasks=[task], cells=cell)
    for kinds in (["run", "task", "task"], []):
        with monkeypatch.context() as patch:
            submitted = submissions(patch, machines, kill_at=0)
            result = foreword.compare(
                grid, out=tmp_path / "out", ray=machines.address, progress=False
            )
        assert result.is_done and not result.failures
        assert sorted("task" if order.task else "run" for _, order in submitted) == kinds
    # A cell that no machine is large enough for.
    with pytest.raises(
        UserError, match=r"cell 'masked': takes 64 cores and 0 GPUs, and no machine"
    ):
        wide = grids.write_grid(folder, data=[str(alone.folder)], tasks=[], cpus=64)
        foreword.compare(wide, out=tmp_path / "wide", ray=machines.address, progress=False)
    assert not (tmp_path / "wide").exists()


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


def test_a_missing_ray_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    text = runs.write_text(tmp_path / "text", 1)
    assert main(["prepare", str(text), "--out", str(tmp_path / "out"), "--ray", "local"]) == 2
    assert "pip install 'foreword[cluster]'" in capsys.readouterr().err
