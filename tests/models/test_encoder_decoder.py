from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from foreword.models.encoder_decoder import EncoderDecoder
from foreword.nn.init import initialise
from foreword.nn.masks import CausalMask, FullMask
from foreword.nn.model import Model
from foreword.train import checkpoint
from foreword.types import Batch

TIED: dict[str, Any] = {"d_model": 24, "layers": 2, "heads": 2, "dropout": 0.0, "tied_stacks": True}


def build(seed: int, **settings: Any) -> Model:
    model = Model(EncoderDecoder(**TIED | settings).build(50), nn.ModuleDict()).eval()
    initialise(model, seed)
    return model


def test_tied_stacks_share_all_but_the_attention_to_the_source() -> None:
    backbone = build(1).backbone
    ours = {id(p) for p in backbone.encoder.blocks.parameters()}
    own = {n for n, p in backbone.decoder.blocks.named_parameters() if id(p) not in ours}
    assert own
    assert all(".cross" in name for name in own)


def test_tied_stacks_are_saved_once_and_read_back(tmp_path: Path) -> None:
    one, other = build(1), build(2)
    assert len(checkpoint.weights_of(one)) < len(checkpoint.weights_of(build(1, tied_stacks=False)))
    checkpoint.save(tmp_path / "step", one, None, {"step": 1})
    checkpoint.load_weights(tmp_path / "step", other)
    position_ids = torch.arange(7)[None]
    batch = Batch(
        position_ids,
        position_ids,
        CausalMask(),
        source=Batch(position_ids, position_ids, FullMask()),
        cross_mask=FullMask(),
    )
    with torch.no_grad():
        assert torch.equal(one.backbone(batch).states, other.backbone(batch).states)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"rotates_cross": True}, "rotates_cross: requires position 'rotary', got 'learned'"),
        ({"tied_stacks": True, "decoder_layers": 2}, "decoder_layers: tied_stacks requires .* 4"),
    ],
)
def test_impossible_settings_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        EncoderDecoder(**settings)
