"""What corpora of several sizes would take on several numbers of GPUs, stage by stage.

    python benchmarks/scale.py [--corpus 100GB 10TB 200TB] [--gpus 1 64 4096] [--gpu h100]

A simulation of arithmetic: every rate is an option, whose default was measured on one core of a
small machine or is a published figure (docs/scale.md). For each corpus the size of GPT-3 is trained
whose parameters are nearest to a 20th of the tokens (Hoffmann et al. 2022). Failures of training
are drawn at random, with a seed; beside them stands the expected time by Daly's formula.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from foreword.errors import UserError
from foreword.formatting import byte_size, duration, quantity
from foreword.planning.gpus import GPU, find_gpu
from foreword.planning.plan import Assumptions, Plan, plan
from foreword.runs.recipe import load_recipe
from foreword.runs.sizes import count_parameters

UNITS = {"GB": 1e9, "TB": 1e12, "PB": 1e15}
RECIPES = ("gpt3_125m", "gpt3_350m", "gpt3_1.3b", "gpt3_6.7b", "gpt3_13b", "gpt3_175b")
TOKENS_PER_PARAMETER = 20
HEADER = (
    "corpus | GPUs | model | tokens | clean | prepare | stored | divided | "
    "train: simulated (5 to 95 %) | formula | failures | checkpoint every | evaluate"
)


@dataclass(frozen=True)
class Rates:
    """What is assumed of each stage.

    Attributes:
        clean_mb_s: 10^6 bytes of text cleaned by a core in a second.
        prepare_mb_s: the same of tokenizing.
        kept: share of the text that cleaning keeps.
        bytes_per_token: of the kept text.
        shard_bytes: of a token in a shard.
        cores_per_gpu: cores that clean and prepare; at least 2.
        evaluations: of held-out text, rows as in the recipe.
    """

    clean_mb_s: float = 0.5
    prepare_mb_s: float = 1.7
    kept: float = 0.4
    bytes_per_token: float = 4.4
    shard_bytes: int = 2
    cores_per_gpu: int = 16
    evaluations: int = 100


@dataclass(frozen=True)
class Stages:
    """The stages of one corpus on one number of GPUs, in seconds and bytes.

    Attributes:
        recipe: trained.
        tokens: of the kept text, each read once.
        clean: seconds.
        prepare: seconds.
        stored: bytes of the corpus, the kept text, the shards and three checkpoints.
        plan: of the training.
        idle: GPUs beyond the rows of a step, which have nothing to train.
        trained: seconds of simulated trainings, with failures, (runs,).
        expected: the same by the formula.
        evaluate: seconds.
    """

    recipe: str
    tokens: float
    clean: float
    prepare: float
    stored: float
    plan: Plan
    idle: int
    trained: np.ndarray
    expected: float
    evaluate: float


def simulated_times(
    work: float,
    interval: float,
    save: float,
    restart: float,
    between: float,
    *,
    runs: int,
    seed: int,
    most_failures: int = 10_000_000,
) -> np.ndarray:
    """Return the seconds of simulated runs, (runs,); arguments as in `failures.expected_time`.

    Each failure's time is drawn; nothing of the formula is used. The last interval may be shorter.

    Raises:
        ValueError: more than `most_failures` in all runs: they would hardly get on.
    """
    rng = np.random.default_rng(seed)
    times = np.zeros(runs)
    failures = 0
    for run in range(runs):
        clock, done = 0.0, 0.0
        failure = rng.exponential(between)
        while done < work:
            piece = min(interval, work - done)
            if clock + piece + save <= failure:
                clock, done = clock + piece + save, done + piece
                continue
            # Lost: the work since the last checkpoint, then restarts until one succeeds.
            clock = failure
            failure = clock + rng.exponential(between)
            failures += 1
            while clock + restart > failure:
                clock = failure
                failure = clock + rng.exponential(between)
                failures += 1
            clock += restart
            if failures > most_failures:
                raise ValueError(f"more than {most_failures:,} failures")
        times[run] = clock
    return times


def main(words: Sequence[str] | None = None) -> None:
    """Print a table in Markdown, a row for each corpus and number of GPUs."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--corpus", nargs="*", default=["100GB", "10TB", "200TB"])
    parser.add_argument("--gpus", nargs="*", type=int, default=[1, 64, 4096])
    parser.add_argument("--gpu", default="h100")
    parser.add_argument("--recipes", nargs="*", default=list(RECIPES))
    parser.add_argument("--utilisation", type=float, default=Assumptions.utilisation)
    parser.add_argument("--storage-gb-s", type=float, default=10.0)
    parser.add_argument("--failure-hours", type=float, default=Assumptions.failure_hours)
    parser.add_argument("--restart-minutes", type=float, default=Assumptions.restart_minutes)
    parser.add_argument("--runs", type=int, default=100, help="simulated trainings")
    parser.add_argument("--seed", type=int, default=1)
    for name, default in vars(Rates()).items():
        flag = "--" + name.replace("_", "-")
        parser.add_argument(flag, type=type(default), default=default)
    given = parser.parse_args(words)
    rates = Rates(**{name: getattr(given, name) for name in vars(Rates())})
    assumptions = Assumptions(
        given.utilisation, given.storage_gb_s, given.failure_hours, given.restart_minutes
    )
    gpu = find_gpu(given.gpu)[1]
    print("| " + HEADER + " |\n" + "|---" * len(HEADER.split("|")) + "|")
    for corpus in given.corpus:
        for gpus in given.gpus:
            made = stages(
                size_of(corpus),
                gpu,
                gpus,
                given.recipes,
                rates,
                assumptions,
                given.runs,
                given.seed,
            )
            print("| " + " | ".join(row(corpus, gpus, made)) + " |", flush=True)


