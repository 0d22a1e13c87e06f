"""Fuzzing of every verb with odd recipes, arguments, tables, texts, damaged folders and faults.

    python benchmarks/fuzz.py --seed 1 --minutes 5 [--jobs 2] [--kinds recipe,text] [--cases 200]
    python benchmarks/fuzz.py --seed 1 --case 17         that case alone, with all that it prints

A case is a function of the seed and its number. It runs in its own folder, forked from a process
that has imported everything, with limits on time, memory and files. Each command must end with exit
status 0 or 2 (130 if interrupted), without a traceback or an internal error, with one line
if it refuses its input, with JSON if that was requested, without touching a file outside --out, and
without leaving a process behind. An accepted recipe trains to a finite loss, and fill, generate,
score or neighbours reads the run. Exits with status 1 if any of this fails.

Cases of faults (damage, disk, twice, killed) run each command without its fault too; what happened
is counted, with the different refusals. Needs Linux (fork, /proc), and root to mount disks.
"""

from __future__ import annotations

import argparse
import collections
import gc
import importlib
import itertools
import multiprocessing
import os
import random
import re
import shutil
import sys
import tempfile
import time
import traceback
from collections.abc import Iterator
from dataclasses import dataclass, field
from multiprocessing.queues import SimpleQueue
from pathlib import Path

from fuzzing import arguments, faults, files, fixtures, folders, recipes, tables
from fuzzing.case import Maker, Result, Sandbox, run_case, shown, snapshot

KINDS: dict[str, tuple[Maker, int]] = {  # each with its weight among the cases
    "recipe": (recipes.changed, 20),
    "mutated recipe": (recipes.mutated, 24),
    "read recipe": (recipes.read, 12),
    "--set": (recipes.assigned, 10),
    "arguments": (arguments.arguments, 30),
    "text": (files.text, 24),
    "web archive": (files.archive, 12),
    "table": (files.table, 16),
    "malformed rows": (tables.malformed, 20),
    "folder": (folders.folder, 30),
    "interrupted": (arguments.interrupted, 1),
    "damage": (faults.damage, 8),
    "disk": (faults.disk, 8),
    "twice": (faults.twice, 8),
    "killed": (faults.killed, 8),
}

FAULTS = {"damage", "disk", "twice", "killed"}
WITHOUT_RUNS = {  # read no models
    *("recipe", "mutated recipe", "read recipe", "--set", "text", "web archive"),
}


@dataclass(frozen=True)
class FinishedCase:
    """A case that has run, and the seconds it took."""

    number: int
    kind: str
    result: Result
    seconds: float


@dataclass
class Tally:
    """Counts of the cases of one kind."""

    cases: int = 0
    accepted: int = 0
    commands: int = 0
    findings: int = 0
    seconds: float = 0.0
    slowest: float = 0.0
    slowest_case: int = -1
    outcomes: dict[str, collections.Counter[str]] = field(
        default_factory=lambda: collections.defaultdict(collections.Counter)
    )
    refusals: set[str] = field(default_factory=set)


@dataclass
class Finding:
    """A violated promise, and the cases that show it."""

    text: str
    command: str
    cases: list[int] = field(default_factory=list)


def kind_of(seed: int, number: int, kinds: list[str]) -> str:
    """Return the kind of a case."""
    weights = [KINDS[kind][1] for kind in kinds]
    return random.Random(f"{seed} {number} kind").choices(kinds, weights)[0]


def import_all(kinds: list[str]) -> None:
    """Import what commands need, without computing anything: threads do not survive a fork."""
    os.environ["OMP_NUM_THREADS"] = "1"
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    main = importlib.import_module("foreword.cli.main")  # sets what torch reads when imported
    importlib.import_module("torch").set_num_threads(1)
    main.assemble(None)
    package = Path(str(main.__file__)).parents[1]
    for file in sorted(package.rglob("*.py")):
        name = ".".join(file.relative_to(package.parent).with_suffix("").parts)
        if file.stem not in ("__main__", "through_gensim"):
            importlib.import_module(name.removesuffix(".__init__"))
    heavy = ("transformers", "matplotlib.pyplot", "sklearn.linear_model")
    for name in heavy if set(kinds) - WITHOUT_RUNS else ():
        try:
            importlib.import_module(name)
        except ImportError:
            continue
    gc.collect()
    gc.freeze()  # so that forks share what was imported


