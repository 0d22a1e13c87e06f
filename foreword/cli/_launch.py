"""`--processes`: the same command in several processes, started by PyTorch's own launcher."""

from __future__ import annotations

import logging
import os
import signal
import socket
import sys
from pathlib import Path
from typing import Any

from foreword.cli._process import INTERRUPTED, PEER_ENDED
from foreword.disk import atomic
from foreword.display import lines, results
from foreword.errors import UserError, quoted_command
from foreword.formatting import byte_size
from foreword.process.cluster import cores
from foreword.verbs._run import PretrainingResult, TrainsRun

INTERRUPTION = "FOREWORD_INTERRUPTION"  # names the file that tells the launcher of one
LOOPBACK = "127.0.0.1"
STATED = (1, 2)  # exit statuses of a process that has said why it ended
FOLLOWED = (PEER_ENDED, INTERRUPTED, -signal.SIGTERM)  # of those that others or a signal ended


def in_processes(verb: TrainsRun) -> int | None:
    """Train in other processes if the verb asks for them, and return the exit status; else None.

    Raises:
        UserError: this machine has no room for the processes, or an argument is wrong.
    """
    from foreword.train.joining import is_launched

    if verb.processes == 1 or is_launched():
        return None
    _require_room(verb.processes)
    return launch(verb)


def interrupted(verb: TrainsRun, error: BaseException) -> int:
    """Say how a verb that was interrupted continues, if this process is to; return the status.

    Args:
        verb: the verb.
        error: what ended it, raised again if it was no interrupt, or if another process says so.
    """
    from foreword.train.joining import launched_rank

    if not isinstance(error.__cause__ or error, KeyboardInterrupt) or launched_rank():
        raise error  # the launcher or the first process says so
    if INTERRUPTION in os.environ:  # the launcher knows whether a person sent the signal
        Path(os.environ[INTERRUPTION]).touch()
    else:
        lines.say(verb.interrupted())
    return INTERRUPTED


def show(result: PretrainingResult, *, as_json: bool) -> None:
    """Show how a training ended, in the first process.

    Args:
        result: the result of the training.
        as_json: whether to print one JSON document.
    """
    from foreword.train.joining import launched_rank

    if not launched_rank():
        try:
            results.show(result, as_json=as_json)
        except UserError:  # a closed terminal stopped the run and takes no result
            if not result.status:
                raise


def launch(verb: TrainsRun) -> int:
    """Run this command in several processes, and return the exit status.

    If one ends before its time, the launcher ends all. One that fails says why; of one that was
    killed this process tells. No other machine can connect to them.

    Args:
        verb: the verb of this command.

    Raises:
        UserError: a process was killed.
    """
    from torch.distributed import TCPStore  # type: ignore[attr-defined]
    from torch.distributed.elastic.multiprocessing.api import DefaultLogsSpecs, SignalException
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.launcher.api import LaunchConfig, elastic_launch

    logging.disable()  # the launcher's account of it
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")  # of the processes
    if "OMP_NUM_THREADS" not in os.environ:
        os.environ["OMP_NUM_THREADS"] = str(max(1, cores() // verb.processes))
    is_script = Path(sys.argv[0]).name == "foreword" and Path(sys.argv[0]).is_file()
    program = [sys.argv[0]] if is_script else ["-m", "foreword"]
    # PyTorch's store would listen on all interfaces, and Gloo on that of the machine's name.
    listener = socket.create_server((LOOPBACK, 0), backlog=128)
    port = listener.getsockname()[1]
    for loopback in {"lo", "lo0"} & {name for _, name in socket.if_nameindex()}:
        os.environ.setdefault("GLOO_SOCKET_IFNAME", loopback)
    store = TCPStore(
        LOOPBACK,
        port,
        is_master=True,
        wait_for_workers=False,
        multi_tenant=True,  # the launcher's store is the same then
        master_listen_fd=listener.detach(),
    )
    with atomic.temporary_folder() as folder:
        interruption = folder / "interruption"
        os.environ[INTERRUPTION] = str(interruption)  # for the processes
        config = LaunchConfig(
            min_nodes=1,
            max_nodes=1,
            nproc_per_node=verb.processes,
            run_id="foreword",
            rdzv_backend="static",
            rdzv_endpoint=f"{LOOPBACK}:{port}",
            rdzv_configs={"rank": 0},
            max_restarts=0,
            logs_specs=DefaultLogsSpecs(log_dir=str(folder)),
            shutdown_timeout=3600,  # after Ctrl-C, for the step and the checkpoint
        )
        try:
            elastic_launch(config, sys.executable)(*program, *sys.argv[1:])
            status = 0
        except ChildFailedError as error:
            status = status_of(error.failures, verb.folder)
        except SignalException:
            status = INTERRUPTED
            if not verb.folder.exists():
                interruption.touch()  # no process has said so
        finally:
            del os.environ[INTERRUPTION], store
        if status == INTERRUPTED and interruption.exists():
            lines.say(
                verb.interrupted()
            )  # else the first of the processes has said that it is saved
        return status


def _require_room(processes: int) -> None:
    """Check that each process would have a GPU, or there are none and it has room in memory."""
    import torch

    from foreword.planning.memory import PROGRAM
    from foreword.runs.sizes import memory_of

    most, why = torch.cuda.device_count(), "each requires a GPU"
    if not most:
        available = memory_of(torch.device("cpu"))
        most = available // PROGRAM
        why = f"each takes {byte_size(PROGRAM)} and more, and there is {byte_size(available)}"
    if processes > most:
        raise UserError(f"--processes {processes:,}: {why}; start at most {most:,}")


def status_of(failures: dict[int, Any], run: Path) -> int:
    """Return the exit status of processes of which some failed, by rank.

    Raises:
        UserError: the first that ended was killed.
    """
    statuses = {rank: int(failure.exitcode) for rank, failure in failures.items()}
    if stated := [status for status in statuses.values() if status in STATED]:
        return stated[0]
    first = min(statuses, key=lambda rank: (statuses[rank] in FOLLOWED, rank))
    status = statuses[first]
    if status in FOLLOWED and INTERRUPTED in statuses.values():
        return INTERRUPTED
    why = f"ended with status {status}"
    if status < 0:
        why = f"was killed ({signal.Signals(-status).name})"
        why += ", probably out of memory" * (status == -signal.SIGKILL)
    raise UserError(f"rank {first} {why}; {quoted_command('resume', run)} continues")
