"""Tokens per second of the data path alone: packing, corruption and layout, from shards on disk.

    python benchmarks/data_path.py SHARDS [--length 128] [--batch 32] [--seconds 3]

SHARDS is a folder from `foreword prepare`. Targets on 2 cores: causal 3 million tokens/s, masked
and span_corruption 1.5 million. Tokens are those of the rows, before corruption; one process.
"""

from __future__ import annotations

import argparse
import time
from dataclasses import replace

from foreword.data.prepared_text import PreparedText
from foreword.runs.recipe import load_recipe
from foreword.text.tokenizer import Tokenizer
from foreword.train.feed import Feed

CASES = {
    "causal": ("gpt2_mini", [], 3.0),
    "masked": ("bert_mini_one_objective", [], 1.5),
    "masked, whole words": ("bert_mini_one_objective", ["objective.whole_words=true"], 1.5),
    "span_corruption": ("t5_mini", [], 1.5),
}


def rate(feed: Feed, length: int, seconds: float) -> float:
    """Return the tokens per second of a feed."""
    step, tokens, start = 0, 0, time.perf_counter()
    while time.perf_counter() - start < seconds:
        feed.micro_batches(step)
        tokens += feed.rows_per_step * length
        step += 1
    return tokens / (time.perf_counter() - start)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("shards")
    parser.add_argument("--length", type=int, default=128)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--seconds", type=float, default=3.0)
    arguments = parser.parse_args()
    prepared = PreparedText.load(arguments.shards)
    vocab = Tokenizer.load(prepared.tokenizer).vocab
    for name, (recipe_name, assignments, target) in CASES.items():
        sizes = [f"packing.length={arguments.length}", f"train.batch={arguments.batch}"]
        recipe = load_recipe(recipe_name, [*assignments, *sizes])
        recipe = replace(recipe, train=replace(recipe.train, batch_tokens=0))
        packed = recipe.packing.open(prepared.train, vocab, 1, recipe.rows_per_step)
        rows = recipe.rows_per_step
        feed = Feed(packed, recipe.objective, recipe.layout, vocab, rows, rows, workers=1, seed=1)
        rate(feed, arguments.length, 0.3)
        measured = rate(feed, arguments.length, arguments.seconds) / 1e6
        print(f"{name:<20} {measured:6.2f} million tokens/s (at least {target})")


if __name__ == "__main__":
    main()
