"""Shards and a comparison on Ray clusters whose machines are killed, beside both without a cluster.

    python benchmarks/cluster.py [--machines 3] [--steps 200]

The machines are nodes of a Ray cluster on this one, of one core each. All but the first are killed:
of the shards' cluster one after every tenth task that begins, of the comparison's one after every
second. Printed are the seconds, the machines killed, whether the shards are the same byte for byte,
and how far the losses are from those without a cluster: by no more than rounding, since a machine
of one core sums in another order than one of two. The exit status is 1 if something differs, or no
machine was killed.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

import foreword
from foreword.data import shard_builder
from foreword.process.cluster import Cluster, connected

STORE = 80 * 1024 * 1024  # bytes of shared memory of a node, about the least
GRID = """
data = ["text.jsonl"]
seeds = 1
[set.train]
workers = 1
[budget]
unit = "steps"
amount = {steps}
[[cells]]
recipe = "roberta_tiny"
[[cells]]
recipe = "gpt2_tiny"
[[cells]]
recipe = "lstm_tiny"
[[cells]]
recipe = "t5_tiny"
"""


def main() -> None:
    """Prepare and compare without a cluster, and on ones that lose machines."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--machines", type=int, default=3)
    parser.add_argument("--steps", type=int, default=200)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        words = [f"word{n * n % 9973}" for n in range(200_000)]
        texts = (" ".join(words[n : n + 200]) for n in range(0, len(words), 200))
        records = (json.dumps({"text": text}) for text in texts)
        (folder / "text.jsonl").write_text("\n".join(records), encoding="utf-8")
        (folder / "grid.toml").write_text(GRID.format(steps=arguments.steps), encoding="utf-8")
        same = [prepare(folder, arguments.machines), compare(folder, arguments.machines)]
        raise SystemExit(not all(same))


def prepare(folder: Path, count: int) -> bool:
    """Make shards without a cluster and on one; return whether they are the same bytes."""
    shard_builder._BATCH = 20_000  # bytes of a task, so that there are many
    text = folder / "text.jsonl"
    how: dict[str, Any] = {"kind": "bpe", "vocab": 1000, "progress": False}
    alone = foreword.prepare(text, folder / "shards", workers=1, **how)
    with losing_machines(count, every=10, after=0.0) as (address, killed):
        began = time.monotonic()
        made = foreword.prepare(text, folder / "shards-of-cluster", ray=address, **how)
        seconds = time.monotonic() - began
    names = sorted(path.name for path in alone.folder.glob("*.*"))
    same = [
        (made.folder / name).read_bytes() == (alone.folder / name).read_bytes() for name in names
    ]
    print(
        f"shards: {count} machines, {len(killed)} killed: {seconds:.0f} s; {sum(same)} of "
        f"{len(names)} files are the same",
        flush=True,
    )
    return bool(killed) and all(same)


def compare(folder: Path, count: int) -> bool:
    """Compare recipes without a cluster and on one; return whether the losses are the same."""
    grid, began = str(folder / "grid.toml"), time.monotonic()
    torch.set_num_threads(1)  # as each machine
    alone = foreword.compare(grid, out=folder / "alone", progress=False)
    print(f"comparison: without a cluster {time.monotonic() - began:.0f} s", flush=True)
    with losing_machines(count, every=2, after=5.0) as (address, killed):
        began = time.monotonic()
        results = foreword.compare(grid, out=folder / "cluster", ray=address, progress=False)
        seconds = time.monotonic() - began
    pairs = list(zip(losses(alone), losses(results), strict=True))
    apart = max(abs(a - b) for a, b in pairs)
    print(f"comparison: {count} machines, {len(killed)} killed: {seconds:.0f} s")
    print(f"held-out losses, nats: {pairs}; at most {apart:.1e} apart")
    return bool(killed) and apart <= 1e-3


def losses(results: Any) -> list[float]:
    """Return the held-out loss of each cell."""
    return [run.heldout_loss for run in results.results.runs]


@contextmanager
def losing_machines(count: int, *, every: int, after: float) -> Iterator[tuple[str, list[Any]]]:
    """Yield the address of a cluster, whose machines but the first are killed, and those killed.

    Args:
        count: of machines.
        every: one is killed each time that this many tasks have begun.
        after: seconds later, while they are computed.
    """
    from ray.cluster_utils import Cluster as Machines

    head = {"num_cpus": 1, "include_dashboard": False, "object_store_memory": STORE}
    machines = Machines(initialize_head=True, head_node_args=head)
    for _ in range(count - 1):
        machines.add_node(num_cpus=1, object_store_memory=STORE)
    killed: list[Any] = []
    submit, begun = Cluster.submit, 0

    def submit_and_kill(self: Cluster, *args: Any, **kwargs: Any) -> Any:
        nonlocal begun
        begun += 1
        if begun % every == 0 and machines.worker_nodes:
            threading.Timer(after, kill).start()
        return submit(self, *args, **kwargs)

    def kill() -> None:
        if machines.worker_nodes:
            machine = list(machines.worker_nodes)[-1]
            machines.remove_node(machine, allow_graceful=False)
            killed.append(machine)

    Cluster.submit = submit_and_kill  # type: ignore[method-assign]
    try:
        with connected(machines.address):
            yield machines.address, killed
    finally:
        Cluster.submit = submit  # type: ignore[method-assign]
        machines.shutdown()


if __name__ == "__main__":
    main()
