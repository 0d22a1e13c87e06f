"""The lengths of a model's sequences are known from the recipe, before any text is read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from foreword.cli.main import run as command
from foreword.data.rng import RowRng
from foreword.errors import UserError
from foreword.objectives.deshuffle import Deshuffle
from foreword.objectives.prefix import Prefix
from foreword.objectives.span_corruption import SpanCorruption
from foreword.runs.recipe import Recipe
from foreword.settings import config, kinds
from foreword.types import Batch

from .contracts.cases import SEED, TRAINED, Case, rows, vocab

LENGTH = 24
SETTINGS: list[tuple[str, dict[str, Any]]] = [
    ("span_corruption", {"rate": 0.5, "mean_span": 2.0}),
    ("span_corruption", {"end": ""}),
    ("deshuffle", {"end": ""}),
    ("prefix", {"rate": 0.25}),
    ("prefix", {"end": ""}),
    ("mixture", {"objectives": (SpanCorruption(0.5, 2.0), Prefix()), "modes": ()}),
    ("mixture", {"objectives": (Deshuffle(),), "modes": ("<extra_id_9>",)}),
    ("translate", {"end": ""}),
    *((name, {}) for name in kinds.names("objectives")),
]


def positions_used(batch: Batch) -> int:
    """Return how many rows of a table of positions the model reads."""
    most = int(batch.positions.max())
    return 1 + max(most, int(batch.source.positions.max()) if batch.source is not None else 0)


@pytest.mark.product
@pytest.mark.parametrize("case", TRAINED, ids=str)
def test_no_sequence_is_longer_than_the_bound(case: Case) -> None:
    layout = kinds.load("layouts", case.layout)()
    for settings in (given for name, given in SETTINGS if name == case.objective):
        objective = kinds.load("objectives", case.objective)(**settings)
        bound = layout.max_length(objective.max_lengths(LENGTH, LENGTH))
        lengths = []
        for shape in ([LENGTH], [1, LENGTH - 1], [5, 2, LENGTH - 7], [LENGTH - 3]):
            packed = rows([shape] * 64, seed=len(shape))
            example = objective.corrupt(packed, RowRng(SEED, packed.numbers), vocab())
            lengths.append(positions_used(layout.arrange(example, vocab()).to("cpu")))
        assert max(lengths) <= bound
        is_reached = case.objective != "translate" or case.layout != "encoder_decoder"
        assert (
            max(lengths) == bound or not is_reached
        )  # the text of a pair is cut in the middle here


def recipe(objective: Any, layout: str, position: Any, **packing: Any) -> Recipe:
    model = "encoder_decoder" if layout == "encoder_decoder" else "transformer"
    return config.build(
        Recipe,
        {
            "model": {"kind": model, "d_model": 16, "heads": 2, "position": position},
            "objective": objective,
            "layout": layout,
            "packing": {"length": 64, **packing},
        },
    )


@pytest.mark.parametrize("layout", ["decoder", "prefix", "encoder_decoder"])
@pytest.mark.parametrize(
    "objective",
    [
        "span_corruption",
        "deshuffle",
        "prefix",
        {"kind": "mixture", "objectives": ["span_corruption", "deshuffle"], "modes": []},
        {"kind": "sum", "terms": ["deshuffle"]},
    ],
)
def test_position_tables_hold_the_sequences_of_the_layout(objective: Any, layout: str) -> None:
    expected = recipe(objective, layout, "rotary").max_sequence(64)
    held = {"kind": "learned", "length": expected}
    assert recipe(objective, layout, held).max_sequence(64) == expected
    if expected == 64:
        pytest.skip("no sequence is longer than a row")
    short = {"kind": "learned", "length": expected - 1}
    with pytest.raises(UserError) as refused:
        recipe(objective, layout, short)
    assert f"become up to {expected} with" in str(refused.value)
    assert f"set model.position.length={expected}" in str(refused.value)


def test_pairs_of_texts_leave_room_for_their_ends() -> None:
    position = {"kind": "learned", "length": 64}
    assert recipe("translate", "decoder", position, kind="parallel").max_sequence(64) == 64
    with pytest.raises(UserError, match="become up to 66"):
        recipe("translate", "decoder", position, kind="pairs")


def test_too_long_sequences_are_refused_before_text_is_read(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = tmp_path / "missing.txt"
    words = ["pretrain", "gpt2_tiny", "--data", str(text), "--out", str(tmp_path / "run")]
    assert command([*words, "--set", "objective.kind=span_corruption"]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert "packing.length: rows of" in error and "set model.position.length=" in error
