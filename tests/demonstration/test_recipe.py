"""Which network the demo trains, by the speed of the machine."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from foreword.demonstration.walkthrough import FAST, Demo
from foreword.planning import conditions
from foreword.runs.recipe import load_recipe


class Notes:
    """A reporter that keeps its notes."""

    def __init__(self) -> None:
        self.texts: list[str] = []

    def note(self, text: str) -> None:
        self.texts.append(text)


@pytest.mark.parametrize(("factor", "name"), [(0.9, "demo_encoder_small"), (1.1, "demo_encoder")])
def test_a_slow_machine_trains_a_smaller_network(
    factor: float, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def measured(device: torch.device, dtype: torch.dtype) -> float:
        return factor * FAST

    monkeypatch.setattr(conditions, "matmul_flops_per_second", measured)
    notes = Notes()
    recipe = Demo(tmp_path / "demo")._recipe(notes)  # type: ignore[arg-type]
    assert recipe == load_recipe(name)
    assert recipe.train.hours is None
    assert [("900 GFLOP/s" in text) for text in notes.texts] == ([True] if factor < 1 else [])
