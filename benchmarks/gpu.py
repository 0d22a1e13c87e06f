"""All GPU measurements in one command of a few minutes.

    python benchmarks/gpu.py [--out DIR] [--minutes 9] [--only PART...]

For a machine with torch and a GPU, from a copy of this repository that need not be installed: the
tests marked `gpu`, the speed of training, also next to a plain PyTorch loop and Hugging Face's
Trainer, two short trainings, and profiles. Each part runs in its own processes with a time limit,
so one that fails or hangs costs the others nothing; time that it leaves goes to later parts.
`results.json` and `results.md` are rewritten with every new figure, so a kill loses none. A part
whose packages are missing is skipped, and the page says so.

`--device cpu --size tiny --minutes 1` runs the same at a tiny size without a GPU.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gpu_page import page

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent

POLL_SECONDS = 0.2
LOG_CHARACTERS = 3000  # shown of the log of a failed part

# Small packages that a machine may lack, reduced to what Foreword uses of them.
STAND_INS = {
    "annotated_types": """
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Interval:
    gt: Any = None
    ge: Any = None
    lt: Any = None
    le: Any = None
"""
}


@dataclass(frozen=True)
class Part:
    """A part of the measurements: one process.

    Attributes:
        name: the function in `gpu_parts`, and after a colon its argument.
        share: its share of the time, plus what earlier parts leave.
        about: what it measures.
    """

    name: str
    share: float
    about: str


PARTS = (
    Part("machine", 25, "The machine, and how fast it multiplies"),
    Part("tests", 110, "The tests marked gpu"),
    Part("speed:bert_base", 50, "Steps of bert_base"),
    Part("speed:gpt2_small", 50, "Steps of gpt2_small"),
    Part("speed:t5_base", 45, "Steps of t5_base"),
    Part("others:masked", 45, "An encoder of base size next to others"),
    Part("others:causal", 45, "A decoder of base size next to others"),
    Part("learning:bert_mini", 50, "bert_mini on Python's own source texts"),
    Part("learning:gpt2_mini", 50, "gpt2_mini on Python's own source texts"),
    Part("profile:bert_base", 30, "Where a step of bert_base goes"),
    Part("profile:gpt2_small", 30, "Where a step of gpt2_small goes"),
    Part("host:bert_mini", 25, "What the host does in a step of bert_mini"),
    Part("host:gpt2_mini", 25, "What the host does in a step of gpt2_mini"),
    Part("parallel", 45, "Several GPUs: the same losses, and the speed"),
)


@dataclass
class Results:
    """The results so far, on disk at any moment.

    Attributes:
        out: the folder of the two files.
        parts: by name: the outcome, the seconds and the records of each part.
        about: facts about the whole.
    """

    out: Path
    parts: dict[str, dict[str, Any]] = field(default_factory=dict)
    about: dict[str, Any] = field(default_factory=dict)

    def write(self) -> None:
        """Write both files, each replaced when it is whole."""
        results = {**self.about, "parts": self.parts}
        for name, text in (
            ("results.json", json.dumps(results, indent=1) + "\n"),
            ("results.md", page(results)),
        ):
            part = self.out / f".{name}.part"
            part.write_text(text, encoding="utf-8")
            part.replace(self.out / name)


def run_part(command: list[str], records: Path, log: Path, limit: float, watch: Any) -> str:
    """Run one part to its end, or to its time limit.

    Args:
        command: the command, which writes a line of JSON to `records` for each result.
        records: the file of records.
        log: the file for what the command prints.
        limit: seconds.
        watch: called with the records so far when there are new ones.

    Returns:
        `done`, `failed (status ...)` or `out of time`.
    """
    records.touch()
    seen = -1
    with log.open("w", encoding="utf-8") as output:
        process = subprocess.Popen(
            command,
            stdout=output,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            env=_environment(records.parent),
            cwd=ROOT,
            start_new_session=True,  # so that it can be ended with all processes it started
        )
        end = time.monotonic() + limit
        try:
            while process.poll() is None and time.monotonic() < end:
                time.sleep(POLL_SECONDS)
                if (size := records.stat().st_size) != seen:
                    seen = size
                    watch(read_records(records))
            outcome = "done" if process.returncode == 0 else f"failed ({process.returncode})"
            return "out of time" if process.returncode is None else outcome
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()


def read_records(path: Path) -> list[dict[str, Any]]:
    """Return the complete lines of a file of records."""
    lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
    return [json.loads(line) for line in lines if line.endswith("\n")]


def _environment(work: Path) -> dict[str, str]:
    stand_ins = work / "stand_ins"
    for name, code in STAND_INS.items():
        if importlib.util.find_spec(name) is None:
            stand_ins.mkdir(exist_ok=True)
            (stand_ins / f"{name}.py").write_text(code, encoding="utf-8")
    paths = [str(ROOT), str(stand_ins), os.environ.get("PYTHONPATH", "")]
    os.environ.pop("PYTHONSAFEPATH", None)  # the parts import each other from their folder
    python = {"PYTHONPATH": os.pathsep.join(filter(None, paths)), "PYTHONUNBUFFERED": "1"}
    return {**os.environ, **python, "HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "true"}


def run_all(parts: list[Part], arguments: argparse.Namespace, results: Results) -> None:
    """Run the parts in turn, within the time limit."""
    end = time.monotonic() + 60 * arguments.minutes
    with tempfile.TemporaryDirectory(prefix="foreword-gpu-") as folder:
        for number, part in enumerate(parts):
            # Its share of the time that is left.
            left = end - time.monotonic()
            limit = left * part.share / sum(each.share for each in parts[number:])
            entry: dict[str, Any] = {"about": part.about, "outcome": "running", "records": []}
            results.parts[part.name] = entry
            if limit < 1:
                entry["outcome"] = "no time left"
                continue
            # Run it, with its records in the results as they come.
            stem = part.name.replace(":", "-")
            records, log = Path(folder) / f"{stem}.jsonl", Path(folder) / f"{stem}.log"
            command = [sys.executable, str(HERE / "gpu_parts.py"), part.name, str(records)]
            command += [arguments.device, arguments.size, f"{limit:.0f}"]

            def watch(new: list[dict[str, Any]], entry: dict[str, Any] = entry) -> None:
                entry["records"] = new
                results.write()

            began = time.monotonic()
            entry["outcome"] = run_part(command, records, log, limit, watch)
            entry["seconds"] = round(time.monotonic() - began, 1)
            entry["records"] = read_records(records)
            if entry["outcome"] != "done":
                text = log.read_text(encoding="utf-8", errors="replace")
                entry["log"] = text[-LOG_CHARACTERS:]
            results.write()
            print(f"{part.name:<20} {entry['outcome']}, {entry['seconds']:.0f} s", flush=True)


def main(words: list[str] | None = None) -> Results:
    """Run all parts, and print the path of the results."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    out = os.environ.get("OUT", "gpu-results")
    parser.add_argument("--out", type=Path, default=Path(out), help="folder of the results")
    parser.add_argument("--minutes", type=float, default=9.0, help="for everything together")
    parser.add_argument("--device", default="cuda", choices=["cuda", "cpu"])
    parser.add_argument("--size", default="base", choices=["base", "tiny"])
    names = [part.name for part in PARTS]
    parser.add_argument("--only", nargs="*", default=names, choices=names, metavar="PART")
    arguments = parser.parse_args(words)
    arguments.out.mkdir(parents=True, exist_ok=True)
    results = Results(arguments.out)
    results.about = {"device": arguments.device, "size": arguments.size}
    run_all([part for part in PARTS if part.name in arguments.only], arguments, results)
    results.write()
    print(f"results: {arguments.out / 'results.md'}", flush=True)
    return results


if __name__ == "__main__":
    main()
