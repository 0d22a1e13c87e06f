"""The same run on one process and on several: differences of losses and gradients, and speed.

    python benchmarks/parallel.py [--processes 2] [--steps 50] [--kind ddp fsdp] [--device cpu]
                                  [--families bert gpt2 ...] [--set model.d_model=256]

Each family's tiny recipe is pretrained alone and, started by `torchrun`, in several processes, from
the same text, in float32 and with dropout. Shown are the greatest difference of an element of the
first step's gradient, relative to the largest of its tensor; the greatest difference of a step's
loss and of the last held-out loss, in nats; and tokens per second at the median step. On one CPU
several processes share the cores that one has to itself; `--set` makes models large enough to be
timed.
"""

from __future__ import annotations

import argparse
import os
import random
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from gradients import FirstGradient, gradient_difference

import foreword
from foreword.train import log

FAMILIES = ("bert", "roberta", "gpt2", "t5", "electra", "xlnet", "transformer_xl", "lstm", "albert")
GRADIENT = "gradient.safetensors"  # beside a run
BATCH = ("train.batch=8", "train.micro_batch=2", "train.threads=1", "train.precision=fp32")


def main() -> None:
    """Train every family and print a line for each."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("--kind", nargs="+", default=["ddp"])
    parser.add_argument("--device", default="auto")
    parser.add_argument("--families", nargs="+", default=FAMILIES)
    parser.add_argument("--set", action="append", default=[])
    parser.add_argument("--train", nargs=3, metavar=("FAMILY", "TEXT", "RUN"))
    options = parser.parse_args()
    if options.train:  # in each of the processes
        family, text, run = options.train
        pretrain(family, text, run, options.steps, options.set)
        return
    settings = [*BATCH, f"train.device={options.device}", *options.set]
    print(f"{'family':16}{'kind':8}{'gradient':>10}{'loss':>10}{'held out':>10}{'tokens/s':>18}")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_text(folder / "text")
        for family in options.families:
            alone = train(folder, family, options.steps, settings, 1)
            for kind in options.kind:
                given = [*settings, f"parallel.kind={kind}"]
                together = train(folder, family, options.steps, given, options.processes)
                print(line(family, kind, alone, together), flush=True)


def write_text(folder: Path) -> None:
    """Write made-up sentences, in which some words are frequent."""
    draws = random.Random(1)
    words = ["".join(draws.choices("abdegiklmnorstu", k=draws.randint(2, 7))) for _ in range(4000)]
    weights = [1 / (rank + 2) for rank in range(len(words))]
    folder.mkdir()
    for number in range(100):
        sentences = (draws.choices(words, weights, k=draws.randint(4, 12)) for _ in range(60))
        text = " ".join(" ".join(one).capitalize() + "." for one in sentences)
        (folder / f"{number}.txt").write_text(text + "\n", encoding="utf-8")


def pretrain(family: str, text: str, run: str, steps: int, settings: list[str]) -> None:
    """Pretrain in this process, which may be one of several."""
    hooks = [FirstGradient(Path(run).with_name(GRADIENT))]
    foreword.pretrain(
        f"{family}_tiny", text, run, steps=steps, settings=settings, hooks=hooks, progress=False
    )


def train(
    folder: Path, family: str, steps: int, settings: list[str], processes: int
) -> Path | None:
    """Return the folder of a new run; None if it failed, which is then said."""
    run = Path(tempfile.mkdtemp(dir=folder)) / "run"
    launcher = ["-m", "torch.distributed.run", "--nproc-per-node", str(processes)]
    command = [sys.executable, *(launcher if processes > 1 else []), __file__]
    command += ["--train", family, str(folder / "text"), str(run), "--steps", str(steps)]
    command += [word for setting in settings for word in ("--set", setting)]
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).resolve().parents[1])}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    if done.returncode:
        print(f"{family} on {processes}: {done.stderr.strip()[-500:]}", flush=True)
        return None
    return run


def line(family: str, kind: str, alone: Path | None, other: Path | None) -> str:
    """Return a line of the table from two runs."""
    if alone is None or other is None:
        return f"{family:16}{kind:8}    failed"
    logs = [log.read(run) for run in (alone, other)]

    def of(records: list[dict[str, Any]], record: str, field: str) -> dict[int, float]:
        return {one["step"]: one[field] for one in records if one["kind"] == record}

    def greatest(record: str) -> float:
        one, two = (of(records, record, "loss") for records in logs)
        return max((abs(one[step] - two[step]) for step in one.keys() & two.keys()), default=0.0)

    speeds = [
        round(statistics.median(of(records, "train", "tokens_per_second").values()))
        for records in logs
    ]
    gradient, _ = gradient_difference(*(run.with_name(GRADIENT) for run in (alone, other)))
    return (
        f"{family:16}{kind:8}{gradient:10.1e}{greatest('train'):10.1e}{greatest('heldout'):10.1e}"
        f"{f'{speeds[0]:,} {speeds[1]:,}':>18}"
    )


if __name__ == "__main__":
    main()
