"""A case: commands to run in a folder of its own, and what must hold after each of them."""

from __future__ import annotations

import json
import math
import os
import random
import re
import resource
import shutil
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any

SECONDS = 60  # a command may take
BYTES = 3 << 30  # of data that a command may hold beside what the warmed process holds
FILE_BYTES = 256 << 20  # that a command may write into one file
LATE = 124  # the status that stands for a command that took too long
LONGEST = 1_500  # characters of the one line that a refusal is


@dataclass(frozen=True)
class Command:
    """A command line and how it is run.

    Attributes:
        words: after `foreword`.
        needs: run only if the first command was accepted.
        reads_back: one of several ways to use what was made; one at least must be accepted.
        is_process: a process of its own, in the place of a forked one.
        interrupt: seconds after which the process gets SIGINT; None for never.
    """

    words: list[str]
    needs: bool = False
    reads_back: bool = False
    is_process: bool = False
    interrupt: float | None = None


@dataclass(frozen=True)
class Sandbox:
    """Where a case is made.

    Attributes:
        folder: its own.
        fixtures: what was made for all cases: texts, shards, runs; never written to.
        draw: its random numbers.
    """

    folder: Path
    fixtures: Path
    draw: random.Random

    @property
    def out(self) -> str:
        """What it may write."""
        return str(self.folder / "out")

    def copy(self, name: str) -> Path:
        """A copy of a fixture in the case's own folder."""
        source, target = self.fixtures / name, self.folder / Path(name).name
        if source.is_dir():
            shutil.copytree(source, target, symlinks=True)
        else:
            shutil.copyfile(source, target)
        return target

    def write(self, name: str, content: bytes | str) -> Path:
        """A file in the case's own folder."""
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode("utf-8") if isinstance(content, str) else content)
        return path


@dataclass
class Result:
    """What came of a case.

    Attributes:
        commands: those that were run.
        statuses: of each.
        findings: what should not have been, one line each, with its signature in front.
        said: the end of the last command's error stream.
        seconds: that the slowest command took.
    """

    commands: list[list[str]] = field(default_factory=list)
    statuses: list[int] = field(default_factory=list)
    findings: list[str] = field(default_factory=list)
    said: str = ""
    seconds: float = 0.0

    @property
    def was_accepted(self) -> bool:
        """Whether the first command did what it was asked."""
        return self.statuses[:1] == [0]


Maker = Callable[[Sandbox], list[Command]]


def run_case(make: Maker, sandbox: Sandbox, *, shows: bool = False) -> Result:
    """Makes a case and runs it; returns what came of it.

    Args:
        make: makes the commands, and their files.
        sandbox: of the case.
        shows: whether what commands print is shown.
    """
    for name in ("home", "tmp"):
        (sandbox.folder / name).mkdir(parents=True, exist_ok=True)
    result = Result()
    commands = make(sandbox)
    os.chdir(sandbox.folder)
    os.environ |= {"TMPDIR": str(sandbox.folder / "tmp"), "OMP_NUM_THREADS": "1"}
    before = snapshot(sandbox.folder)
    read_back: list[int] = []
    for command in commands:
        if command.needs and not result.was_accepted:
            continue
        result.commands.append(command.words)
        status, fault = _run(command, sandbox.folder, result, shows=shows)
        result.statuses.append(status)
        _check(command, status, fault, sandbox.folder, result)
        if command.reads_back:
            read_back.append(status)
    if read_back and 0 not in read_back:
        result.findings.append(f"accepted, and then nothing reads it: {result.said}")
    result.findings += _written_elsewhere(sandbox.folder, before, result.commands)
    left = sorted(path.name for path in (sandbox.folder / "tmp").iterdir())
    if left and min(result.statuses) >= 0 and LATE not in result.statuses:
        result.findings.append(f"leaves behind in the temporary folder: {left[:3]}")
    return result


