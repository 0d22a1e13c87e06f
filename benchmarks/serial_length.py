"""How the time of a step depends on the length of its rows: recurrence is serial, attention is not.

    python benchmarks/serial_length.py --out docs/results

Forward and backward of two layers of 256 on equally many tokens in each step, in few long rows or
many short ones. A recurrent layer takes one position after the other, each for all rows at once: in
longer rows there are more of these steps, and each does less. Attention takes all positions at
once, and compares all pairs of a row. Each point is the fastest of a few runs: on the CPU in
seconds of CPU time with one thread, which other work disturbs least, on CUDA of wall time.
"""

from __future__ import annotations

import argparse
import csv
import time
from collections.abc import Callable
from pathlib import Path

import torch

from foreword.models.gru import GRU
from foreword.models.lstm import LSTM
from foreword.models.rnn import RNN
from foreword.models.transformer import Transformer
from foreword.nn.masks import CausalMask
from foreword.nn.model import ModelSettings
from foreword.nn.positions.rotary import Rotary
from foreword.types import Batch

WIDTH, LAYERS, VOCAB, RUNS = 256, 2, 1_000, 5
MODELS: dict[str, ModelSettings] = {
    "RNN": RNN(d_model=WIDTH, layers=LAYERS, dropout=0.0, stateful=False),
    "GRU": GRU(d_model=WIDTH, layers=LAYERS, dropout=0.0, stateful=False),
    "LSTM": LSTM(d_model=WIDTH, layers=LAYERS, dropout=0.0, stateful=False),
    "attention": Transformer(
        d_model=WIDTH,
        layers=LAYERS,
        heads=4,
        dropout=0.0,
        attention_dropout=0.0,
        position=Rotary(),
        assumes_causal_mask=True,
    ),
}


def step(settings: ModelSettings, tokens: int, length: int, device: str) -> Callable[[], None]:
    """Return a function that runs a model forward and backward on rows of a length."""
    torch.manual_seed(1)
    backbone = settings.build(VOCAB).to(device)
    rows = tokens // length
    ids = torch.randint(0, VOCAB, (rows, length), device=device)
    positions = torch.arange(length, device=device).expand(rows, -1)
    batch = Batch(ids, positions, CausalMask())

    def run() -> None:
        backbone.zero_grad()
        backbone(batch).states.sum().backward()

    return run


def seconds(run: Callable[[], None], device: str) -> float:
    """Return the time of the fastest run; the first is not counted."""
    clock = time.perf_counter if device == "cuda" else time.process_time
    taken = []
    for _ in range(RUNS + 1):
        began = clock()
        run()
        if device == "cuda":
            torch.cuda.synchronize()
        taken.append(clock() - began)
    return min(taken[1:])


def main() -> None:
    """Measure, print, and write the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("docs/results"))
    parser.add_argument("--tokens", type=int, default=4_096, help="of each step")
    parser.add_argument("--shortest", type=int, default=16)
    arguments = parser.parse_args()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    torch.set_num_threads(1)
    lengths = []
    length = arguments.shortest
    while length <= arguments.tokens:
        lengths.append(length)
        length *= 2
    print(f"{device}, {arguments.tokens:,} tokens a step, milliseconds")
    print("length".ljust(10), *(f"{name:>10}" for name in MODELS))
    rows = []
    for length in lengths:
        times = [
            seconds(step(one, arguments.tokens, length, device), device) for one in MODELS.values()
        ]
        print(f"{length:<10,}", *(f"{1e3 * each:10.1f}" for each in times), flush=True)
        rows += [(name, length, each) for name, each in zip(MODELS, times, strict=True)]
    arguments.out.mkdir(parents=True, exist_ok=True)
    with (arguments.out / "serial_length.csv").open("w", newline="", encoding="utf-8") as file:
        table = csv.writer(file, lineterminator="\n")
        table.writerow(["model", "tokens", "length", "device", "seconds"])
        for name, length, each in rows:
            table.writerow([name, arguments.tokens, length, device, f"{each:.5f}"])


if __name__ == "__main__":
    main()
