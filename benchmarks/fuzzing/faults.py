"""Faults of the machine: damaged results, full and read-only disks, two writers, and kills.

Each case runs a command without its fault too, and compares. Disks need the right to mount.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from fuzzing import fixtures
from fuzzing.arguments import lines
from fuzzing.case import Command, Ran, Sandbox

DISK = 48 << 20  # bytes of a disk
# What may differ from run to run; all else a command prints must be equal.
VARYING = re.compile(
    r"second|time|date|speed|per_|elapsed|command|memory|rate_now|wall|created|rss"
)
SOLID = {".safetensors", ".bin", ".idx", ".zst", ".arpa", ".npy", ".conll"}  # compared by bytes
# Words of a loser's refusal, when two write at once or the result is there.
READERS = {"check", "tokenizer show", "tokenizer trace", "fill", "generate", "score", "neighbours"}
READERS |= {"show", "translate", "compare", "probe words"}  # write no files, or are refused
TAKEN = re.compile(r"another process|already|not empty|is done|was removed while|resume")

Reader = Callable[[Sandbox, str, str], list[str]]


def _labelled(sandbox: Sandbox) -> list[str]:
    return [
        word for n in ("train", "dev") for word in (f"--{n}", str(sandbox.fixtures / f"{n}.tsv"))
    ]


def _tuned(*words: str) -> Reader:
    """A verb that reads a tuned model."""
    return lambda box, path, out: [
        word.format(run=path, tuned=f"{path}/tuned/fixture") for word in words
    ]


# What is damaged: the fixture, the files below it that may be, and the verbs that read it. A verb
# writes to the last of its arguments, if at all.
TARGETS: dict[str, tuple[str, str, dict[str, Reader]]] = {
    "tuned": (
        "bert",
        "tuned/fixture/**/*",
        {
            "predict": lambda box, path, out: [
                *("predict", f"{path}/tuned/fixture", str(box.fixtures / "dev.tsv"), "--json")
            ],
            "evaluate-tuned": _tuned("evaluate-tuned", "{tuned}", "--json"),
            "drift": _tuned("drift", "{tuned}", "{run}/tuned/other", "--examples", "4", "--json"),
            "report": _tuned("report", "{run}", "--json"),
            "tune again": lambda box, path, out: [
                *("tune", path, *_labelled(box), *fixtures.ONCE, "--name", "fixture", "--json")
            ],
            "tune on": lambda box, path, out: [
                *("tune", f"{path}/tuned/fixture", *_labelled(box), *fixtures.ONCE),
                *("--json", "--out", out),
            ],
            "export": lambda box, path, out: [
                *("export", f"{path}/tuned/fixture", "--format", "hf", "--json", "--out", out)
            ],
        },
    ),
    "scores": (
        "bert",
        "evaluations/*",
        {
            "report": _tuned("report", "{run}", "--json"),
            "tune again": lambda box, path, out: [
                *("tune", path, *_labelled(box), *fixtures.ONCE, "--name", "fixture", "--json")
            ],
        },
    ),
    "suite": (
        "suite",
        "**/*",
        {
            "tune again": lambda box, path, out: [
                *fixtures.suite(box.fixtures, _run(box), Path(path)),
                "--json",
            ],
            "predict": lambda box, path, out: [
                *("predict", f"{path}/One"),
                *(str(box.fixtures / "dev.tsv"), "--json"),
            ],
        },
    ),
    "cleaned": (
        "cleaned",
        "**/*",
        {
            "clean": lambda box, path, out: [*fixtures.clean(box.fixtures, Path(path)), "--json"],
            "prepare": lambda box, path, out: [
                *("prepare", f"{path}/texts", "--vocab", "400", "--json", "--out", out)
            ],
        },
    ),
    "comparison": (
        "comparison",
        "**/*",
        {
            "compare": lambda box, path, out: [
                *fixtures.compare(box.fixtures, Path(path)),
                "--json",
            ],
            "report": lambda box, path, out: ["report", path, "--json"],
        },
    ),
    "sharded": (
        "sharded",
        "**/*",
        {
            "resume": lambda box, path, out: ["resume", path, "--json"],
            "score": lambda box, path, out: ["score", path, "ba be", "--json"],
            "evaluate": lambda box, path, out: ["evaluate", path, "--json"],
            "export": lambda box, path, out: [
                *("export", path, "--format", "hf", "--json", "--out", out)
            ],
        },
    ),
    "export": (
        "hf",
        "**/*",
        {
            "import": lambda box, path, out: [
                *("import", path, "--format", "hf", "--json", "--out", out)
            ]
        },
    ),
    "arpa": (
        "counts.arpa",
        "",
        {
            "import": lambda box, path, out: [
                *("import", path, "--format", "arpa", "--json", "--out", out)
            ]
        },
    ),
}
WAYS = ("flipped", "cut", "emptied", "removed")


def damage(sandbox: Sandbox) -> list[Command]:
    """Flip a bit of a file of a result, cut, empty or remove it; read it before and after."""
    rng, target = sandbox.rng, sandbox.folder / "damaged"
    name = rng.choice(list(TARGETS))
    fixture, pattern, readers = TARGETS[name]
    verb, way = rng.choice(list(readers)), rng.choice(WAYS)
    source = sandbox.fixtures / fixture
    files = sorted(source.glob(pattern)) if pattern else [source]
    files = [file for file in files if file.is_file() and file.stat().st_size]
    file = rng.choice([one for one in files if one.name != ".lock"])
    damaged = target / file.relative_to(source) if pattern else target
    place, bit = rng.random(), 1 << rng.randrange(8)
    seen: list[Any] = []

    def restore(*, and_damage: bool = False) -> None:
        for old in (sandbox.folder / "out", sandbox.folder / "run", target):
            shutil.rmtree(old, ignore_errors=True) if old.is_dir() else old.unlink(missing_ok=True)
        (shutil.copytree if source.is_dir() else shutil.copyfile)(source, target)
        if name == "suite":
            _run(sandbox)
        if and_damage:
            _damage(damaged, way, place, bit)

    def judge(ran: list[Ran]) -> str:
        (one,) = ran
        result = (one.status, _comparable(one.out), _content(sandbox.folder / "out"))
        if not seen:
            seen.append((result, one.err))
            return "" if one.status == 0 else f"!the control is refused: {one.refusal}"
        expected, said = seen[0]
        names = (str(damaged), str(damaged.parent), str(target), damaged.name)
        new = [line for line in one.err.splitlines() if line not in said.splitlines()]
        is_named = any(part in line for line in new for part in names)
        if one.status == 2:
            return "found" if is_named else f"!refused without the file's name: {one.refusal}"
        if result == expected:
            return "harmless" if not is_named else "harmless, and said"
        if is_named or (verb == "report" and _is_left_out(target, damaged)):
            return "said"
        return f"!{way} {damaged.relative_to(sandbox.folder)}: another result in silence"

    words = readers[verb](sandbox, str(target), sandbox.out)
    restore()
    about = f"{name}: {verb}"
    return [
        Command(words, before=restore, judge=judge, about=f"{about} (control)"),
        Command(words, before=partial(restore, and_damage=True), judge=judge, about=about),
    ]


def _is_left_out(folder: Path, file: Path) -> bool:
    """Whether a report says that a file cannot be read, or has nothing of one that is gone."""
    page = (folder / "report.html").read_text(encoding="utf-8")
    is_said = re.search(rf"(not (be )?read|damaged|checksum)[^<]*{re.escape(file.name)}", page)
    is_said = is_said or re.search(rf"{re.escape(file.name)}[^<]*(not |damaged)", page)
    return bool(is_said) or not file.exists()


def _run(sandbox: Sandbox) -> Path:
    """The run that a suite's results are of, a copy."""
    run = sandbox.folder / "run"
    if not run.exists():
        sandbox.copy("bert").rename(run)
    return run