def snapshot(folder: Path) -> dict[str, tuple[int, int]]:
    """Size and time of each file below a folder, by its path."""
    found = {}
    for path in folder.rglob("*"):
        if path.is_symlink() or not path.is_dir():
            state = path.lstat()
            found[str(path)] = (state.st_size, state.st_mtime_ns)
    return found


def _run(command: Command, folder: Path, result: Result, *, shows: bool) -> tuple[int, str]:
    """Runs one command; returns its status, and where an internal error arose."""
    begun = time.monotonic()
    with (folder / "tmp.out").open("wb") as out, (folder / "tmp.err").open("wb") as err:
        run = _in_process if command.is_process else _in_fork
        leader, status, fault = run(command, out.fileno(), err.fileno())
    seconds = time.monotonic() - begun
    result.seconds = max(result.seconds, seconds)
    result.findings += [f"leaves a process behind: {left}" for left in _end_session(leader)]
    if shows:
        sys.stdout.write(f"$ foreword {shown(command.words)}\n")
        for name in ("tmp.out", "tmp.err"):
            sys.stdout.write((folder / name).read_text(encoding="utf-8", errors="replace"))
        sys.stdout.write(f"-> {status}, {seconds:.1f} s\n{fault}\n")
        sys.stdout.flush()
    return status, fault


def _in_process(command: Command, out: int, err: int) -> tuple[int, int, str]:
    """The command as a person starts it; interrupted where that is asked for.

    Returns:
        The process's id, its status, and nothing.
    """
    words = [sys.executable, "-P", "-m", "foreword", *command.words]
    encoded = [os.fsencode(word) for word in words]
    nothing = subprocess.DEVNULL
    process = subprocess.Popen(
        encoded, stdin=nothing, stdout=out, stderr=err, start_new_session=True
    )
    try:
        if command.interrupt is not None:
            time.sleep(command.interrupt)
            process.send_signal(signal.SIGINT)
        return process.pid, process.wait(SECONDS), ""
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
        return process.pid, LATE, ""


def _in_fork(command: Command, out: int, err: int) -> tuple[int, int, str]:
    """The command in a fork of this process, which has imported all that it needs.

    Returns:
        The fork's id, its status, and where an internal error arose.
    """
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        status = 1
        with os.fdopen(writing, "w", encoding="utf-8", errors="replace") as faults:
            try:
                os.setsid()
                for number, file in enumerate((os.open(os.devnull, os.O_RDONLY), out, err)):
                    os.dup2(file, number)
                _limit()
                status = _call(command.words, faults.write)
                sys.stdout.flush()
                sys.stderr.flush()
            except BaseException:
                faults.write(traceback.format_exc())
        os._exit(status)
    os.close(writing)

    def end(number: int, frame: FrameType | None) -> None:
        os.kill(child, signal.SIGKILL)

    signal.signal(signal.SIGALRM, end)
    signal.alarm(SECONDS)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    was_ended = signal.alarm(0) == 0 and status == -signal.SIGKILL
    os.set_blocking(reading, False)  # a process that the command left behind may hold the pipe
    with os.fdopen(reading, encoding="utf-8", errors="replace") as said:
        fault = said.read() or ""
    return child, (LATE if was_ended else status), fault