def size_of(words: str) -> float:
    """Return the bytes of a size such as `10TB`.

    Raises:
        SystemExit: it is none.
    """
    number, unit = words[:-2], words[-2:].upper()
    try:
        size = float(number) * UNITS[unit]
    except (KeyError, ValueError):
        raise SystemExit(f"--corpus: expected a size such as 10TB, got '{words}'") from None
    if not 0 < size < math.inf:
        raise SystemExit(f"--corpus: must be above 0, got '{words}'")
    return size


def stages(
    size: float,
    gpu: GPU,
    gpus: int,
    recipes: Sequence[str],
    rates: Rates,
    assumptions: Assumptions,
    runs: int,
    seed: int,
) -> Stages:
    """Return the stages of a corpus of `size` bytes."""
    cores = max(2, gpus * rates.cores_per_gpu)
    kept = size * rates.kept
    tokens = kept / rates.bytes_per_token
    name = suited(tokens, recipes)
    recipe = load_recipe(name)
    whole = replace(recipe.train, tokens=max(1, round(tokens)), hours=None, flops=None)
    recipe = replace(recipe, train=whole)
    training = min(gpus, recipe.rows_per_step)
    made = plan(recipe, gpu, training, assumptions)
    work = made.steps * made.best.seconds
    trained = np.array([math.inf])
    if made.best.fits:
        trained = simulated_times(
            work,
            made.checkpoint_interval,
            made.checkpoint_seconds,
            60 * assumptions.restart_minutes,
            3600 * made.hours_between_failures,
            runs=runs,
            seed=seed,
        )
    # An evaluation is a forward pass, a third of the products of a step's row.
    rows = min(recipe.train.heldout_rows, 2**30) * rates.evaluations
    products = rows * made.flops_per_step / made.rows_per_step / 3
    return Stages(
        name,
        tokens,
        size / (1e6 * rates.clean_mb_s * cores),
        kept / (1e6 * rates.prepare_mb_s * cores),
        size + kept + tokens * rates.shard_bytes + 3 * made.checkpoint_bytes,
        made,
        gpus - training,
        trained,
        work * made.slowdown,
        products / (gpus * gpu.flops_per_second * assumptions.utilisation),
    )


def suited(tokens: float, recipes: Sequence[str]) -> str:
    """Return the recipe whose parameters are nearest to a 20th of the tokens, by ratio.

    Raises:
        UserError: there is no such recipe.
    """
    if not recipes:
        raise UserError("--recipes: name at least one")
    aim = tokens / TOKENS_PER_PARAMETER

    def distance(name: str) -> float:
        return abs(math.log(sum(count_parameters(load_recipe(name)).values()) / aim))

    return min(recipes, key=distance)


def row(corpus: str, gpus: int, made: Stages) -> list[str]:
    """Return the cells of a row."""
    best, cells = made.plan.best, [corpus, f"{gpus:,}", made.recipe, quantity(made.tokens)]
    cells += [_time(made.clean), _time(made.prepare), byte_size(round(made.stored))]
    if not best.fits:
        return [*cells, f"does not fit: {byte_size(best.memory.total)} a GPU", *["–"] * 5]
    low, middle, high = (
        _time(float(t))
        for t in (
            *np.quantile(made.trained, [0.05]),
            made.trained.mean(),
            *np.quantile(made.trained, [0.95]),
        )
    )
    failures = float(made.trained.mean()) / 3600 / made.plan.hours_between_failures
    return [
        *cells,
        f"{best.kind}, {best.checkpointing}" + (f"; {made.idle:,} idle" if made.idle else ""),
        middle if low == high else f"{middle} ({low} to {high})",
        _time(made.expected),
        f"{failures:,.0f}" if failures >= 10 else f"{failures:.1f}",
        duration(made.plan.checkpoint_interval),
        _time(made.evaluate),
    ]


def _time(seconds: float) -> str:
    """Return seconds as hours, days or years."""
    hours = seconds / 3600
    if hours < 48:
        return f"{hours:.1f} h" if hours >= 0.1 else f"{seconds:.0f} s"
    days = hours / 24
    return f"{days:,.3g} days" if days < 730 else f"{days / 365.25:,.3g} years"


if __name__ == "__main__":
    main()