def _damage(file: Path, way: str, place: float, bit: int) -> None:
    """Damage a file in one way."""
    if way == "removed":
        file.unlink()
        return
    data = bytearray(file.read_bytes())
    at = int(place * len(data))
    data[at] ^= bit
    file.write_bytes(data if way == "flipped" else data[: at if way == "cut" else 0])


def _comparable(printed: str) -> Any:
    """What was printed, without what varies from run to run."""

    def steady(value: Any) -> Any:
        if isinstance(value, dict):
            return {k: steady(v) for k, v in value.items() if not VARYING.search(str(k))}
        return [steady(one) for one in value] if isinstance(value, list) else value

    try:
        return steady(json.loads(printed))
    except ValueError:
        return printed


def _content(*folders: Path) -> dict[str, str]:
    """The files below folders by name, those without times in them with a hash."""
    files = {}
    for folder in folders:
        for file in folder.rglob("*") if folder.is_dir() else [folder][: folder.exists()]:
            if file.is_file() and file.name != ".lock":
                is_solid = file.suffix in SOLID or file.name == "tokenizer.json"
                digest = hashlib.md5(file.read_bytes()).hexdigest() if is_solid else ""
                files[str(file.relative_to(folder.parent))] = digest
    return files


def disk(sandbox: Sandbox) -> list[Command]:
    """Give a command a disk that is full soon, or read-only; then repair the disk, and again."""
    place, rng = sandbox.folder / "disk", sandbox.rng
    place.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={DISK}", "none", place], check=True)
    known = lines(Sandbox(place, sandbox.fixtures, rng), "bert")
    verb = rng.choice([name for name in known if name not in READERS])
    is_full = rng.random() < 0.7
    words, filler = known[verb](), place / "filler"
    free = int(2 ** rng.uniform(0, 22))
    before: set[str] = set()

    def spoil() -> None:
        if is_full:
            stat = os.statvfs(place)
            with filler.open("wb") as file:
                os.posix_fallocate(file.fileno(), 0, max(1, stat.f_bavail * stat.f_bsize - free))
        else:
            subprocess.run(["mount", "-o", "remount,ro", place], check=True)
        before.update(_content(place))

    def repair() -> None:
        subprocess.run(["mount", "-o", "remount,rw", place], check=True)
        filler.unlink(missing_ok=True)

    def judge_fault(ran: list[Ran]) -> str:
        (one,) = ran
        parts = [name for name in _content(place).keys() - before if ".part" in name]
        if parts:
            return f"!leaves {parts[0]}"
        if one.status == 0:
            return "not reached"
        reason = "No space left" if is_full else "Read-only file system"
        if one.status == 2 and reason in one.err:
            return "refused"
        return f"void: {one.refusal}" if one.status == 2 else f"!status {one.status}"

    def judge_again(ran: list[Ran]) -> str:
        (one,) = ran
        is_there = one.status == 2 and TAKEN.search(one.refusal)
        return "" if one.status == 0 or is_there else f"!refused once repaired: {one.refusal}"

    about = f"{'full' if is_full else 'read-only'}: {verb}"
    return [
        Command(words, before=spoil, judge=judge_fault, about=about),
        Command(words, before=repair, judge=judge_again, about=f"{about} (repaired)"),
    ]


