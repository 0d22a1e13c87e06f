"""The loss by position, within and beyond the rows of training."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from foreword.errors import UserError
from foreword.nn.positions.learned import Learned
from foreword.probes._contract import ProbedModel
from foreword.probes.loss_by_position import LossByPosition
from foreword.runs.measure import measure
from foreword.testing.models import tiny_model

from .conftest import sentences


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "text.txt"
    path.write_text(" ".join(sentences()), encoding="utf-8")
    return path


@pytest.mark.parametrize("family", ["decoder", "encoder", "lstm"])
def test_the_losses_by_position_add_up_to_that_of_long_rows(family: str, file: Path) -> None:
    trained = tiny_model(family, sentences())
    probed = ProbedModel("x", trained, (str(file),))
    found = LossByPosition(times=3).measure([probed])
    assert [row["from"] for row in found.details] == [0, 12, 24, 36, 48, 60]
    packing: Any = trained.recipe.packing
    longer = replace(trained.recipe, packing=replace(packing, length=72))
    with probed.shards() as shards:
        whole = measure(replace(trained, recipe=longer), shards, rows=1 << 20, streams=1)
    assert whole is not None
    counts = [row["predictions"] for row in found.details]
    assert sum(counts) == whole.predictions
    losses = [row["loss"] for row in found.details]
    assert np.average(losses, weights=counts) == pytest.approx(whole.loss, rel=1e-5)
    beyond = np.average(losses[2:], weights=counts[2:])
    assert found.scores["x"] == pytest.approx(beyond)


def test_positions_that_a_model_does_not_have_are_named(file: Path) -> None:
    trained = tiny_model("decoder", sentences())
    model: Any = trained.recipe.model
    few = replace(trained.recipe, model=replace(model, position=Learned(length=24)))
    probed = ProbedModel("x", replace(trained, recipe=few, source=Path("few")), (str(file),))
    with pytest.raises(UserError, match=r"^few: cannot read such rows: .* has 24 positions"):
        LossByPosition().measure([probed])
