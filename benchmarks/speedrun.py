"""What each family learns of a fixed text in the same minutes, and how long to a target loss.

    python benchmarks/speedrun.py simplewiki.jsonl.zst --work FOLDER [--minutes 12] [--seeds 1 2 3]
                                  [--families decoder encoder] [--set NAME=VALUE]
                                  [--reference [trainer plain]] [--rates RATE ...] [--batch ROWS]
                                  [--paced]

Each run is the command line's, from prepared shards to the last checkpoint, evaluations included.
All are judged alike: on the same held-out documents, bits per byte for causal models, nats per
token for masked ones with 15 % of the tokens hidden behind [MASK], nats per target token for span
corruption with T5's rates. A time to the target is read off the run's own evaluations.

With --reference, others are trained on the same tokens for the same minutes, and judged alike:
`BertForMaskedLM` and `GPT2LMHeadModel` by `transformers.Trainer`, and a Transformer written by hand
and compiled, by a plain PyTorch loop with fused AdamW; each at the Trainer's default rate and at
five others (or at --rates), with its default batch of 8 rows (or with --batch).
Runs that are finished in FOLDER are not run again.

With --paced, ours and the references first take steps in turns, while nothing else runs; then each
is trained for the steps that it would do in the minutes, so that other work may run beside it.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise, product
from pathlib import Path
from typing import Any

os.environ["HF_HUB_OFFLINE"] = "1"

from speedrun_reference import BATCH, RATES, REFERENCES

from foreword.data.prepared_text import PreparedText
from foreword.evaluation import heldout
from foreword.evaluation.loaded import load
from foreword.runs.recipe import Recipe
from foreword.settings import config, kinds
from foreword.train import log


@dataclass(frozen=True)
class Family:
    """A family of the speed run.

    Attributes:
        recipe: trained on the text.
        target: the loss whose time is measured, in `unit`.
        unit: of the loss.
        judge: the objective that all models of the family are judged by; None for the recipe's.
        reference: the objective of its references, "causal" or "masked"; "" without any.
    """

    recipe: str
    target: float
    unit: str
    judge: dict[str, Any] | None = None
    reference: str = ""


PACE_TURNS, PACE_MINUTES = 2, 0.5
HIDDEN = {"kind": "masked", "rate": 0.15, "mask": 1.0, "random": 0.0}
SPANS = {"kind": "span_corruption", "rate": 0.15, "mean_span": 3.0}
FAMILIES = {
    "decoder": Family("modern_decoder_mini", 1.70, "bits per byte", reference="causal"),
    "encoder": Family("modern_encoder_mini", 4.7, "nats", HIDDEN, "masked"),
    "encoder_decoder": Family("modern_encoder_decoder_mini", 4.9, "nats", SPANS),
}


@dataclass(frozen=True)
class Finished:
    """A run and what it came to.

    Attributes:
        name: of the model.
        seed: of the run.
        loss: on all held-out text, by the family's measure.
        seconds: to the target, by the run's own evaluations; None if they did not reach it.
        flops: as many.
    """

    name: str
    seed: int
    loss: float
    seconds: float | None
    flops: float | None


def foreword(*words: str) -> None:
    """Run a command of Foreword, which must succeed."""
    print("foreword", *words, file=sys.stderr, flush=True)
    subprocess.run([sys.executable, "-P", "-m", "foreword", *words, "--quiet"], check=True)


def prepare(text: str, recipe: Recipe, work: Path) -> Path:
    """Return token shards of the text for a recipe's tokenizer and preparation."""
    kind, vocab = kinds.name_of(recipe.tokenizer), recipe.tokenizer.vocab
    sentences = "sentences" if recipe.prepare.sentences else "no-sentences"
    folder = work / f"{kind}-{vocab}-{sentences}"
    if not (folder / "prepared.json").exists():
        words = ("--kind", kind, "--vocab", str(vocab), f"--{sentences}")
        foreword("prepare", text, *words, "--out", str(folder))
    return folder


