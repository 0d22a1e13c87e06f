"""How time and memory grow with the length of a row, for each kind of attention.

    python benchmarks/attention_length.py --out docs/results

Forward and backward of one layer's attention (4 heads of 64), and of a mini model (4 layers of
256), on one row without padding. Every point is the fastest of a few runs in a process of its own:
on the CPU in seconds of CPU time, which other work on the machine disturbs less than wall time,
with the peak memory of the process above that at its start (on CUDA: seconds of wall time, and the
peak of torch's allocator).

Printed are the slopes in the log-log plot over the upper half of the lengths: 1 grows with the
length, 2 with its square.
"""

from __future__ import annotations

import argparse
import csv
import multiprocessing
import resource
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch

from foreword.models.transformer import Transformer
from foreword.nn.attentions._contract import AttentionKind
from foreword.nn.attentions.bigbird import BigBird
from foreword.nn.attentions.dense import Dense
from foreword.nn.attentions.linformer import Linformer
from foreword.nn.attentions.window import Window
from foreword.nn.masks import FullMask
from foreword.nn.positions.rotary import Rotary
from foreword.types import Batch

HEADS, D_HEAD, LAYERS, VOCAB = 4, 64, 4, 1_000
KINDS = ("full", "full, dropout", "window", "bigbird", "linformer")
LABELS = {
    "full": "full (a kernel that holds no scores)",
    "full, dropout": "full with attention dropout (scores held)",
    "window": "window of 128",
    "bigbird": "BigBird, blocks of 64, 3 at random",
    "linformer": "Linformer, projected to 128",
}


@dataclass(frozen=True)
class Point:
    """A point of a curve.

    Attributes:
        measured_part: `attention` or `model`.
        kind: a kind of attention, of `KINDS`.
        length: tokens of the row.
        device: `cpu` or `cuda`.
    """

    measured_part: str
    kind: str
    length: int
    device: str


@dataclass(frozen=True)
class MeasuredPoint:
    """A point with its seconds and MiB."""

    point: Point
    seconds: float
    mib: float


def kind_of_attention(kind: str, length: int) -> AttentionKind:
    """Return the settings of a kind of attention."""
    if kind == "window":
        return Window(radius=64)
    if kind == "bigbird":
        return BigBird()
    return Linformer(length, 128) if kind == "linformer" else Dense()


def attention(point: Point) -> Callable[[], None]:
    """Return a function that runs one layer's attention, forward and backward."""
    length, device = point.length, torch.device(point.device)
    settings = kind_of_attention(point.kind, length)
    mechanism = settings.build(HEADS, D_HEAD, 1)[0].to(device)
    shape = (1, HEADS, length, D_HEAD)
    q, k, v = (torch.randn(shape, device=device).requires_grad_() for _ in range(3))
    dropout = 0.1 if point.kind == "full, dropout" else 0.0

    def run() -> None:
        flex = device.type == "cuda" and not dropout
        pattern = settings.prepare(FullMask(), None, (1, length, length), q, flex=flex)
        out = mechanism(q, k, v, pattern, D_HEAD**-0.5, dropout, None)
        torch.autograd.grad(out, (q, k, v), torch.ones_like(out))

    return run


def model(point: Point) -> Callable[[], None]:
    """Return a function that runs a model of mini size, forward and backward."""
    length, device = point.length, torch.device(point.device)
    settings = Transformer(
        d_model=HEADS * D_HEAD,
        layers=LAYERS,
        heads=HEADS,
        position=Rotary(),
        attention=kind_of_attention(point.kind, length),
        dropout=0.0,
        attention_dropout=0.1 if point.kind == "full, dropout" else 0.0,
    )
    backbone = settings.build(VOCAB).to(device)
    positions = torch.arange(length, device=device)[None]
    batch = Batch(positions % VOCAB, positions, FullMask())

    def run() -> None:
        backbone.zero_grad()
        backbone(batch).states.sum().backward()

    return run


def measure(point: Point) -> tuple[float, float]:
    """Return the seconds of the fastest run, and the MiB at the peak."""
    # What is loaded and cached once does not count: run a short row first.
    torch.manual_seed(1)
    on_cuda = point.device == "cuda"
    build = {"attention": attention, "model": model}[point.measured_part]
    build(replace(point, length=256))()
    if on_cuda:
        start = torch.cuda.memory_allocated() / 2**20
        torch.cuda.reset_peak_memory_stats()
    else:
        start = resident()
    clock = time.perf_counter if on_cuda else time.process_time
    run = build(point)
    seconds: list[float] = []
    # The first run on CUDA compiles; on the CPU it only warms up.
    while len(seconds) < 2 or (sum(seconds) < 1.0 and len(seconds) < 8):
        began = clock()
        run()
        if on_cuda:
            torch.cuda.synchronize()
        seconds.append(clock() - began)
        if seconds[-1] > 4.0 and not on_cuda:
            break
    if on_cuda:
        return min(seconds[1:]), torch.cuda.max_memory_allocated() / 2**20 - start
    return min(seconds), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024 - start


