"""Imported models apply dropout where `transformers` does, and at the same rates."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from foreword.interop import importing
from foreword.nn import attention, dropout

from . import theirs
from .test_families import both

transformers = pytest.importorskip("transformers")

RATE, OF_ATTENTION = 0.1, 0.2
HEADS = ("classifier", "summary")  # of fine-tuning
ELSEWHERE = {
    "albert": "theirs has none behind the feed-forward layer, where its paper's code has",
    "big_bird": "theirs falls before the embeddings' norm, and attention by blocks has none",
    "modernbert": "theirs has one within the feed-forward layer and none behind, at rates of 0",
}
FAMILIES = [name for name in sorted(theirs.FAMILIES) if name.partition("-")[0] not in ELSEWHERE]


def multiplied(x: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
    """In place of chance a factor: logits agree if it falls on the same states."""
    return x * (1 + 3 * p) if training else x


@pytest.mark.product(few=3)
@pytest.mark.parametrize("family", FAMILIES)
def test_imported_models_apply_dropout_where_transformers_does(
    family: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, run = tmp_path / "theirs", tmp_path / "run"
    theirs.write(family, folder)
    config = json.loads((folder / "config.json").read_text())
    config |= {key: _rate(key) for key in config if "drop" in key and not key.startswith(HEADS)}
    (folder / "config.json").write_text(json.dumps(config))
    importing.save(importing.read(folder), run)
    still, _ = both(run, folder, (30, 17), segments=False)

    monkeypatch.setattr(F, "dropout", multiplied)
    monkeypatch.setattr(dropout, "dropout", multiplied)
    monkeypatch.setattr(attention, "drop", multiplied)
    _leave_distances_alone(monkeypatch)
    ours, expected = both(run, folder, (30, 17), segments=False, training=True)
    torch.testing.assert_close(ours, expected, atol=1e-4, rtol=1e-4)
    assert (ours - still).abs().max() > 0.1


def _rate(key: str) -> float:
    return OF_ATTENTION if "att" in key else RATE


def _leave_distances_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """XLNet's waves of the distance: theirs get dropout, ours by choice do not."""
    xlnet = transformers.XLNetModel
    waves = xlnet.relative_positional_encoding

    def divided(self: Any, *arguments: Any, **named: Any) -> Tensor:
        made = waves(self, *arguments, **named)
        return made / multiplied(torch.ones(()), self.config.dropout)

    monkeypatch.setattr(xlnet, "relative_positional_encoding", divided)