def make_fixtures(folder: Path, kinds: list[str]) -> None:
    """Make the files that cases of these kinds read, each command in a fork."""
    folder.mkdir(parents=True)
    fixtures.write_texts(folder)
    commands = fixtures.commands(folder) if set(kinds) - WITHOUT_RUNS else []
    commands += fixtures.more_commands(folder) if set(kinds) & FAULTS else []
    for words in commands:
        child = os.fork()
        if not child:
            from foreword.cli.main import run

            sys.argv = [str(Path(sys.executable).with_name("foreword")), *words]  # for --processes
            log = os.open(folder.parent / "fixtures.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
            os.dup2(log, 1)
            os.dup2(log, 2)
            status = run(words)
            sys.stdout.flush()
            os._exit(status)
        if os.waitpid(child, 0)[1]:
            output = (folder.parent / "fixtures.log").read_text(encoding="utf-8")
            sys.exit(f"fixture failed: {shown(words)}\n{output[-2_000:]}")


def run_one(options: argparse.Namespace, kinds: list[str], number: int, work: Path) -> FinishedCase:
    """Make and run a case; a failure of the fuzzer itself is a finding too."""
    kind, folder = kind_of(options.seed, number, kinds), work / f"case-{number}"
    made, began = options.fixtures, time.monotonic()
    before = snapshot(made)
    folder.mkdir(parents=True)
    sandbox = Sandbox(folder, made, random.Random(f"{options.seed} {number}"))
    try:
        result = run_case(KINDS[kind][0], sandbox, shows=options.case is not None)
    except Exception:
        lines = traceback.format_exc().strip().splitlines()
        result = Result(findings=[f"an error of the fuzzer: {lines[-1]}: {lines[-3].strip()}"])
    finally:
        faults.unmount(folder)
    if snapshot(made) != before:
        result.findings.append("touches a fixture (or the case beside it does)")
    os.chdir(work)
    if not options.keep and options.case is None:
        shutil.rmtree(folder, ignore_errors=True)
    return FinishedCase(number, kind, result, time.monotonic() - began)


def fuzz(options: argparse.Namespace, kinds: list[str], work: Path) -> Iterator[FinishedCase]:
    """Run cases in parallel until the time is over or there are `--cases` of them."""
    end = time.monotonic() + 60 * options.minutes
    context = multiprocessing.get_context("fork")
    queue: SimpleQueue[FinishedCase | None] = context.SimpleQueue()

    def work_on(first: int) -> None:
        for number in itertools.count(options.first + first, options.jobs):
            if 0 <= options.cases <= number - options.first or time.monotonic() > end:
                break
            queue.put(run_one(options, kinds, number, work))
        queue.put(None)

    workers = [context.Process(target=work_on, args=(n,)) for n in range(options.jobs)]
    for worker in workers:
        worker.start()
    left = len(workers)
    while left:
        done = queue.get()
        if done is None:
            left -= 1
        else:
            yield done
    for worker in workers:
        worker.join()


def signature(finding: str) -> str:
    """Return a finding without what differs from case to case."""
    plain = re.sub(r"/\S*|'[^']*'|\"[^\"]*\"|\[[^\]]*\]", "_", finding)
    return re.sub(r"[-+]?\d[\d,.e+]*", "0", plain)[:160]


def count(done: FinishedCase, tally: Tally, found: dict[str, Finding]) -> None:
    """Count a case, and print its findings."""
    result = done.result
    tally.cases += 1
    tally.commands += len(result.statuses)
    tally.accepted += result.was_accepted
    tally.findings += bool(result.findings)
    tally.refusals |= {signature(result.last_error)} - {""}
    for about, outcome, refusal in result.outcomes:
        tally.outcomes[about][outcome] += 1
        tally.refusals |= {signature(refusal)} - {""}
    tally.seconds += done.seconds
    if result.seconds > tally.slowest:
        tally.slowest, tally.slowest_case = result.seconds, done.number
    for finding in result.findings:
        command = shown(result.commands[-1]) if result.commands else ""
        one = found.setdefault(signature(finding), Finding(finding, command))
        one.cases.append(done.number)
        print(f"case {done.number} ({done.kind}): {finding[:300]}", file=sys.stderr, flush=True)


def replay(seed: int, number: int, kinds: str) -> str:
    """Return the command that runs a case again."""
    only = f" --kinds '{kinds}'" if kinds else ""
    return f"python benchmarks/fuzz.py --seed {seed}{only} --case {number}"


def show(tallies: dict[str, Tally], found: dict[str, Finding], options: argparse.Namespace) -> None:
    """Print the table and the findings."""
    names = ("cases", "commands", "accepted", "refusals", "findings", "mean", "slowest")
    print(f"{'kind':<16}" + "".join(f"{name:>10}" for name in names))
    for kind, tally in sorted(tallies.items()):
        counts = (tally.cases, tally.commands, tally.accepted, len(tally.refusals), tally.findings)
        seconds = (
            f"{tally.seconds / tally.cases:>9.2f}s{tally.slowest:>9.1f}s  case {tally.slowest_case}"
        )
        print(f"{kind:<16}" + "".join(f"{count:>10}" for count in counts) + seconds)
    for kind, tally in sorted(tallies.items()):
        for about, counted in sorted(tally.outcomes.items()):
            listed = ", ".join(f"{outcome} {count}" for outcome, count in counted.most_common())
            print(f"{kind:<10}{about:<30}{listed}")
        if tally.outcomes:
            print(
                f"{kind}: {len(tally.refusals)} different refusals",
                *sorted(tally.refusals),
                sep="\n  ",
            )
    for one in sorted(found.values(), key=lambda one: -len(one.cases)):
        print(f"\n{len(one.cases)} x {one.text}\n    foreword {one.command[:400]}")
        print(f"    {replay(options.seed, one.cases[0], options.kinds)}   cases {one.cases[:8]}")
    print(f"\n{sum(t.cases for t in tallies.values())} cases, {len(found)} different findings")


def main() -> None:
    """Fuzz, and report."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--minutes", type=float, default=5.0)
    parser.add_argument("--cases", type=int, default=-1, help="at most this many")
    parser.add_argument("--first", type=int, default=0, help="the first case's number")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--kinds", default="", help=", ".join(KINDS))
    parser.add_argument("--case", type=int, help="run this case alone and keep its folder")
    parser.add_argument("--keep", action="store_true", help="keep the cases' folders")
    parser.add_argument("--fixtures", type=Path, help="a folder for what cases read; kept if named")
    parser.add_argument("--work", type=Path, help="a folder; default: a temporary one")
    options = parser.parse_args()
    kinds = options.kinds.split(",") if options.kinds else list(KINDS)
    if unknown := [kind for kind in kinds if kind not in KINDS]:
        parser.error(f"--kinds {unknown[0]}: there is {', '.join(KINDS)}")
    if options.work:
        options.work.mkdir(parents=True, exist_ok=True)
    work = Path(tempfile.mkdtemp(prefix="fuzz-", dir=options.work)).resolve()
    os.environ |= {"HOME": str(work), "MPLCONFIGDIR": str(work / "matplotlib")}
    # Prepare what the cases share.
    import_all(kinds)
    options.fixtures = (options.fixtures or work / "fixtures").resolve()
    if not options.fixtures.is_dir():
        make_fixtures(options.fixtures, kinds)
    if options.case is not None:
        one = run_one(options, kinds, options.case, work)
        print(f"{one.kind}: {work / f'case-{one.number}'}", *one.result.findings, sep="\n")
        sys.exit(1 if one.result.findings else 0)
    # Run the cases, and report.
    tallies: dict[str, Tally] = collections.defaultdict(Tally)
    found: dict[str, Finding] = {}
    for done in fuzz(options, kinds, work):
        count(done, tallies[done.kind], found)
    if not options.keep:
        shutil.rmtree(work, ignore_errors=True)
    show(tallies, found, options)
    sys.exit(1 if found else 0)


if __name__ == "__main__":
    main()
