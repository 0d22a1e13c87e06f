"""The same cleaning on a throw-away Slurm and without, and what a fault of either does.

    python benchmarks/slurm.py TEXT [--part 1000000] [--only clean cancelled ...]

Slurm runs on this machine as two nodes of two cores each, in a temporary folder; Debian's packages
`slurm-wlm` and `munge` are enough. Each time from the start, in the first stage:

- clean: nothing happens;
- cancelled: `scancel` of one task; the same command goes on;
- task: a task's process is killed (SIGKILL); the same command goes on;
- stopped: the command is stopped (Ctrl-C); the same command goes on;
- killed: the command is killed (SIGKILL) while jobs wait and run; the same command goes on;
- refused: a partition that does not exist;
- never: more time than the partition grants.

Printed are the exit status of the first command, the tasks that wait or run two seconds later,
whether the result is that of this machine alone, byte for byte, and the line that was said. The
exit status is 1 if a result is another, or tasks were left by anything but a kill. It reads /proc,
so it runs on Linux, as root.
"""

from __future__ import annotations

import argparse
import os
import secrets
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

PATIENCE = 600  # seconds after which a command is taken to hang
RECIPE = "recipe.toml"  # names the executor, so it differs
CONFIGURATION = """
ClusterName=throwaway
SlurmctldHost=localhost
SlurmctldPort={ports[0]}
SlurmUser=root
AuthInfo=socket={folder}/munge/socket
StateSaveLocation={folder}/state
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/%n.pid
SlurmdSpoolDir={folder}/spool-%n
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SlurmdParameters=config_overrides
ReturnToService=2
NodeName=n1 NodeHostname={host} NodeAddr=127.0.0.1 Port={ports[1]} CPUs=2 RealMemory=8000
NodeName=n2 NodeHostname={host} NodeAddr=127.0.0.1 Port={ports[2]} CPUs=2 RealMemory=8000
PartitionName=cpu Nodes=ALL MaxTime=60
"""


class Cleanings:
    """Cleanings of one text, in a folder.

    Args:
        folder: the folder.
        text: the text.
        part: bytes of a task.
    """

    def __init__(self, folder: Path, text: str, part: int) -> None:
        self._folder, self._words = folder, [text, "--set", f"clean.part={part}", "--quiet"]
        self._bytes = self._result(self._ended(self._started("here", []), "here"))

    def clean(self) -> str:
        """Do nothing."""
        return self._interrupted("clean", lambda process: None)

    def cancelled(self) -> str:
        """Cancel one task."""
        return self._interrupted(
            "cancelled", lambda process: _slurm("scancel", _tasks("RUNNING")[0])
        )

    def task(self) -> str:
        """Kill the process of one task."""
        return self._interrupted(
            "task", lambda process: os.kill(_process_of_task(), signal.SIGKILL)
        )

    def stopped(self) -> str:
        """Stop the command."""
        return self._interrupted("stopped", lambda process: process.send_signal(signal.SIGINT))

    def killed(self) -> str:
        """Kill the command."""
        return self._interrupted("killed", lambda process: process.kill())

    def refused(self) -> str:
        """Name no partition that there is."""
        return self._failed("refused", "clean.executor.partition=nosuch")

    def never(self) -> str:
        """Ask for more time than the partition grants."""
        return self._failed("never", "clean.executor.time=02:00:00")

    def _interrupted(self, name: str, fault: Callable[[subprocess.Popen[bytes]], object]) -> str:
        """Do something when tasks run; the same command goes on if the first did not end well."""
        process = self._started(name, ["clean.executor.time=00:30:00"])
        while not _tasks("RUNNING"):
            if process.poll() is not None:
                raise SystemExit(f"{name}: no task ran; {self._said(name)}")
            time.sleep(0.2)
        time.sleep(1)
        fault(process)
        status, said, left = self._after(process, name)
        if status:
            self._ended(self._started(name, ["clean.executor.time=00:30:00"]), name)
        is_same = self._result(self._folder / name) == self._bytes
        self.is_right = is_same and (not left or name == "killed")
        return _line(name, status, left, "same" if is_same else "OTHER", said)

    def _failed(self, name: str, setting: str) -> str:
        """Let Slurm refuse the jobs."""
        status, said, left = self._after(self._started(name, [setting]), name)
        self.is_right = status == 2 and not left
        return _line(name, status, left, "-", said)

    def _after(self, process: subprocess.Popen[bytes], name: str) -> tuple[int, str, int]:
        """Return the status of a command, what it said, and the tasks left soon after."""
        status = process.wait(PATIENCE)
        time.sleep(2)
        left = len(_tasks("PENDING,RUNNING"))
        return status, self._said(name) if status else "", left

    def _started(self, name: str, settings: list[str]) -> subprocess.Popen[bytes]:
        """Start a cleaning; on Slurm if it has settings."""
        if settings:
            settings = ["clean.executor.kind=slurm", "clean.executor.partition=cpu", *settings]
        words = [sys.executable, "-m", "foreword", "clean", "--out", str(self._folder / name)]
        words += [*self._words, *(word for setting in settings for word in ("--set", setting))]
        environment = {**os.environ, "PYTHONPATH": str(Path(__file__).resolve().parents[1])}
        with (self._folder / f"{name}.log").open("wb") as output:
            return subprocess.Popen(words, stdout=output, stderr=output, env=environment)

    def _ended(self, process: subprocess.Popen[bytes], name: str) -> Path:
        """Return the folder of a cleaning that must end well."""
        if process.wait(PATIENCE):
            raise SystemExit(f"{name}: status {process.returncode}; {self._said(name)}")
        return self._folder / name

    def _said(self, name: str) -> str:
        """Return the last line that a cleaning printed."""
        lines = (self._folder / f"{name}.log").read_text().replace(f"{self._folder}/", "")
        return (lines.splitlines() or [""])[-1]

    def _result(self, out: Path) -> dict[str, bytes]:
        """Return the files of a result by name."""
        files = (file for file in out.rglob("*") if file.is_file() and file.name != RECIPE)
        return {str(file.relative_to(out)): file.read_bytes() for file in files}


