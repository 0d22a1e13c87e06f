"""What layers that do not compare all pairs cost, and what they forget, beside full attention.

    python benchmarks/mixers.py step          time and memory of a training step, by length of row
    python benchmarks/mixers.py generate      time of a token and size of the cache, by its length
    python benchmarks/mixers.py recall        recall of a key by distance, trained at equal FLOPs

step: forward and backward of one layer of 256 (4 heads of 64, no feed-forward layer) on one row,
each point the median of a few turns in a process of its own, as `attention_length.py` measures.
generate: one token more of a model of 4 layers behind a cache of random numbers.
recall: two of three positions of a row of 48 hold a key and its value, one of 8; the others name a
key that came before, and the model says its value. Two layers of 64; the hybrid's second is full.
With --length 4096 or more, 64 pairs and 128 queries are planted among tokens that say nothing, and
the rows grow from 256 to that length in training; on a GPU if there is one.

On the CPU in seconds of CPU time, by one thread. Ratios are to full attention in the same run.
"""

from __future__ import annotations

import argparse
import multiprocessing
import resource
import statistics
import time
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise

import torch
from attention_length import resident
from torch import Tensor, nn
from torch.nn import functional as F

from foreword.models.transformer import Transformer
from foreword.nn.attentions.bigbird import BigBird
from foreword.nn.attentions.dense import Dense
from foreword.nn.attentions.gated_deltanet import GatedDeltaNet
from foreword.nn.attentions.linformer import Linformer
from foreword.nn.attentions.window import Window
from foreword.nn.cache import GrowingCache, LayerCache, LayerState
from foreword.nn.init import initialise
from foreword.nn.masks import CausalMask, FullMask, Mask
from foreword.nn.model import Model
from foreword.nn.positions.rotary import Rotary
from foreword.train import flops
from foreword.types import Batch, Loss

KINDS = ("full", "window", "bigbird", "linformer", "gated_deltanet", "hybrid")
LENGTHS = (1_024, 4_096, 16_384, 65_536)
ENCODERS = ("bigbird", "linformer")  # read from both sides here; Linformer cannot do otherwise
LENGTH, ASKED, VALUES, ROWS, LR = 48, 0.33, 8, 64, 1e-2  # of recall
PAIRS, QUERIES, TOKENS = 64, 128, 16_384  # planted in a long row; tokens of its batch
GROWN = (256, 1_024, 4_096)  # lengths by which rows grow in training
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"  # of recall


def model_of(kind: str, length: int, *, small: bool = False, layers: int = 1) -> Transformer:
    """Return the settings of a model with a kind of layer; small ones are those of recall."""
    short = length <= LENGTH
    attention = {
        "window": Window(radius=8 if short else 64),
        "bigbird": BigBird(block=4 if short else 64, random=1 if short else 3),
        "linformer": Linformer(length, 16 if short else 128),
        "gated_deltanet": (
            delta := GatedDeltaNet(d_key=16 if small else None, chunk=16 if short else 64)
        ),
        "hybrid": delta,
    }.get(kind, Dense())
    return Transformer(
        d_model=64 if small else 256,
        layers=layers,
        heads=2 if small else 4,
        d_ff=128,
        feedforward=small,
        segments=max(LENGTH, PAIRS + 1) if small else 0,
        position=Rotary(),
        attention=attention,
        dense_every=layers if kind == "hybrid" else 0,
        first_dense=layers - 1 if kind == "hybrid" else 0,
        dropout=0.0,
        attention_dropout=0.0,
        assumes_causal_mask=kind not in ENCODERS,
        init="gpt2",
        init_std=0.2 if small else 0.02,
    )


def mask_of(kind: str) -> Mask:
    """Return the mask of a row of one text."""
    return FullMask() if kind in ENCODERS else CausalMask()


def step(kind: str, length: int) -> tuple[float, float]:
    """Return the seconds of a step of one layer, and the MiB at its peak."""

    def build(length: int) -> Callable[[], None]:
        backbone = model_of(kind, length).build(1_000)
        positions = torch.arange(length)[None]
        batch = Batch(positions % 1_000, positions, mask_of(kind))

        def run() -> None:
            backbone.zero_grad()
            backbone(batch).states.sum().backward()

        return run

    build(256)()
    start, run = resident(), build(length)
    seconds: list[float] = []
    while len(seconds) < 3 or (sum(seconds) < 1.0 and len(seconds) < 9):
        began = time.process_time()
        run()
        seconds.append(time.process_time() - began)
        if sum(seconds) > 6.0:
            break
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return statistics.median(seconds), peak - start


