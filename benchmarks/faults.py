"""What a fault in one process does to all, and whether the run that goes on is the same run.

    python benchmarks/faults.py [--processes 2] [--steps 400] [--only killed damaged ...]

A tiny decoder is pretrained in shards (`fsdp`) without a fault. Then, each time from the start, in
the middle of the run:

- killed: a process is killed (SIGKILL); `foreword resume` goes on;
- restarted: a process is killed under `torchrun --max-restarts 1`, which goes on by itself;
- late: `torchrun --nnodes 2`, and the second machine joins twenty seconds after the first;
- damaged: a process is killed, and then its file in the newest checkpoint is cut short;
- full: a process may write no file of more than 64 kB from then on, as on a full disk; `foreword
  resume` goes on;
- sockets: nothing is done to it, and no process may listen at an address that other machines reach;
  nor may those of a Ray cluster of this machine.

Printed are the seconds from the fault until all processes have ended, the line that names it,
and whether the last weights are those of the run without a fault, byte for byte. The exit status is
1 if some are not. It reads /proc, so it runs on Linux.
"""

from __future__ import annotations

import argparse
import os
import resource
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from launched_processes import open_to_others, process_of
from parallel import write_text

from foreword.process.cluster import connected
from foreword.train import checkpoint

LATE = 20  # seconds after which the second machine joins
PATIENCE = 600  # seconds after which a run is taken to hang


