"""Strategies of fine-tuning at equal steps: each with its best of three learning rates.

    python benchmarks/strategies.py RUN --train SST-2/train.tsv --dev SST-2/dev.tsv --text sentence

The rate of each strategy is the best of its default and three times that (of a frozen backbone, ten
and thirty times), for one seed on further examples of the training file. With it, all seeds are
scored on dev.
"""

from __future__ import annotations

import argparse
import random
from dataclasses import replace
from typing import Any

from foreword.formatting import quantity
from foreword.runs.run_folder import open_run
from foreword.tables.columns import Columns
from foreword.tables.examples import Labelled
from foreword.tables.read import read_table
from foreword.tuning.job import Examples, TuneJob
from foreword.tuning.published_head import with_published_head
from foreword.tuning.scores import Scores
from foreword.tuning.settings import TuneSettings
from foreword.tuning.strategies.frozen import Frozen
from foreword.tuning.strategies.full import Full
from foreword.tuning.strategies.gradual_unfreezing import GradualUnfreezing
from foreword.tuning.strategies.layer_decay import LayerDecay
from foreword.tuning.strategies.lora import LoRA
from foreword.tuning.strategies.prefix_tuning import PrefixTuning
from foreword.tuning.strategies.top_layers import TopLayers
from foreword.tuning.tasks.classify import Classify
from foreword.tuning.tune import tune

STRATEGIES: dict[str, Any] = {
    "full": Full(),
    "frozen": Frozen(),
    "top_layers, 1": TopLayers(layers=1),
    "top_layers, 2": TopLayers(layers=2),
    "top_layers, 4": TopLayers(layers=4),
    "gradual_unfreezing": GradualUnfreezing(),
    "layer_decay, 0.8": LayerDecay(),
    "lora, rank 8, all maps": LoRA(),
    "lora, rank 8, query and key_value": LoRA(targets=("query", "key_value")),
    "prefix_tuning, 16": PrefixTuning(),
}
FACTORS = (1.0, 3.0)
FROZEN_FACTORS = (10.0, 30.0)


def examples(path: str, columns: Columns) -> list[Labelled]:
    """Return the labelled texts of a file."""
    table = read_table(path)
    read = (
        Classify().reader.read(row, columns, table.source_of(n)) for n, row in table.sound_rows()
    )
    return [example for example in read if example is not None and example.label is not None]


def main() -> None:
    """Print a line for each strategy."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("run")
    parser.add_argument("--train", required=True)
    parser.add_argument("--dev", required=True)
    parser.add_argument("--text", default="text")
    parser.add_argument("--pair", default="")
    parser.add_argument("--label", default="label")
    parser.add_argument("--examples", type=int, default=1000)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--seeds", type=int, default=3)
    options = parser.parse_args()
    columns = Columns(options.text, options.label, options.pair)
    train, dev = (examples(path, columns) for path in (options.train, options.dev))
    random.Random(1).shuffle(train)
    validation, train = train[: options.examples // 2], train[options.examples // 2 :]
    trained = open_run(options.run, "cpu")
    task = with_published_head(Classify(), trained)
    shared = TuneSettings(epochs=options.epochs, examples=options.examples, precision="fp32")

    def scored(on: list[Labelled], seeds: int, strategy: Any) -> Scores:
        settings = replace(shared, strategy=strategy, seeds=seeds)
        return tune(trained, TuneJob(task, Examples(train, on), [settings])).rows[0]

    for name, strategy in STRATEGIES.items():
        default = strategy.peak_lr(trained.recipe.model)
        factors = FACTORS if strategy.trains_backbone else FROZEN_FACTORS
        rates = [float(f"{default * factor:.2g}") for factor in factors]
        found = {lr: scored(validation, 1, replace(strategy, lr=lr))["accuracy"] for lr in rates}
        best = max(found, key=lambda lr: found[lr])
        row = scored(dev, options.seeds, replace(strategy, lr=best))
        swept = ", ".join(f"{lr:g}: {score:.3f}" for lr, score in found.items())
        accuracy = row.metrics["accuracy"]
        score = f"{accuracy.mean:.3f} ± {accuracy.std or 0:.3f}"
        trained_parameters = quantity(row.about["trained_parameters"])
        print(f"| {name} | {trained_parameters} | {best:g} | {score} | {swept} |", flush=True)


if __name__ == "__main__":
    main()
