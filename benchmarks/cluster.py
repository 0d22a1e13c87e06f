"""A comparison on a Ray cluster whose machines are killed, beside one without a cluster.

    python benchmarks/cluster.py [--machines 3] [--steps 200]

The machines are nodes of a Ray cluster on this one, of one core each. All but the first are killed,
one after every second piece that begins. Printed are the seconds, the machines killed, and how far
the losses are from those without a cluster: by no more than rounding, since a machine of one core
sums in another order than one of two.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import foreword
from foreword.cluster import Cluster, connected

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
    """Compare without a cluster, and on one that loses machines."""
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
        grid = folder / "grid.toml"
        grid.write_text(GRID.format(steps=arguments.steps), encoding="utf-8")
        began = time.monotonic()
        alone = foreword.compare(str(grid), out=folder / "alone", progress=False)
        print(f"without a cluster: {time.monotonic() - began:.0f} s", flush=True)
        seconds, killed, results = on_a_cluster(grid, folder / "cluster", arguments.machines)
        print(f"{arguments.machines} machines, {killed} killed: {seconds:.0f} s", flush=True)
        pairs = list(zip(losses(alone), losses(results), strict=True))
        apart = max(abs(a - b) for a, b in pairs)
        print(f"held-out losses, nats: {pairs}; at most {apart:.1e} apart")
        raise SystemExit(apart > 1e-3)


def losses(results: Any) -> list[float]:
    """Return the held-out loss of each cell."""
    return [run.heldout_loss for run in results.results.runs]


def on_a_cluster(grid: Path, out: Path, count: int) -> tuple[float, int, Any]:
    """Return the seconds, the machines killed, and the results."""
    from ray.cluster_utils import Cluster as Machines

    head = {"num_cpus": 1, "include_dashboard": False, "object_store_memory": STORE}
    machines = Machines(initialize_head=True, head_node_args=head)
    for _ in range(count - 1):
        machines.add_node(num_cpus=1, object_store_memory=STORE)
    killed, submit, begun = 0, Cluster.submit, 0

    def submit_and_kill(self: Cluster, *args: Any, **kwargs: Any) -> Any:
        nonlocal begun
        begun += 1
        if begun % 2 == 0 and machines.worker_nodes:
            threading.Timer(5.0, kill).start()  # while pieces train
        return submit(self, *args, **kwargs)

    def kill() -> None:
        nonlocal killed
        if machines.worker_nodes:
            machines.remove_node(list(machines.worker_nodes)[-1], allow_graceful=False)
            killed += 1

    Cluster.submit = submit_and_kill  # type: ignore[method-assign]
    try:
        with connected(machines.address):
            began = time.monotonic()
            results = foreword.compare(str(grid), out=out, ray=machines.address, progress=False)
            return time.monotonic() - began, killed, results
    finally:
        Cluster.submit = submit  # type: ignore[method-assign]
        machines.shutdown()


if __name__ == "__main__":
    main()