def train(family: Family, shards: Path, out: Path, options: argparse.Namespace, seed: int) -> None:
    """Train a run by the command line, or continue it."""
    if (out / "metrics.jsonl").exists():
        foreword("resume", str(out))
        return
    settings = [f"train.seed={seed}", "train.evaluations=24", "train.checkpoints=2", *options.set]
    assignments = [word for setting in settings for word in ("--set", setting)]
    budget = ("--hours", str(options.minutes / 60))
    if options.paced:
        steps = round(60 * options.minutes / paces(family, shards, options)["ours"])
        budget = ("--steps", str(steps))
    words = (family.recipe, "--data", str(shards), "--out", str(out), *budget)
    foreword("pretrain", *words, *assignments)


def paces(family: Family, shards: Path, options: argparse.Namespace) -> dict[str, float]:
    """Return the seconds of a step of ours and of each reference, measured once in turns."""
    kept = options.work / f"{family.recipe}-paces{_batch_name(options)}.json"
    names = options.reference if family.reference else []
    seconds: dict[str, float] = json.loads(kept.read_text("utf-8")) if kept.exists() else {}
    missing = [name for name in ("ours", *names) if name not in seconds]
    times: dict[str, list[float]] = {name: [] for name in missing}
    for _, name in product(range(PACE_TURNS), missing):
        if name == "ours":
            times[name] += _our_steps(family, shards, options.set)
            continue
        recipe = config.load(Recipe, config.RECIPES.find(family.recipe))
        reference = REFERENCES[name](
            family.reference, recipe, PreparedText.load(shards), options.batch
        )
        ends = reference.train(PACE_MINUTES, RATES[0])
        times[name] += [after - before for before, after in pairwise(ends)]
    seconds |= {name: statistics.median(each) for name, each in times.items() if each}
    kept.write_text(json.dumps(seconds), encoding="utf-8")
    return seconds


def _our_steps(family: Family, shards: Path, settings: Sequence[str]) -> list[float]:
    """Return the seconds of steps of ours, each the mean of those between two records."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "run"
        words = (family.recipe, "--data", str(shards), "--out", str(out))
        hours = str(PACE_MINUTES / 60)
        assignments = [word for setting in settings for word in ("--set", setting)]
        foreword("pretrain", *words, "--hours", hours, *assignments)
        records = [record for record in log.read(out) if record["kind"] == "train"]
    return [
        (after["seconds"] - before["seconds"]) / (after["step"] - before["step"])
        for before, after in pairwise(records)
    ]


def judge_of(recipe: Recipe, family: Family) -> Recipe:
    """Return the recipe with the objective that all models of the family are judged by."""
    if family.judge is None:
        return recipe
    table = config.to_table(recipe)
    is_same_kind = table["objective"]["kind"] == family.judge["kind"]
    trained = table["objective"] if is_same_kind else {}
    return config.build(Recipe, table | {"objective": trained | family.judge})


def judged(run: Path, family: Family, shards: PreparedText) -> float:
    """Return a run's loss on all held-out text, by the family's measure."""
    prompted = load(run).trained
    prompted = replace(prompted, recipe=judge_of(prompted.recipe, family))
    per_token = shards.bytes_per_token(ends=prompted.recipe.ends_texts)
    measured = heldout.on_shards(prompted, (shards.heldout, per_token))
    return measured.loss if measured.bits_per_byte is None else measured.bits_per_byte


def first_below(target: float, run: Path) -> tuple[float | None, float | None]:
    """Return the seconds and FLOPs of the first evaluation at or below the target."""
    for record in log.read(run):
        if record["kind"] != "heldout":
            continue
        if (record.get("bits_per_byte") or record["loss"]) <= target:
            return record["seconds"], record["flops"]
    return None, None


def ours(name: str, text: str, options: argparse.Namespace) -> list[Finished]:
    """Return the family's runs, one a seed."""
    family, work = FAMILIES[name], options.work
    recipe = config.load(Recipe, config.RECIPES.find(family.recipe))
    shards = prepare(text, recipe, work)
    finished = []
    for seed in options.seeds:
        out = work / f"{_name(name, options)}-{seed}"
        train(family, shards, out, options, seed)
        loss = judged(out, family, PreparedText.load(shards))
        # The run's own evaluations tell the time only if they measure the same.
        is_same_kind = family.judge is None or family.judge["kind"] == kinds.name_of(
            recipe.objective
        )
        reached = first_below(family.target, out) if is_same_kind else (None, None)
        finished.append(Finished(family.recipe, seed, loss, *reached))
    return finished


