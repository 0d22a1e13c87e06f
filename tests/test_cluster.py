"""Work on a Ray cluster of several machines, here nodes of one machine, of which some die.

One start of Ray serves all tests of this file.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import foreword
from foreword.cli.main import run as main
from foreword.cluster import Cluster
from foreword.data import shard_builder
from tests.train import runs

STORE = 80 * 1024 * 1024  # bytes of shared memory of a node, about the least


@pytest.fixture(scope="module")
def machines() -> Iterator[Any]:
    """A cluster with a head and two other machines, of one core each."""
    from ray.cluster_utils import Cluster as Machines

    head = {"num_cpus": 1, "include_dashboard": False, "object_store_memory": STORE}
    machines = Machines(initialize_head=True, head_node_args=head)
    for _ in range(2):
        machines.add_node(num_cpus=1, object_store_memory=STORE)
    yield machines
    machines.shutdown()


@pytest.fixture
def kill_at(machines: Any, monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """Kill a machine when a number of tasks have been submitted."""

    def kill_at(number: int) -> None:
        submit, submitted = Cluster.submit, []

        def submit_and_kill(self: Cluster, *args: Any, **kwargs: Any) -> Any:
            future = submit(self, *args, **kwargs)
            submitted.append(future)
            if len(submitted) == number:
                machines.remove_node(list(machines.worker_nodes)[-1], allow_graceful=False)
            return future

        monkeypatch.setattr(Cluster, "submit", submit_and_kill)

    return kill_at


def test_shards_of_a_cluster_that_loses_a_machine_are_those_of_one_process(
    machines: Any,
    kill_at: Callable[[int], None],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    text = runs.write_text(tmp_path / "text", capital=True)
    how: dict[str, Any] = {"kind": "word", "documents": "line", "progress": False}
    alone = foreword.prepare(text, tmp_path / "alone", workers=1, **how)
    monkeypatch.setattr(shard_builder, "_BATCH", 300)
    kill_at(12)
    made = foreword.prepare(text, tmp_path / "cluster", ray=machines.address, **how)
    assert len(machines.worker_nodes) == 1
    for name in sorted(path.name for path in alone.folder.glob("*.*")):
        assert (made.folder / name).read_bytes() == (alone.folder / name).read_bytes(), name


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
