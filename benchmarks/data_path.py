"""Tokens per second of the data path alone: rows, corruption, layout, from shards on disk.

    python benchmarks/data_path.py SHARDS [--length 128] [--batch 32] [--seconds 3]

SHARDS is what `foreword prepare` wrote. Targets on 2 cores: causal 3 million tokens/s, masked and
span_corruption 1.5 million. Tokens are those of the rows, before corruption; one process.
"""

from __future__ import annotations

import argparse
import time
from dataclasses import replace

from foreword.data.prepared import Prepared
from foreword.text.tokenizer import Tokenizer
from foreword.train.feed import Feed
from foreword.train.recipe import load_recipe

CASES = {
    "causal": ("gpt2_mini", [], 3.0),
    "masked": ("bert_mini_one_objective", [], 1.5),
    "masked, whole words": ("bert_mini_one_objective", ["objective.whole_words=true"], 1.5),
    "span_corruption": ("t5_mini", [], 1.5),
}


def rate(feed: Feed, seconds: float) -> float:
    """Tokens per second."""
    step, tokens, start = 0, 0, time.perf_counter()
    while time.perf_counter() - start < seconds:
        feed.micro_batches(step)
        tokens += feed.recipe.rows_per_step * feed.recipe.packing.length
        step += 1
    return tokens / (time.perf_counter() - start)


def main() -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("shards")
    parser.add_argument("--length", type=int, default=128)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--seconds", type=float, default=3.0)
    arguments = parser.parse_args()
    prepared = Prepared.load(arguments.shards)
    vocab = Tokenizer.load(prepared.tokenizer).vocab
    for name, (recipe_name, assignments, target) in CASES.items():
        sizes = [f"packing.length={arguments.length}", f"train.batch={arguments.batch}"]
        recipe = load_recipe(recipe_name, [*assignments, *sizes])
        recipe = replace(recipe, train=replace(recipe.train, batch_tokens=0))
        packed = recipe.packing.open(prepared.train, vocab, 1, recipe.rows_per_step)
        feed = Feed(recipe, packed, vocab, recipe.rows_per_step)
        rate(feed, 0.3)
        found = rate(feed, arguments.seconds) / 1e6
        print(f"{name:<20} {found:6.2f} million tokens/s (at least {target})")


if __name__ == "__main__":
    main()
