"""A Ray cluster: functions that run as tasks on its machines, and again where a machine dies.

    with connected("local") as cluster:
        future = cluster.submit(function, argument)

Foreword must be installed on every machine, in this version. What a task gets and returns is sent
by Ray between processes that trust each other; nothing of it is kept.
"""

from __future__ import annotations

import importlib
import os
import socket
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from foreword.errors import UserError, WorkerError
from foreword.version import __version__

RETRIES = 8  # of a task whose worker died
_TIMEOUT = 5.0  # seconds to wait for an address


@dataclass(frozen=True)
class Resources:
    """The resources that a task takes of its machine.

    Attributes:
        cpus: cores.
        gpus: GPUs; it sees no others.
    """

    cpus: float = 1
    gpus: float = 0


def cores() -> int:
    """Return the number of cores of this machine that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class Cluster:
    """A Ray cluster that this process is connected to; see `connected`.

    Args:
        ray: the module.
    """

    def __init__(self, ray: Any) -> None:
        self._ray = ray

    def total(self, resource: str) -> int:
        """Return how many of a resource all machines have now: `CPU`, `GPU`."""
        return int(self._ray.cluster_resources().get(resource, 0))

    def machines(self) -> list[Resources]:
        """Return the cores and GPUs of each machine."""
        return [
            Resources(one["Resources"].get("CPU", 0), one["Resources"].get("GPU", 0))
            for one in self._ray.nodes()
            if one["Alive"]
        ]

    def put(self, value: Any) -> Any:
        """Send a value to the cluster once; a task that gets what is returned gets the value."""
        return self._ray.put(value)

    def submit(
        self, function: Callable[..., Any], *args: Any, resources: Resources | None = None
    ) -> Future[Any]:
        """Run a function of a module, elsewhere; its result must depend on its arguments alone.

        It runs again if its worker or its machine dies, or if its result is lost with one.

        Args:
            function: the function.
            args: its arguments, or what `put` returned of them.
            resources: what it takes; default: one core.

        Returns:
            Its result; or a UserError that it raised, or another machine's version of Foreword; or
            a WorkerError if it failed.
        """
        taken = resources or Resources()
        remote = self._ray.remote(
            num_cpus=taken.cpus, num_gpus=taken.gpus, max_retries=RETRIES, retry_exceptions=False
        )(_run)
        name = f"{function.__module__}:{function.__qualname__}"
        task = remote.remote(__version__, name, *args)
        result: Future[Any] = Future()
        result.set_running_or_notify_cancel()

        def pass_on(done: Future[Any], task: Any = task) -> None:
            error = done.exception()
            if error is None:
                result.set_result(done.result())
            else:
                result.set_exception(self._translated(error))

        task.future().add_done_callback(pass_on)
        return result

    def _translated(self, error: BaseException) -> BaseException:
        """Return an error of Ray as one of ours."""
        if isinstance(error, self._ray.exceptions.RayTaskError):
            cause = error.cause
            if isinstance(cause, UserError):
                return cause
            return WorkerError(f"a worker of the Ray cluster failed: {cause!r}", str(error))
        line = str(error).strip().split("\n")[0]
        return UserError(
            f"--ray: a worker died {RETRIES + 1} times over ({type(error).__name__}), probably out "
            f"of memory, or the cluster was shut down: {line}"
        )


def _run(version: str, name: str, *args: Any) -> Any:
    """Call a function on a machine of the cluster."""
    if version != __version__:
        raise UserError(
            f"--ray: a machine of the cluster has Foreword {__version__}, this one has "
            f"{version}; install the same on all"
        )
    module, _, function = name.partition(":")
    return getattr(importlib.import_module(module), function)(*args)


@contextmanager
def connected(address: str) -> Iterator[Cluster]:
    """Connect to a Ray cluster, and disconnect at the end.

    A connection that exists already is used, and stays.

    Args:
        address: `HOST:PORT` of its head, `ray://HOST:PORT` from outside, `auto` for the one that
            this machine belongs to, or `local` to start one on this machine.

    Raises:
        UserError: Ray is not installed, or no cluster answers.
    """
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # it would be sent to Ray's makers
    if address == "local":  # no other machine can connect then, whatever the system
        os.environ.setdefault("RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER", "0")
    try:
        import ray
    except ImportError:
        raise UserError(
            "--ray: Ray is not installed; pip install 'foreword[cluster]' installs it"
        ) from None
    if ray.is_initialized():
        yield Cluster(ray)
        return
    _require_answer(address)
    settings = {"include_dashboard": False} if address == "local" else {"address": address}
    try:
        ray.init(log_to_driver=False, logging_level="ERROR", **settings)
    except Exception as error:  # of many kinds
        raise UserError(_no_cluster(address, str(error).strip().split("\n")[0])) from error
    try:
        yield Cluster(ray)
    finally:
        ray.shutdown()


def _require_answer(address: str) -> None:
    """Check that something answers at an address; Ray itself would try for minutes."""
    if address in ("local", "auto"):
        return
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if not host or not port.isdecimal() or not 0 < int(port) < 1 << 16:
        raise UserError(
            f"--ray {address}: expected HOST:PORT, ray://HOST:PORT, auto for this machine's "
            "cluster, or local to start one"
        )
    try:
        socket.create_connection((host.strip("[]"), int(port)), _TIMEOUT).close()
    except OSError as error:
        raise UserError(_no_cluster(address, error.strerror or str(error))) from error


def _no_cluster(address: str, reason: str) -> str:
    return (
        f"--ray {address}: no Ray cluster answers: {reason.rstrip('.')}; 'ray start --head' starts "
        "one, and --ray local one on this machine alone"
    )