@torch.no_grad()
def generate(kind: str, length: int) -> tuple[float, float]:
    """Return the seconds of a token behind a cache of a length, and the MiB of the cache."""
    settings = model_of(kind, length, layers=4)
    backbone = settings.build(1_000).eval()
    token = torch.zeros(1, 1, dtype=torch.int64)
    cache: list[LayerCache] = backbone(Batch(token, token, CausalMask())).cache
    for n, layer in enumerate(cache):
        if not isinstance(layer, LayerState):
            keys, values = torch.randn(2, 1, 4, length, 64)
            cache[n] = (keys, values), None
    tensors = [
        part for one in cache for part in (one.parts if isinstance(one, LayerState) else one[0])
    ]
    mib = sum(part.nbytes for part in tensors) / 2**20
    growing = GrowingCache([cache]) if settings.cache_width else None
    seconds = []
    for n in range(21):
        batch = Batch(token, token + length + n, CausalMask(length + n))
        began = time.process_time()
        hidden = backbone(batch, growing or cache)
        if growing is None:
            cache = hidden.cache
        else:
            growing.accept(torch.ones(1, dtype=torch.int64).numpy())
        seconds.append(time.process_time() - began)
    return statistics.median(seconds[1:]), mib


def rows(random: torch.Generator, kind: str) -> tuple[Batch, Tensor, Tensor]:
    """Return rows of pairs and queries, the values asked for, and their distances.

    Answers and distances are (rows, LENGTH); distances are 0 at pairs.
    """
    shape = (ROWS, LENGTH)
    is_pair = torch.rand(shape, generator=random) > ASKED
    is_pair[:, 0] = True
    keys = torch.rand(shape, generator=random).argsort(1)
    values = torch.randint(0, VALUES, shape, generator=random)
    # Each query is of an earlier pair, any as likely.
    chance = torch.rand(ROWS, LENGTH, LENGTH, generator=random)
    earlier = is_pair[:, None] & torch.ones(LENGTH, LENGTH, dtype=torch.bool).tril(-1)
    at = chance.masked_fill(~earlier, -1.0).argmax(-1)
    distances = torch.where(is_pair, 0, torch.arange(LENGTH) - at)
    ids = torch.where(is_pair, values, VALUES)
    segments = torch.where(is_pair, keys, keys.gather(1, at))
    positions = torch.arange(LENGTH).expand(ROWS, -1)
    return Batch(ids, positions, mask_of(kind), segments=segments), values.gather(1, at), distances