class Runs:
    """Runs of one recipe on the same text, in a folder.

    Args:
        folder: the folder.
        processes: number of processes of each.
        steps: of each.
    """

    def __init__(self, folder: Path, processes: int, steps: int) -> None:
        self._folder, self._processes, self._steps = folder, processes, steps
        write_text(folder / "text")
        self._bytes = self._weights(self._finished(self._started("plain"), "plain"))

    def killed(self) -> str:
        """Kill a process, and resume."""
        return self._interrupted("killed", signal.SIGKILL)

    def damaged(self) -> str:
        """Kill a process, cut its file of the newest checkpoint short, and resume."""

        def cut(run: Path) -> None:
            newest = max(checkpoint.all_in(run))
            file = newest / f"weights-{self._processes}-of-{self._processes}.safetensors"
            os.truncate(file, file.stat().st_size // 2)

        return self._interrupted("damaged", signal.SIGKILL, cut, "the one before it is used")

    def full(self) -> str:
        """Let a process write no large file any more, and resume."""

        def fill(process: int) -> None:
            resource.prlimit(process, resource.RLIMIT_FSIZE, (1 << 16, 1 << 16))

        return self._interrupted("full", fill, expected="cannot be written")

    def sockets(self) -> str:
        """Look for addresses that other machines reach."""
        launcher = self._started("sockets")
        self._in_the_middle("sockets")
        found = open_to_others(launcher.pid)
        run = self._finished(launcher, "sockets")
        with connected("local"):
            found += open_to_others(os.getpid())
        if found:
            raise SystemExit(f"sockets: other machines reach {', '.join(found)}")
        return self._line("sockets", 0.0, "no other machine can connect, nor to Ray", run)

    def restarted(self) -> str:
        """Kill a process; torchrun starts all again."""
        launcher = self._started("restarted", ["--max-restarts", "1"])
        self._in_the_middle("restarted")
        os.kill(process_of(self._processes - 1, launcher.pid), signal.SIGKILL)
        run = self._finished(launcher, "restarted")
        return self._line("restarted", 0.0, self._output("restarted"), run)

    def late(self) -> str:
        """Let one of two machines join late, with half of the processes."""
        with socket.socket() as free:
            free.bind(("localhost", 0))
            port = free.getsockname()[1]
        meeting = ["--nnodes", "2", "--rdzv-backend", "c10d", "--rdzv-id", "late"]
        meeting += ["--rdzv-endpoint", f"localhost:{port}"]
        first = self._started("late", meeting, self._processes // 2)
        time.sleep(LATE)
        second = self._started("late", meeting, self._processes // 2)
        run = self._finished(first, "late")
        second.wait(PATIENCE)
        return self._line("late", 0.0, self._output("late"), run)

    def _interrupted(
        self,
        name: str,
        fault: signal.Signals | Callable[[int], None],
        then: Callable[[Path], None] = lambda run: None,
        expected: str = "",
    ) -> str:
        """Do a fault to the last process in the middle of a run, and resume when all ended.

        Args:
            name: of the case.
            fault: the signal, or what is done to the process instead.
            then: what is done to the run before it is resumed.
            expected: what the resumed run must say; that line is shown.
        """
        launcher = self._started(name)
        run = self._in_the_middle(name)
        process = process_of(self._processes - 1, launcher.pid)
        fault(process) if callable(fault) else os.kill(process, fault)
        began = time.monotonic()
        launcher.wait(PATIENCE)
        seconds = time.monotonic() - began
        said = self._output(name)
        then(run)
        words = ["resume", str(run), "--processes", str(self._processes), "--quiet"]
        self._finished(self._command(["-m", "foreword", *words], name), name)
        if expected and not (said := self._output(name, expected)):
            raise SystemExit(f"{name}: the resumed run does not say that {expected}")
        return self._line(name, seconds, said, run)

    def _started(
        self, name: str, meeting: list[str] | None = None, processes: int = 0
    ) -> subprocess.Popen[bytes]:
        """Start a run; by `--processes`, or with options of torchrun by that."""
        run = ["pretrain", "gpt2_tiny", "--data", str(self._folder / "text"), "--quiet"]
        run += ["--out", str(self._folder / name), "--steps", str(self._steps)]
        settings = ["parallel.kind=fsdp", "train.checkpoints=20", "train.precision=fp32"]
        run += [word for setting in settings for word in ("--set", setting)]
        count = str(processes or self._processes)
        if meeting is None:
            return self._command(["-m", "foreword", *run, "--processes", count], name)
        torchrun = ["-m", "torch.distributed.run", "--nproc-per-node", count, *meeting]
        return self._command([*torchrun, "-m", "foreword", *run], name)

    def _command(self, words: list[str], name: str) -> subprocess.Popen[bytes]:
        environment = {**os.environ, "PYTHONPATH": str(Path(__file__).resolve().parents[1])}
        with (self._folder / f"{name}.log").open("ab") as output:
            return subprocess.Popen(
                [sys.executable, *words], stdout=output, stderr=output, env=environment
            )

    def _in_the_middle(self, name: str) -> Path:
        """Return the folder of a run that has written its fifth checkpoint."""
        run, end = self._folder / name, time.monotonic() + PATIENCE
        while not (run / "checkpoints").is_dir() or _last_step(run) < self._steps // 4:
            if time.monotonic() > end:
                raise SystemExit(f"{name}: no checkpoints; {self._output(name)}")
            time.sleep(0.05)
        return run

    def _finished(self, command: subprocess.Popen[bytes], name: str) -> Path:
        """Return the folder of a run that must end well."""
        if command.wait(PATIENCE):
            raise SystemExit(f"{name}: status {command.returncode}; {self._output(name)}")
        return self._folder / name

    def _output(self, name: str, part: str = "foreword: ") -> str:
        """Return the first printed line that has a part, "" if none has."""
        lines = (self._folder / f"{name}.log").read_text().splitlines()
        line = next((line for line in lines if part in line), "")
        return line.replace(f"{self._folder}/", "")

    def _weights(self, run: Path) -> list[bytes]:
        """Return the files of the last weights."""
        return [file.read_bytes() for file in sorted(max(checkpoint.all_in(run)).glob("weights*"))]

    def _line(self, name: str, seconds: float, said: str, run: Path) -> str:
        self.is_same = self._weights(run) == self._bytes
        same = "same" if self.is_same else "OTHER"
        time_taken = f"{seconds:.1f}" if seconds else "-"
        return f"{name:12}{time_taken:>8}  {same:8}{said}"


def _last_step(run: Path) -> int:
    saved = checkpoint.all_in(run)
    return int(max(saved).name.rpartition("-")[2]) if saved else 0


def main() -> None:
    """Run every case and print a line for each."""
    cases = ("killed", "damaged", "full", "restarted", "late", "sockets")
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--only", nargs="+", choices=cases, default=cases)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        runs, all_same = Runs(Path(name), options.processes, options.steps), True
        print(f"{'case':12}{'seconds':>8}  {'weights':8}said", flush=True)
        for case in options.only:
            print(getattr(runs, case)(), flush=True)
            all_same = all_same and runs.is_same
    raise SystemExit(not all_same)


if __name__ == "__main__":
    main()