def resident() -> float:
    """Return the MiB that this process has in memory."""
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * resource.getpagesize() / 2**20


def slope(lengths: list[int], values: list[float]) -> float:
    """Return the slope of the line through the upper half of the points, both axes logarithmic."""
    half = len(lengths) // 2
    line = np.polyfit(np.log(lengths[half:]), np.log(values[half:]), 1)
    return float(line[0])


def of_kind(all_rows: list[MeasuredPoint], what: str, kind: str) -> list[MeasuredPoint]:
    """Return the points of one curve."""
    return [row for row in all_rows if (row.point.measured_part, row.point.kind) == (what, kind)]


def plot(rows: list[MeasuredPoint], out: Path) -> None:
    """Plot time and memory of the attention and of the model."""
    import matplotlib

    matplotlib.use("agg")
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(2, 2, figsize=(10, 7.4), sharex=True, layout="constrained")
    titles = {"attention": "one layer's attention", "model": "a mini model, 4 layers"}
    for column, (what, title) in enumerate(titles.items()):
        for kind in KINDS:
            curve = of_kind(rows, what, kind)
            lengths = [row.point.length for row in curve]
            for line, values in enumerate(([r.seconds for r in curve], [r.mib for r in curve])):
                name = f"{LABELS[kind]}: slope {slope(lengths, values):.2f}"
                axes[line, column].loglog(lengths, values, marker=".", label=name)
        axes[0, column].set_title(title, loc="left")
        axes[0, column].set_ylabel("seconds, forward and backward")
        axes[1, column].set_ylabel("MiB at the peak")
        for line in (0, 1):
            axes[line, column].grid(alpha=0.25)
            axes[line, column].legend(frameon=False, fontsize=7)
        axes[1, column].set_xlabel("tokens in the row")
        ticks = sorted({row.point.length for row in rows})
        axes[1, column].set_xticks(ticks, [f"{n:,}" for n in ticks], fontsize=8)
        axes[1, column].minorticks_off()
    figure.savefig(out, dpi=150)


def measure_in_process(point: Point, threads: int) -> MeasuredPoint:
    """Measure a point, on the CPU in a process of its own."""
    if point.device == "cuda":
        return MeasuredPoint(point, *measure(point))
    # torch computes nothing in this process, so forking it is safe
    with multiprocessing.get_context("fork").Pool(1, torch.set_num_threads, (threads,)) as pool:
        return MeasuredPoint(point, *pool.apply(measure, (point,)))


def main() -> None:
    """Measure, print and plot."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("docs/results"))
    parser.add_argument("--longest", type=int, help="default: 16,384; 65,536 on CUDA")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument(
        "--patience",
        type=float,
        default=60.0,
        help="a curve ends before a run of this many seconds",
    )
    arguments = parser.parse_args()
    # Measure each curve up to the longest row that takes a bearable time.
    device = "cuda" if torch.cuda.is_available() else "cpu"
    longest = arguments.longest or (65_536 if device == "cuda" else 16_384)
    lengths = [n for n in (512 << power for power in range(8)) if n <= longest]
    rows: list[MeasuredPoint] = []
    for what in ("attention", "model"):
        for kind in KINDS:
            for length in lengths:
                rows.append(
                    measure_in_process(Point(what, kind, length, device), arguments.threads)
                )
                seconds, mib = rows[-1].seconds, rows[-1].mib
                print(
                    f"{what:10} {kind:14} {length:>7,} {seconds:9.4f} s {mib:9.1f} MiB", flush=True
                )
                if 4 * seconds > arguments.patience:
                    break
    for what in ("attention", "model"):
        for kind in KINDS:
            curve = of_kind(rows, what, kind)
            lengths = [row.point.length for row in curve]
            of_time = slope(lengths, [row.seconds for row in curve])
            of_memory = slope(lengths, [row.mib for row in curve])
            print(f"slope {what:10} {kind:14} time {of_time:5.2f} memory {of_memory:5.2f}")
    # Write the table and the plot.
    arguments.out.mkdir(parents=True, exist_ok=True)
    with (arguments.out / "attention_length.csv").open("w", newline="", encoding="utf-8") as file:
        table = csv.writer(file)
        table.writerow(["what", "kind", "length", "seconds", "mib"])
        for row in rows:
            point = row.point
            table.writerow(
                [
                    point.measured_part,
                    point.kind,
                    point.length,
                    f"{row.seconds:.5f}",
                    f"{row.mib:.1f}",
                ]
            )
    plot(rows, arguments.out / "attention_length.png")


if __name__ == "__main__":
    main()
