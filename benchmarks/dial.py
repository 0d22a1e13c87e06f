"""Losses that the dial's models reach: the table that `foreword check` expects losses by.

    python benchmarks/dial.py TEXT... --work DIR [--flops 3e12 1e13 3e13] [--families encoder ...]
                              [--rates 0.5 1 2] [--decays 0.3 1]

For each family and budget the dial is asked for a recipe as if the machine had just that many
FLOPs, and the recipe is trained on the text for that budget; the final held-out loss is what the
run's own last evaluation says, over 512 rows. Losses do not depend on the machine's speed or load.
With --rates and --decays each recipe is also trained with these multiples of its learning rate and
of its weight decay.
Runs stay in DIR; what is there is used again, and what was stopped continues. The table is CSV on
standard output; progress is on standard error.
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from itertools import product
from pathlib import Path

import foreword
from foreword.cli._process import configure_process
from foreword.data.text_files import ReadSettings
from foreword.nn.model import neural_settings
from foreword.planning.conditions import text_bytes
from foreword.planning.dial import FAMILIES, Conditions, dial
from foreword.runs.recipe import Recipe
from foreword.settings import config, kinds

COLUMNS = (
    *("family", "d_model", "layers", "vocab", "flops", "seed", "lr", "decay"),
    *("tokens", "loss", "unit"),
)
SETTINGS = {"train.evaluations": 4, "train.heldout_rows": 512, "train.checkpoints": 4}


def main() -> None:
    """Train and print a row for each run."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("texts", nargs="+")
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--flops", type=float, nargs="+", default=[3e12, 1e13, 3e13])
    parser.add_argument("--families", nargs="+", default=list(FAMILIES), choices=FAMILIES)
    parser.add_argument("--seeds", type=int, nargs="+", default=[1])
    parser.add_argument("--rates", type=float, nargs="+", default=[1.0])
    parser.add_argument("--decays", type=float, nargs="+", default=[1.0])
    arguments = parser.parse_args()
    configure_process()
    size = text_bytes(arguments.texts, ReadSettings())
    print(*COLUMNS, sep=",")
    for flops, family in product(arguments.flops, arguments.families):
        recipe = _recipe(family, flops, size)
        shards = _shards(family, recipe, arguments.texts, arguments.work)
        for rate, decay, seed in product(arguments.rates, arguments.decays, arguments.seeds):
            name = f"{family}-{flops:.1e}-{seed}"
            if (rate, decay) != (1.0, 1.0):
                name += f"-lr{rate:g}-decay{decay:g}"
            varied = _varied(recipe, rate, decay, seed)
            row = _row(varied, flops, shards, arguments.work / name)
            print(family, *row, sep=",", flush=True)


def _shards(family: str, recipe: Recipe, texts: list[str], work: Path) -> Path:
    """Return the text as shards of the recipe's tokenizer, written if they are not."""
    trainer = recipe.tokenizer
    shards = work / f"{family}-{trainer.vocab}"
    foreword.prepare(texts, shards, kind=kinds.name_of(trainer), vocab=trainer.vocab)
    return shards


def _varied(recipe: Recipe, rate: float, decay: float, seed: int) -> Recipe:
    """Return the recipe with multiples of its learning rate and weight decay, and a seed."""
    table = config.to_table(recipe)
    optimizer, train = table["optimizer"], table["train"]
    optimizer |= {"lr": rate * optimizer["lr"], "decay": decay * optimizer["decay"]}
    return config.build(Recipe, table | {"train": train | {"seed": seed}})


def _row(recipe: Recipe, flops: float, shards: Path, run: Path) -> tuple[object, ...]:
    """Return the row of a run, trained if it is not, without the family."""
    if (run / "recipe.toml").is_file():
        result = foreword.resume(run)
    else:
        file = run.with_name(f"{run.name}.toml")
        file.write_text(recipe.dumps(), encoding="utf-8")
        result = foreword.pretrain(str(file), shards, run, flops=flops, settings=SETTINGS)
    if not result.is_done:
        raise SystemExit("stopped; the same command continues")
    last = result.last["heldout"]
    is_causal = last["bits_per_byte"] is not None
    loss = last["bits_per_byte"] if is_causal else last["loss"]
    unit = "bits per byte" if is_causal else "nats per prediction"
    model, optimizer = neural_settings(recipe.model), config.to_table(recipe)["optimizer"]
    shape = (model.d_model, model.layers, recipe.tokenizer.vocab)
    varied = (recipe.train.seed, f"{optimizer['lr']:.3g}", f"{optimizer['decay']:.3g}")
    return (*shape, f"{flops:.3g}", *varied, result.last["train"]["tokens"], round(loss, 4), unit)


def _recipe(family: str, flops: float, size: float) -> Recipe:
    """Return the recipe that the dial chooses for a budget; its own budget is one step."""
    hour = Conditions(family, 1.0, flops / 3600 / FAMILIES[family].speed, size)
    recipe = dial(hour).recipe()
    return replace(recipe, train=replace(recipe.train, hours=None, steps=1))


if __name__ == "__main__":
    main()