def _end_session(leader: int) -> list[str]:
    """Ends what a process left behind of its session; returns their command lines."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            fields = (entry / "stat").read_text().rpartition(")")[2].split()
            name = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            if int(fields[3]) == leader and fields[0] != "Z":
                os.kill(int(entry.name), signal.SIGKILL)
                found.append(name[:200])
        except OSError:  # it has ended
            continue
    return found


def _call(words: list[str], tell: Callable[[str], Any]) -> int:
    """Runs a command line within this process; tells where an internal error arose."""
    from foreword.cli import main

    fail: Callable[..., int] = main._fail

    def note(text: str, status: int, *, is_debug: bool) -> int:
        if status == 1:
            tell(traceback.format_exc())
        return fail(text, status, is_debug=is_debug)

    main._fail = note
    return main.run(words)


def _limit() -> None:
    """Limits what this process may take, so that one case cannot take the machine down."""
    held = int(re.findall(r"VmData:\s+(\d+)", Path("/proc/self/status").read_text())[0]) << 10
    resource.setrlimit(resource.RLIMIT_DATA, (held + BYTES, held + BYTES))
    resource.setrlimit(resource.RLIMIT_FSIZE, (FILE_BYTES, FILE_BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def _check(command: Command, status: int, fault: str, folder: Path, result: Result) -> None:
    """Adds what should not have been after a command."""
    out, err = (
        (folder / name).read_text(encoding="utf-8", errors="replace")
        for name in ("tmp.out", "tmp.err")
    )
    add, lines = result.findings.append, [line for line in err.splitlines() if line.strip()]
    result.said = lines[-1] if lines else ""
    allowed = {0, 2} if command.interrupt is None else {0, 2, 130}
    if status == LATE:
        add(f"takes longer than {SECONDS} s")
    elif status == -signal.SIGINT and command.interrupt is not None and not lines:
        pass  # before Python itself listens
    elif status < 0:
        add(f"ends by signal {-status}: {result.said}")
    elif status not in allowed:
        add(f"status {status}: {result.said}{_where(fault)}")
    elif "Traceback (most recent call last)" in err + out:
        add(f"a traceback on the screen: {result.said}")
    if "Warning: " in err:
        add(f"a warning on the screen: {next(x for x in lines if 'Warning: ' in x)}")
    if status == 2:
        said = [line for line in lines if line.startswith("foreword: ")]
        if len(said) != 1 or lines[-1] != said[0]:
            add(f"refused, but not in one last line: {lines[-2:]}")
        elif len(said[0]) > LONGEST:
            add(f"refused in a line of {len(said[0]):,} characters: {said[0][:200]}")
    if status == 0 and "--json" in command.words and "--help" not in command.words:
        try:
            json.loads(out, parse_constant=_refuse)
        except ValueError as error:
            add(f"--json prints what is not JSON: {error}")
    if status == 0 and command.words[0] == "pretrain":
        for log in folder.glob("*/metrics.jsonl"):
            result.findings += _losses(log)


def _refuse(name: str) -> None:
    raise ValueError(f"{name} is not a JSON number")


def _where(fault: str) -> str:
    """The last line of Foreword's own in a traceback."""
    found = re.findall(r'File ".*?(foreword/.*?)", line (\d+), in (\S+)', fault)
    return " at {}:{} {}".format(*found[-1]) if found else ""


def _losses(log: Path) -> list[str]:
    """Losses of an accepted run that are not finite."""
    for line in log.read_text(encoding="utf-8").splitlines():
        record = json.loads(line)
        loss = record.get("loss", 0.0)
        if loss is None or not math.isfinite(loss):
            return [f"accepted, and trains to a loss of {loss}"]
        if record.get("skipped", 0) and record.get("skipped") >= record.get("step", 1):
            return ["accepted, and every step is skipped"]
    return []


def _written_elsewhere(
    folder: Path, before: dict[str, tuple[int, int]], commands: list[list[str]]
) -> list[str]:
    """Files that were made, changed or lost outside what the commands may write."""
    allowed = [str(folder / name) for name in ("out", "run", "tmp", "tmp.out", "tmp.err")]
    for words in commands:
        for n, word in enumerate(words):
            if word == "--out" and n + 1 < len(words):
                allowed.append(os.path.abspath(words[n + 1]))  # noqa: PTH100  of bytes too
            elif word.startswith("--out="):
                allowed.append(os.path.abspath(word[6:]))  # noqa: PTH100
    after = snapshot(folder)
    odd = {path for path in before.keys() | after.keys() if before.get(path) != after.get(path)}
    odd = {p for p in odd if not any(p == a or p.startswith(f"{a}{os.sep}") for a in allowed)}
    return [f"touches {Path(path).relative_to(folder)}, outside --out" for path in sorted(odd)[:3]]


def shown(words: list[str]) -> str:
    """A command line to be read and typed again."""
    import shlex

    return shlex.join(word.encode("utf-8", "backslashreplace").decode() for word in words)
