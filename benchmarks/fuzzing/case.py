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

SECONDS = 60  # time limit of a command
BYTES = 3 << 30  # limit of a command's data, besides that of the warmed process
FILE_BYTES = 256 << 20  # limit of a file that a command writes
LATE = 124  # status of a command that exceeded its time limit
LONGEST = 1_500  # maximum characters of an error message
INDUCTOR = "torchinductor_"  # an empty folder that importing torch._dynamo makes


@dataclass(frozen=True)
class Ran:
    """What a command that was run returned and printed."""

    status: int
    out: str
    err: str

    @property
    def refusal(self) -> str:
        """The last line of its error stream."""
        return (self.err.strip().splitlines() or [""])[-1]


@dataclass(frozen=True)
class Command:
    """A command line and how it is run.

    Attributes:
        words: the arguments of `foreword`.
        needs: whether to run it only if the first command succeeded.
        reads_back: whether it uses the output; at least one such command must succeed.
        is_process: whether it runs in a new process instead of a fork.
        refused: what its refusal says, a pattern; one for another reason is no case of it.
        interrupt: seconds after which the process gets SIGINT; None for never.
        kill: seconds after which its fork gets SIGKILL; None for never.
        beside: seconds after which the same command starts a second time; None for never.
        before: done to the files first.
        judge: names the outcome of the command, and of the one beside it; it is counted, and one
            that begins with "!" is a finding.
        about: what is counted together.
    """

    words: list[str]
    needs: bool = False
    reads_back: bool = False
    is_process: bool = False
    refused: str = ""
    interrupt: float | None = None
    kill: float | None = None
    beside: float | None = None
    before: Callable[[], object] = lambda: None
    judge: Callable[[list[Ran]], str] | None = None
    about: str = ""


@dataclass(frozen=True)
class Sandbox:
    """The folder and the random numbers of a case.

    Attributes:
        folder: the case's folder.
        fixtures: texts, shards and runs shared by all cases; never written to.
        rng: the case's random numbers.
    """

    folder: Path
    fixtures: Path
    rng: random.Random

    @property
    def out(self) -> str:
        """The path that commands may write to."""
        return str(self.folder / "out")

    def copy(self, name: str) -> Path:
        """Copy a fixture into the case's folder; return the copy."""
        source, target = self.fixtures / name, self.folder / Path(name).name
        if source.is_dir():
            shutil.copytree(source, target, symlinks=True)
        else:
            shutil.copyfile(source, target)
        return target

    def write(self, name: str, content: bytes | str) -> Path:
        """Write a file into the case's folder; return its path."""
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode("utf-8") if isinstance(content, str) else content)
        return path


@dataclass
class Result:
    """The result of a case.

    Attributes:
        commands: the commands that were run.
        statuses: the exit status of each.
        findings: violations, one line each, beginning with a signature.
        outcomes: what was judged, its outcome, and the refusal.
        last_error: the last line of the last command's error stream.
        seconds: time of the slowest command.
    """

    commands: list[list[str]] = field(default_factory=list)
    statuses: list[int] = field(default_factory=list)
    findings: list[str] = field(default_factory=list)
    outcomes: list[tuple[str, str, str]] = field(default_factory=list)
    last_error: str = ""
    seconds: float = 0.0

    @property
    def was_accepted(self) -> bool:
        """Whether the first command succeeded."""
        return self.statuses[:1] == [0]


Maker = Callable[[Sandbox], list[Command]]