def planted(random: torch.Generator, kind: str, length: int) -> tuple[Batch, Tensor, Tensor]:
    """Return long rows with a few pairs and queries, as `rows`; distances are 0 but at queries."""
    shape = (TOKENS // length, length)
    order = torch.rand(shape, generator=random).argsort(1)
    pairs, queries = order[:, :PAIRS].sort(1).values, order[:, PAIRS : PAIRS + QUERIES]
    values = torch.randint(0, VALUES, pairs.shape, generator=random)
    keys = torch.rand(pairs.shape, generator=random).argsort(1)
    # Each query is of an earlier pair, any as likely; one before all pairs says nothing.
    earlier = (pairs[:, None] < queries[..., None]).sum(-1)
    which = (torch.rand(queries.shape, generator=random) * earlier).long()
    distances = torch.where(earlier > 0, queries - pairs.gather(1, which), 0)
    ids = torch.full(shape, VALUES + 1)
    ids.scatter_(1, pairs, values).scatter_(1, queries, VALUES)
    segments = torch.full(shape, PAIRS)
    segments.scatter_(1, pairs, keys).scatter_(1, queries, keys.gather(1, which))
    at = torch.zeros(shape, dtype=torch.int64)
    answers = at.scatter(1, queries, values.gather(1, which))
    positions = torch.arange(length).expand(shape)
    batch = Batch(ids, positions, mask_of(kind), segments=segments)
    return batch, answers, at.scatter(1, queries, distances)


def drawn(random: torch.Generator, kind: str, length: int) -> tuple[Batch, Tensor, Tensor]:
    """Return rows of a length, on the device."""
    batch, *others = rows(random, kind) if length == LENGTH else planted(random, kind, length)
    answers, distances = (other.to(DEVICE) for other in others)
    return batch.to(torch.device(DEVICE)), answers, distances


def bands(length: int) -> list[tuple[int, int]]:
    """Return distances from a query back to its key, from and to."""
    ends = [4, 8, 16, 32, 47] if length == LENGTH else [length // n for n in (64, 16, 4, 2, 1)]
    return [(low + 1, high) for low, high in pairwise([0, *ends])]


def recall(kind: str, length: int, budget: float) -> tuple[list[float], int]:
    """Return the share of values that are right in each band of distances, and the steps."""
    random = torch.Generator().manual_seed(1)
    settings = model_of(kind, length, small=True, layers=2)
    head = nn.Linear(64, VALUES)
    model = Model(settings.build(VALUES + 2), nn.ModuleDict({"value": head}))
    initialise(model, 1)
    model.to(DEVICE)

    def loss_of(batch: Batch, answers: Tensor, distances: Tensor) -> Tensor:
        is_query = distances > 0
        return F.cross_entropy(head(model.backbone(batch).states[is_query]), answers[is_query])

    def flops_of(batch: Batch, *others: Tensor) -> float:
        loss = Loss(loss_of(batch, *others), torch.tensor(1.0), {})
        return flops.count(model, batch, lambda _: replace(loss, total=loss_of(batch, *others)))

    # Long rows are learned by growing ones, each length with an equal part of the FLOPs.
    grown = [n for n in GROWN if n < length] if length > LENGTH else []
    steps: list[int] = []
    for n in [*grown, length]:
        steps += round(budget / (len(grown) + 1) / flops_of(*drawn(random, kind, n))) * [n]
    optimizer = torch.optim.AdamW(model.parameters(), lr=LR, betas=(0.9, 0.98), weight_decay=0.01)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, LR, len(steps) + 1, pct_start=0.1)
    for n in steps:
        optimizer.zero_grad()
        torch.autograd.backward(loss_of(*drawn(random, kind, n)))
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
    # Rows that are new: shares of right values by distance.
    right: list[list[float]] = [[] for _ in bands(length)]
    with torch.no_grad():
        for _ in range(16):
            batch, answers, distances = drawn(random, kind, length)
            best = head(model.backbone(batch).states).argmax(-1) == answers
            for shares, (low, high) in zip(right, bands(length), strict=True):
                shares += best[(distances >= low) & (distances <= high)].float().tolist()
    return [sum(shares) / max(1, len(shares)) for shares in right], len(steps)


def in_process(function: Callable[..., tuple[float, float]], *given: object) -> tuple[float, float]:
    """Return what a function measures in a process of its own, by one thread."""
    with multiprocessing.get_context("fork").Pool(1, torch.set_num_threads, (1,)) as pool:
        return pool.apply(function, given)


def by_length(function: Callable[..., tuple[float, float]], kinds: list[str], most: int) -> None:
    """Measure and print, beside full attention; what takes too long is left out."""
    last: dict[str, float] = {}
    for length in (n for n in LENGTHS if n <= most):
        full = 1.0
        for kind in kinds:
            if kind == "full" and last.get(kind, 0.0) > 3.0:
                last[kind] = full = 16 * last[kind]  # four times the length, squared
                print(
                    f"{length:>7,} {kind:15} {1e3 * full:10.1f} ms  not run: 16 times", flush=True
                )
                continue
            seconds, mib = in_process(function, kind, length)
            full = seconds if kind == "full" else full
            last[kind] = seconds
            ratio = seconds / full
            print(
                f"{length:>7,} {kind:15} {1e3 * seconds:10.1f} ms  {ratio:6.2f} of full"
                f"  {mib:8.1f} MiB",
                flush=True,
            )


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("part", choices=["step", "generate", "recall"])
    parser.add_argument("--kinds", default=",".join(KINDS))
    parser.add_argument("--longest", type=int, default=LENGTHS[-1])
    parser.add_argument("--flops", type=float, default=5e11, help="of each training of recall")
    parser.add_argument("--length", type=int, default=LENGTH, help="of the rows of recall")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    kinds = arguments.kinds.split(",")
    if arguments.part == "step":
        by_length(step, [kind for kind in kinds if kind != "hybrid"], arguments.longest)
    elif arguments.part == "generate":
        by_length(generate, [kind for kind in kinds if kind not in ENCODERS], arguments.longest)
    else:
        names = (f"{low:>6}-{high:<5}" for low, high in bands(arguments.length))
        print(f"distance {'':12} " + "".join(names))
        for kind in kinds:
            shares, steps = recall(kind, arguments.length, arguments.flops)
            line = "".join(f"{100 * share:11.0f}%" for share in shares)
            print(f"{kind:15} {steps:>5,} {line}", flush=True)


if __name__ == "__main__":
    main()