def _line(name: str, status: int, left: int, result: str, said: str) -> str:
    return f"{name:11}{status:>7}{left:>6}  {result:8}{said}"


def _slurm(*command: str) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def _tasks(states: str) -> list[str]:
    """Return the names of the tasks in some states."""
    return _slurm("squeue", "--noheader", "--array", f"--states={states}", "--format=%i").split()


def _process_of_task() -> int:
    """Return the process of a task of Slurm that runs."""
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = file.read_bytes().split(b"\0")
        except OSError:  # it has ended
            continue
        if any(word.endswith(b"/launch_pickled_pipeline") for word in words):
            return int(file.parent.name)
    raise SystemExit("no process of a task")


@contextmanager
def _throwaway(folder: Path) -> Iterator[None]:
    """Run a Slurm of two nodes on this machine, whose commands the block calls."""
    folder.chmod(0o755)
    with ExitStack() as stack:
        free = [stack.enter_context(socket.socket()) for _ in range(3)]
        for each in free:
            each.bind(("localhost", 0))
        ports = [each.getsockname()[1] for each in free]
    for name in ("munge", "state", "spool-n1", "spool-n2"):
        (folder / name).mkdir(mode=0o711)
    key = folder / "munge/key"
    key.touch(mode=0o400)
    key.write_bytes(secrets.token_bytes(128))
    text = CONFIGURATION.format(folder=folder, ports=ports, host=socket.gethostname())
    (folder / "slurm.conf").write_text(text)
    os.environ["SLURM_CONF"] = str(folder / "slurm.conf")

    files = {"key-file": "key", "socket": "socket", "pid-file": "pid", "log-file": "log"}
    munged = ["munged", "--foreground", "--force", f"--seed-file={folder}/munge/seed"]
    munged += [f"--{option}={folder}/munge/{file}" for option, file in files.items()]
    nodes = [["slurmd", "-D", "-N", name] for name in ("n1", "n2")]
    daemons: list[subprocess.Popen[bytes]] = []
    try:
        with (folder / "daemons.log").open("wb") as log:
            for command in (munged, ["slurmctld", "-D"], *nodes):
                daemons.append(subprocess.Popen(command, stdout=log, stderr=log))
                time.sleep(2)
        end = time.monotonic() + 60
        while _slurm("sinfo", "--noheader", "--format=%D %t").strip() != "2 idle":
            if time.monotonic() > end:
                raise SystemExit((folder / "daemons.log").read_text())
            time.sleep(1)
        yield
    finally:
        for daemon in reversed(daemons):
            daemon.terminate()
            daemon.wait()


def main() -> None:
    """Run every case and print a line for each."""
    cases = ("clean", "cancelled", "task", "stopped", "killed", "refused", "never")
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("text", metavar="TEXT")
    parser.add_argument("--part", type=int, default=1_000_000)
    parser.add_argument("--only", nargs="+", choices=cases, default=cases)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as name:
        folder, all_right = Path(name), True
        with _throwaway(folder):
            print(_slurm("sinfo", "--version").strip())
            (folder / "results").mkdir()
            cleanings = Cleanings(folder / "results", options.text, options.part)
            print(f"{'case':11}{'status':>7}{'left':>6}  {'result':8}said", flush=True)
            for case in options.only:
                print(getattr(cleanings, case)(), flush=True)
                all_right = all_right and cleanings.is_right
    raise SystemExit(not all_right)


if __name__ == "__main__":
    main()