def run_case(make: Maker, sandbox: Sandbox, *, shows: bool = False) -> Result:
    """Make a case, run it and return its result.

    Args:
        make: makes the commands and their files.
        sandbox: the case's folder and random numbers.
        shows: whether to show the commands' output.
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
        command.before()
        twin = None if command.beside is None else _start_twin(command, sandbox.folder)
        status, fault = _run(command, sandbox.folder, result, shows=shows)
        result.statuses.append(status)
        ran = [_check(command, status, fault, sandbox.folder / "tmp", result)]
        if twin is not None:
            status = os.waitstatus_to_exitcode(os.waitpid(twin, 0)[1])
            ran.append(_check(command, status, "", sandbox.folder / "twin", result))
        if command.judge is not None:
            outcome = command.judge(ran)
            if outcome.startswith("!"):
                result.findings.append(f"{command.about}: {outcome[1:]}")
            refusals = [one.refusal for one in ran if one.status == 2]
            result.outcomes.append((command.about, outcome[:50], "".join(refusals[:1])))
        if command.refused and not (status == 2 and re.search(command.refused, result.last_error)):
            result.findings.append(f"not refused by {command.refused!r}: {result.last_error}")
        if command.reads_back:
            read_back.append(status)
    if read_back and 0 not in read_back:
        result.findings.append(f"accepted, and then nothing reads it: {result.last_error}")
    result.findings += _written_elsewhere(sandbox.folder, before, result.commands)
    names = (path.name for path in (sandbox.folder / "tmp").iterdir())
    left = sorted(name for name in names if not name.startswith(INDUCTOR))
    if left and min(result.statuses) >= 0 and LATE not in result.statuses:
        result.findings.append(f"leaves behind in the temporary folder: {left[:3]}")
    return result


def snapshot(folder: Path) -> dict[str, tuple[int, int]]:
    """Return size and time of each file below a folder, by its path."""
    files = {}
    for path in folder.rglob("*"):
        if path.is_symlink() or not path.is_dir():
            state = path.lstat()
            files[str(path)] = (state.st_size, state.st_mtime_ns)
    return files


def _run(command: Command, folder: Path, result: Result, *, shows: bool) -> tuple[int, str]:
    """Run a command; return its status, and the traceback of an internal error."""
    begun = time.monotonic()
    with (folder / "tmp.out").open("wb") as out, (folder / "tmp.err").open("wb") as err:
        run = _in_process if command.is_process else _in_fork
        leader, status, fault = run(command, out.fileno(), err.fileno())
    seconds = time.monotonic() - begun
    result.seconds = max(result.seconds, seconds)
    left_behind = [f"leaves a process behind: {left}" for left in _end_session(leader)]
    result.findings += left_behind if command.kill is None else []
    if shows:
        sys.stdout.write(f"$ foreword {shown(command.words)}\n")
        for name in ("tmp.out", "tmp.err"):
            sys.stdout.write((folder / name).read_text(encoding="utf-8", errors="replace"))
        sys.stdout.write(f"-> {status}, {seconds:.1f} s\n{fault}\n")
        sys.stdout.flush()
    return status, fault


def _start_twin(command: Command, folder: Path) -> int:
    """Start a command a second time, in a fork; return the fork, whose status is the command's."""
    helper = os.fork()
    if not helper:
        time.sleep(command.beside or 0.0)
        with (folder / "twin.out").open("wb") as out, (folder / "twin.err").open("wb") as err:
            _, status, fault = _in_fork(command, out.fileno(), err.fileno())
            err.write(fault.encode())
        os._exit(status if status >= 0 else 1)
    return helper


