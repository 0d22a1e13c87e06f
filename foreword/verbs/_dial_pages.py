"""Pages of `foreword show` about the dials `encoder`, `decoder` and `encoder_decoder`."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from foreword.display.results import Output, ResultTable, Text
from foreword.display.tables import wrapped
from foreword.formatting import power, quantity
from foreword.planning.conditions import machine
from foreword.planning.dial import FAMILIES, Conditions, dial
from foreword.runs.recipe import load_recipe

HOURS = (0.1, 1.0, 10.0, 100.0)
ABOUT = (
    "'foreword pretrain {name} --data TEXT --out RUN --hours 1' trains what learns most in that "
    "time, on this machine, from that text. Width, depth, vocabulary, rows, batch, learning rate "
    "and regularisation follow from the hours, the measured speed and the amount of text, starting "
    "from {small}. 'foreword check {name} --data TEXT --hours 1' gives each value with its reason "
    "and the cost; --set overrules any; recipe.toml of the run holds plain values. docs/dial.md "
    "has the rules and their evidence."
)


def dial_page(name: str, kinds: Output) -> Output:
    """Return the page of a dial, followed by that of the kinds with its name."""
    family = FAMILIES[name]
    here = machine(name, 1.0, load_recipe(family.small))
    rows = [_row(replace(here, hours=hours)) for hours in HOURS]
    about = ABOUT.format(name=name, small=family.small)
    speed = power(here.flops_per_second)
    data = {"dial": name, "flops_per_second": here.flops_per_second, "examples": rows}
    return Output(
        [
            Text(wrapped(about)),
            Text(f"\nWith as much text as is useful, on this machine ({speed} FLOP/s):"),
            ResultTable(rows),
            *([Text("\nAn hour: " + line)] if (line := dial(here).counting) else []),
            Text("\nKinds of the same name:\n"),
            *kinds.parts,
        ],
        {**data, "kinds": kinds.content},
    )


def _row(conditions: Conditions) -> dict[str, Any]:
    chosen = dial(conditions)
    size = chosen.size
    recipe = chosen.recipe()
    return {
        "hours": f"{conditions.hours:g}",
        "size": quantity(size.parameters),
        "d_model": size.d_model,
        "layers": size.layers,
        "vocab": size.vocab,
        "batch": recipe.train.batch,
        "lr": f"{recipe.optimizer.lr:g}",
        "tokens": quantity(chosen.tokens),
    }
