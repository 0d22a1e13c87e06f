"""How `foreword show` folds the names of recipes."""

from __future__ import annotations

import re

import pytest

from foreword import config
from foreword.cli.show import _grouped


@pytest.mark.parametrize(
    ("names", "said"),
    [
        ("t5_base t5_1.1_xl t5_small", "t5_{base, 1.1_xl, small}"),
        ("fixed_window_tiny fixed_window_mini_direct", "fixed_window_{tiny, mini_direct}"),
        ("transformer_xl_base transformer_xl_large", "transformer_xl_{base, large}"),
        ("modern_encoder modern_encoder_tiny", "modern_encoder; modern_encoder_tiny"),
        ("demo_encoder modernbert_tiny", "demo_encoder; modernbert_tiny"),
        ("elmo elmo_mini elmo_mini_tokens", "elmo; elmo_{mini, mini_tokens}"),
    ],
)
def test_names_are_folded_where_they_part(names: str, said: str) -> None:
    assert _grouped(names.split()) == said


def test_unfolded_they_are_the_names() -> None:
    names = config.recipe_names()
    found = []
    for word in _grouped(names).split("; "):
        first, brace, rest = word.partition("{")
        found += [first + end for end in re.split(", ", rest.rstrip("}"))] if brace else [first]
    assert sorted(found) == sorted(names)