def _in_process(command: Command, out: int, err: int) -> tuple[int, int, str]:
    """Run a command in a new process, interrupted if it says so.

    Returns:
        The process's id, its status, and "".
    """
    words = [sys.executable, "-P", "-m", "foreword", *command.words]
    encoded = [os.fsencode(word) for word in words]
    process = subprocess.Popen(
        encoded, stdin=subprocess.DEVNULL, stdout=out, stderr=err, start_new_session=True
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
    """Run a command in a fork of this process, which has imported all it needs.

    Returns:
        The fork's id, its status, and the traceback of an internal error.
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
    signal.setitimer(signal.ITIMER_REAL, SECONDS if command.kill is None else command.kill)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    was_ended = not signal.setitimer(signal.ITIMER_REAL, 0)[0] and status == -signal.SIGKILL
    was_ended = was_ended and command.kill is None
    os.set_blocking(reading, False)  # a process that the command left behind may hold the pipe
    with os.fdopen(reading, encoding="utf-8", errors="replace") as faults:
        fault = faults.read() or ""
    return child, (LATE if was_ended else status), fault


def _end_session(leader: int) -> list[str]:
    """Kill the processes left in a session; return their command lines."""
    command_lines = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            fields = (entry / "stat").read_text().rpartition(")")[2].split()
            name = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            if int(fields[3]) == leader and fields[0] != "Z":
                os.kill(int(entry.name), signal.SIGKILL)
                command_lines.append(name[:200])
        except OSError:  # it has ended
            continue
    return command_lines


def _call(words: list[str], report: Callable[[str], Any]) -> int:
    """Run a command line within this process; report the traceback of an internal error."""
    from foreword.cli import main

    fail: Callable[..., int] = main._fail

    def note(text: str, status: int, *, is_debug: bool) -> int:
        if status == 1:
            report(traceback.format_exc())
        return fail(text, status, is_debug=is_debug)

    main._fail = note
    return main.run(words)


def _limit() -> None:
    """Limit the resources of this process, to protect the machine."""
    held = int(re.findall(r"VmData:\s+(\d+)", Path("/proc/self/status").read_text())[0]) << 10
    resource.setrlimit(resource.RLIMIT_DATA, (held + BYTES, held + BYTES))
    resource.setrlimit(resource.RLIMIT_FSIZE, (FILE_BYTES, FILE_BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def _check(command: Command, status: int, fault: str, printed: Path, result: Result) -> Ran:
    """Add the violations of a command to the findings; return what it printed."""
    folder = printed.parent
    out, err = (
        printed.with_suffix(suffix).read_text(encoding="utf-8", errors="replace")
        for suffix in (".out", ".err")
    )
    add, lines = result.findings.append, [line for line in err.splitlines() if line.strip()]
    result.last_error = lines[-1] if lines else ""
    allowed = {0, 2} if command.interrupt is None else {0, 2, 130}
    if status == LATE:
        add(f"takes longer than {SECONDS} s")
    elif status == -signal.SIGINT and command.interrupt is not None and not lines:
        pass  # before Python itself listens
    elif status == -signal.SIGKILL and command.kill is not None:
        pass
    elif status < 0:
        add(f"ends by signal {-status}: {result.last_error}")
    elif status not in allowed:
        add(f"status {status}: {result.last_error}{_where(fault)}")
    elif "Traceback (most recent call last)" in err + out:
        add(f"a traceback on the screen: {result.last_error}")
    result.findings += [f"a warning on the screen: {x}" for x in lines if "Warning: " in x][:1]
    if status == 2 and "pieces are not done." not in err:  # of a comparison, which shows the others
        messages = [line for line in lines if line.startswith("foreword: ")]
        if len(messages) != 1 or lines[-1] != messages[0]:
            add(f"refused, but not in one last line: {lines[-2:]}")
        elif len(messages[0]) > LONGEST:
            add(f"refused in a line of {len(messages[0]):,} characters: {messages[0][:200]}")
    if status == 0 and "--json" in command.words and "--help" not in command.words:
        try:
            json.loads(out, parse_constant=_refuse)
        except ValueError as error:
            add(f"--json prints what is not JSON: {error}")
    if status == 0 and command.words[0] == "pretrain":
        for log in folder.glob("*/metrics.jsonl"):
            result.findings += _losses(log)
    return Ran(status, out, err)


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
    allowed = [str(folder / name) for name in ("out", "run", "tmp", "disk", "damaged")]
    allowed += [
        str(folder / f"{name}.{stream}") for name in ("tmp", "twin") for stream in ("out", "err")
    ]
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
