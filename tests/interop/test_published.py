"""The published `config.json` of each family: every key is known."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from foreword.interop.hf.big_bird import BigBird
from foreword.interop.hf_config import HFConfig
from foreword.interop.importing import family_of
from foreword.runs.recipe import Recipe, load_recipe
from foreword.settings import config
from foreword.text.special import NAMES
from foreword.types import Vocab

# Of each model its name, the parameters that it was released with, where its family has all of
# them, and its `config.json`.
FILE = Path(__file__).parent / "published.jsonl"
PUBLISHED = {line["name"]: line for line in map(json.loads, FILE.read_text("utf-8").splitlines())}


def vocab_of(size: int) -> Vocab:
    special = {token: n for n, token in enumerate(NAMES)}
    none = np.zeros(size, dtype=bool)
    return Vocab(size, special, np.zeros(0, dtype=np.int64), none, ~none)


@pytest.mark.parametrize("name", PUBLISHED)
def test_published_configs_are_known_and_give_the_published_size(name: str) -> None:
    keys, size = PUBLISHED[name]["config"], PUBLISHED[name]["parameters"]
    hf_config = HFConfig(keys)
    family = family_of(hf_config)
    table = family.model(hf_config, {})
    hf_config.require_all_known(family.keys.supported, family.keys.ignored)
    recipe = config.build(
        Recipe,
        {
            "model": table,
            "objective": family.objective({}, {}),
            "layout": family.names.layout,
            "packing": {"kind": "documents", **family.packing(table, {})},
        },
    )
    with torch.device("meta"):
        parameters = recipe.build(vocab_of(keys["vocab_size"])).count_parameters()
    assert size is None or parameters == size


@pytest.mark.parametrize(
    ("positions", "lengths"), [(4096, None), (2048, "of 1,024 tokens"), (512, None)]
)
def test_bigbird_notes_the_lengths_with_other_random_blocks(
    positions: int, lengths: str | None
) -> None:
    """As found by drawing with `tests/oracles/test_attentions.py` at other numbers of positions."""
    model = f"model.position={{kind='learned', length={positions}}}"
    recipe = load_recipe("bigbird_base", [model, f"packing.length={min(positions, 512)}"])
    _, *more = BigBird().differences(recipe).notes
    assert len(more) == (lengths is not None)
    assert lengths is None or lengths in more[0]