def references(name: str, text: str, options: argparse.Namespace) -> list[Finished]:
    """Return the runs of the family's references, one a learning rate."""
    family = FAMILIES[name]
    recipe = config.load(Recipe, config.RECIPES.find(family.recipe))
    shards = PreparedText.load(prepare(text, recipe, options.work))
    judge, finished = judge_of(recipe, family), []
    for kind, rate in product(options.reference, options.rates):
        batch = _batch_name(options)
        kept = options.work / f"{_name(name, options)}-{kind}-{rate:g}{batch}.json"
        if not kept.exists():
            reference = REFERENCES[kind](family.reference, recipe, shards, options.batch)
            steps = 0
            if options.paced:
                steps = round(60 * options.minutes / paces(family, shards.folder, options)[kind])
            reference.train(options.minutes, rate, steps)
            nats = reference.loss(judge)
            kept.write_text(json.dumps(nats), encoding="utf-8")
        loss = float(json.loads(kept.read_text(encoding="utf-8")))
        if family.unit == "bits per byte":
            loss /= math.log(2) * shards.bytes_per_token(ends=recipe.ends_texts)
        finished.append(Finished(f"{kind}, {rate:g}", 0, loss, None, None))
    return finished


def _name(family: str, options: argparse.Namespace) -> str:
    return f"{family}-{options.minutes:g}{'-paced' * options.paced}"


def _batch_name(options: argparse.Namespace) -> str:
    return "" if options.batch == BATCH else f"-{options.batch}-rows"


def show(family: Family, runs: list[Finished], *, are_seeds: bool) -> None:
    """Print a table of runs; of seeds also the median of their losses, of rates the best."""
    print(f"\n{'':24}{'seed':>5}{family.unit:>16}{f's to {family.target:g}':>12}{'FLOPs':>10}")
    for run in runs:
        seconds = "" if run.seconds is None else f"{run.seconds:,.0f}"
        flops = "" if run.flops is None else f"{run.flops:.1e}"
        print(f"{run.name:24}{run.seed:>5}{run.loss:>16.4f}{seconds:>12}{flops:>10}")
    losses = [run.loss for run in runs]
    name, loss = ("median", statistics.median(losses)) if are_seeds else ("best", min(losses))
    print(f"{name:24}{'':5}{loss:>16.4f}", flush=True)


def main() -> None:
    """Run, judge and print a table for each family."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("text")
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--minutes", type=float, default=12.0)
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--families", nargs="+", choices=FAMILIES, default=list(FAMILIES))
    parser.add_argument("--set", nargs="+", default=[], help="settings of our recipes")
    parser.add_argument("--reference", nargs="*", choices=REFERENCES, help="default: all")
    parser.add_argument("--rates", type=float, nargs="+", default=RATES, help="of the reference")
    parser.add_argument("--batch", type=int, default=BATCH, help="rows a step of the reference")
    parser.add_argument("--paced", action="store_true")
    options = parser.parse_args()
    # None without the option, and empty where it names none.
    options.reference = [] if options.reference is None else options.reference or list(REFERENCES)
    options.work.mkdir(parents=True, exist_ok=True)
    for name in options.families:
        show(FAMILIES[name], ours(name, options.text, options), are_seeds=True)
        if options.reference and FAMILIES[name].reference:
            show(FAMILIES[name], references(name, options.text, options), are_seeds=False)


if __name__ == "__main__":
    main()