def unmount(folder: Path) -> None:
    """Take away the disk of a case, if it has one."""
    if (folder / "disk").is_mount():
        subprocess.run(["umount", "-l", folder / "disk"], check=True)


def twice(sandbox: Sandbox) -> list[Command]:
    """Start a command twice at once: each does its work, or says that the other does it."""
    begun = sandbox.rng.choice((0.0, 0.0, 0.1, 0.3, 1.0))

    def judge(ran: list[Ran]) -> str:
        statuses = sorted(one.status for one in ran)
        if statuses == [0, 0]:
            return "both"
        lines = [one.refusal for one in ran if one.status == 2]
        if statuses != [0, 2]:
            return f"!statuses {statuses}: {lines}"
        return "one" if TAKEN.search(lines[0]) else f"!the loser says: {lines[0]}"

    return _compared(sandbox, "twice", lambda words: [(Command(words, beside=begun), judge)])


def killed(sandbox: Sandbox) -> list[Command]:
    """Kill a command at some moment; the same command, or resume, ends it."""
    after = sandbox.rng.uniform(0.02, 2.5)

    def judge_killed(ran: list[Ran]) -> str:
        return "killed" if ran[0].status < 0 else "was done"

    def judge_again(ran: list[Ran]) -> str:
        (one,) = ran
        is_there = one.status == 2 and TAKEN.search(one.refusal)
        return "again" if one.status == 0 else "is there" if is_there else f"!{one.refusal}"

    def commands(words: list[str]) -> list[tuple[Command, Callable[[list[Ran]], str]]]:
        again = [(Command(words), judge_again)]
        return [(Command(words, kill=after), judge_killed), *again]

    return _compared(sandbox, "killed", commands)


def _compared(
    sandbox: Sandbox,
    what: str,
    make: Callable[[list[str]], list[tuple[Command, Callable[[list[Ran]], str]]]],
) -> list[Command]:
    """A verb's command alone, and then commands with a fault that must leave the same files."""
    places = [sandbox.folder / name for name in ("out", "out.jsonl", "run")]
    known = lines(sandbox, "bert")
    verb = sandbox.rng.choice([name for name in known if name not in READERS])
    words = known[verb]()
    family = sandbox.folder / "untouched"
    if places[-1].exists():
        shutil.copytree(places[-1], family, symlinks=True)
    alone: dict[str, str] = {}

    def reset() -> None:
        alone.update(_content(*places))
        for place in places:
            shutil.rmtree(place) if place.is_dir() else place.unlink(missing_ok=True)
        if family.exists():
            shutil.copytree(family, places[-1], symlinks=True)

    def compared(judge: Callable[[list[Ran]], str], ran: list[Ran]) -> str:
        outcome, now = judge(ran), _content(*places)
        odd = sorted(n for n in alone.keys() | now.keys() if alone.get(n) != now.get(n))
        return (
            outcome if outcome.startswith("!") or not odd else f"!{outcome}, but {odd[:4]} differ"
        )

    made = make(words)
    commands = [Command(words)]
    for n, (command, judge) in enumerate(made):
        is_last = n == len(made) - 1
        commands.append(
            Command(
                command.words,
                kill=command.kill,
                beside=command.beside,
                before=reset if n == 0 else lambda: None,
                judge=partial(compared, judge) if is_last else judge,
                about=f"{verb}{' (again)' * (n > 0)}",
            )
        )
    return commands
