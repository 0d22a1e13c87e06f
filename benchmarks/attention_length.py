"""How time and memory grow with the length of a row, under each way to mix.

    python benchmarks/attention_length.py --out docs/results

Forward and backward of one layer's attention (4 heads of 64), and of a mini model (4 layers of
256), on one row without padding. Every point is the fastest of a few runs in a process of its own:
on the CPU in seconds of CPU time, which other work on the machine disturbs less than the clock's,
and its memory is the peak of the process above where it began (on CUDA: seconds by the clock, and
the peak of torch's allocator).

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
    """What is measured.

    Attributes:
        what: `attention` or `model`.
        kind: a way to mix.
        length: tokens of the row.
        device: `cpu` or `cuda`.
    """

    what: str
    kind: str
    length: int
    device: str


@dataclass(frozen=True)
class Measured:
    """A point, its seconds and its MiB."""

    point: Point
    seconds: float
    mib: float


def kind_of_attention(kind: str, length: int) -> AttentionKind:
    """The settings of a way to mix."""
    if kind == "window":
        return Window(radius=64)
    if kind == "bigbird":
        return BigBird()
    return Linformer(length, 128) if kind == "linformer" else Dense()


def attention(point: Point) -> Callable[[], None]:
    """One layer's attention, forward and backward."""
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
    """A model of mini size, forward and backward."""
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
    places = torch.arange(length, device=device)[None]
    batch = Batch(places % VOCAB, places, FullMask())

    def run() -> None:
        backbone.zero_grad()
        backbone(batch).states.sum().backward()

    return run


def measure(point: Point) -> tuple[float, float]:
    """Seconds of the fastest run, and MiB at the peak."""
    torch.manual_seed(1)
    on_cuda = point.device == "cuda"
    build = {"attention": attention, "model": model}[point.what]
    build(replace(point, length=256))()  # what is loaded and kept once is not the row's
    if on_cuda:
        start = torch.cuda.memory_allocated() / 2**20
        torch.cuda.reset_peak_memory_stats()
    else:
        pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
        start = pages * resource.getpagesize() / 2**20
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


def slope(lengths: list[int], values: list[float]) -> float:
    """Of the line through the upper half of the points, both axes logarithmic."""
    half = len(lengths) // 2
    line = np.polyfit(np.log(lengths[half:]), np.log(values[half:]), 1)
    return float(line[0])


def of_kind(all_rows: list[Measured], what: str, kind: str) -> list[Measured]:
    """The points of one curve."""
    return [row for row in all_rows if (row.point.what, row.point.kind) == (what, kind)]


def draw(rows: list[Measured], out: Path) -> None:
    """Time and memory, of the attention and of the model."""
    import matplotlib

    matplotlib.use("agg")
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(2, 2, figsize=(10, 7.4), sharex=True, layout="constrained")
    titles = {"attention": "one layer's attention", "model": "a mini model, 4 layers"}
    for column, (what, title) in enumerate(titles.items()):
        for kind in KINDS:
            found = of_kind(rows, what, kind)
            lengths = [row.point.length for row in found]
            for line, values in enumerate(([r.seconds for r in found], [r.mib for r in found])):
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


def measure_apart(point: Point, threads: int) -> Measured:
    """`measure`, on the CPU in a process of its own."""
    if point.device == "cuda":
        return Measured(point, *measure(point))
    # torch computes nothing in this process, so forking it is safe
    with multiprocessing.get_context("fork").Pool(1, torch.set_num_threads, (threads,)) as pool:
        return Measured(point, *pool.apply(measure, (point,)))


def main() -> None:
    """Measures, prints and draws."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("docs/results"))
    parser.add_argument("--longest", type=int, help="16,384 unless said, 65,536 on CUDA")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument(
        "--patience", type=float, default=60.0, help="a curve ends before a run of so many seconds"
    )
    arguments = parser.parse_args()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    longest = arguments.longest or (65_536 if device == "cuda" else 16_384)
    lengths = [n for n in (512 << power for power in range(8)) if n <= longest]
    rows: list[Measured] = []
    for what in ("attention", "model"):
        for kind in KINDS:
            for length in lengths:
                rows.append(measure_apart(Point(what, kind, length, device), arguments.threads))
                seconds, mib = rows[-1].seconds, rows[-1].mib
                print(
                    f"{what:10} {kind:14} {length:>7,} {seconds:9.4f} s {mib:9.1f} MiB", flush=True
                )
                if 4 * seconds > arguments.patience:
                    break
    for what in ("attention", "model"):
        for kind in KINDS:
            found = of_kind(rows, what, kind)
            of = [row.point.length for row in found]
            of_time, of_memory = (
                slope(of, values) for values in ([r.seconds for r in found], [r.mib for r in found])
            )
            print(f"slope {what:10} {kind:14} time {of_time:5.2f} memory {of_memory:5.2f}")
    arguments.out.mkdir(parents=True, exist_ok=True)
    with (arguments.out / "attention_length.csv").open("w", newline="", encoding="utf-8") as file:
        table = csv.writer(file)
        table.writerow(["what", "kind", "length", "seconds", "mib"])
        for row in rows:
            at = row.point
            table.writerow([at.what, at.kind, at.length, f"{row.seconds:.5f}", f"{row.mib:.1f}"])
    draw(rows, arguments.out / "attention_length.png")


if __name__ == "__main__":
    main()
