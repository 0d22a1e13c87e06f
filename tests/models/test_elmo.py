"""ELMo against torch's own bidirectional LSTMs, its sizes against the released ones."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from foreword.data.rows import positions_within
from foreword.errors import UserError
from foreword.models.elmo import ELMo, ElmoBackbone, mirror
from foreword.nn.init import initialise
from foreword.nn.masks import FullMask
from foreword.nn.model import Model
from foreword.runs.recipe import load_recipe
from foreword.types import Batch
from tests.tiny import vocab

VOCAB = 60
SMALL = ELMo(d_model=8, d_cell=12, layers=3, dropout=0.0, init="t5")


def build(settings: ELMo = SMALL) -> ElmoBackbone:
    backbone = settings.build(VOCAB)
    initialise(Model(backbone, nn.ModuleDict()), 3)
    assert isinstance(backbone, ElmoBackbone)
    return backbone.eval()


def batch(documents: list[list[int]], seed: int = 1) -> Batch:
    """Return a batch of rows of documents of these lengths."""
    numbers = torch.tensor([np.repeat(np.arange(len(row)), row).tolist() for row in documents])
    random = torch.Generator().manual_seed(seed)
    ids = torch.randint(0, VOCAB, numbers.shape, generator=random)
    return Batch(ids, torch.from_numpy(positions_within(numbers.numpy())), FullMask())


def theirs(backbone: ElmoBackbone, stack: nn.ModuleList) -> nn.LSTM:
    """Return torch's LSTM with the weights of one direction."""
    settings = backbone.settings
    assert isinstance(settings, ELMo)
    width, cell = settings.d_model, settings.d_cell or settings.d_model
    projected = width if cell > width else 0
    lstm = nn.LSTM(width, cell, len(stack), batch_first=True, proj_size=projected)
    for n, layer in enumerate(stack):
        for name, p in layer.named_parameters():
            getattr(lstm, name.replace("_l0", f"_l{n}")).data.copy_(p)
    return lstm


@torch.no_grad()
@pytest.mark.parametrize("d_cell", [12, None])
def test_each_direction_is_an_lstm(d_cell: int | None) -> None:
    backbone = build(replace(SMALL, d_cell=d_cell, residual=False))
    read = batch([[10], [10]])
    x = backbone.embedding(read, backbone.position)
    ahead = theirs(backbone, backbone.ahead)(x)[0]
    back = theirs(backbone, backbone.back)(x.flip(1))[0].flip(1)
    torch.testing.assert_close(backbone(read).states, torch.cat([ahead, back], -1))


@torch.no_grad()
def test_one_layer_is_a_bidirectional_lstm() -> None:
    backbone = build(replace(SMALL, layers=1))
    lstm = nn.LSTM(8, 12, batch_first=True, proj_size=8, bidirectional=True)
    for stack, mark in ((backbone.ahead, ""), (backbone.back, "_reverse")):
        for name, p in stack[0].named_parameters():
            getattr(lstm, name + mark).data.copy_(p)
    read = batch([[9], [9]])
    x = backbone.embedding(read, backbone.position)
    torch.testing.assert_close(backbone(read).states, lstm(x)[0])


@torch.no_grad()
def test_layers_above_the_first_add_their_inputs() -> None:
    backbone = build()
    read = batch([[10]])
    layers = backbone.by_layer(read).layers
    assert layers is not None
    assert [layer.shape for layer in layers] == [(1, 10, 16)] * 4
    x = backbone.embedding(read, backbone.position)
    torch.testing.assert_close(layers[0], torch.cat([x, x], -1))
    for n in range(3):
        ahead, back = layers[n].chunk(2, -1)
        expected = [backbone.ahead[n](ahead)[0], backbone.back[n](back.flip(1))[0].flip(1)]
        added = layers[n] if n else torch.zeros_like(layers[n])
        torch.testing.assert_close(layers[n + 1], torch.cat(expected, -1) + added)
    assert torch.equal(layers[-1], backbone(read).states)


@torch.no_grad()
def test_cached_decoding_equals_one_pass_of_the_forward_stack() -> None:
    backbone, read = build(), batch([[9], [9]])
    whole = backbone(read).states
    memory, states = None, []
    for part in (slice(0, 4), slice(4, 5), slice(5, 9)):
        hidden = backbone(Batch(read.ids[:, part], read.positions[:, part], FullMask()), memory)
        memory = hidden.cache
        states.append(hidden.states[..., :8])
    torch.testing.assert_close(torch.cat(states, 1), whole[..., :8])


def test_mirror_reverses_each_document_in_place() -> None:
    assert mirror(torch.tensor([[0, 1, 2, 0, 1], [3, 4, 0, 0, 1]])).tolist() == [
        [2, 1, 0, 4, 3],
        [1, 0, 2, 4, 3],
    ]


def test_dropout_acts_on_the_last_layer() -> None:
    backbone, read = build(replace(SMALL, dropout=0.5)).train(), batch([[9]])
    hidden = backbone.by_layer(read)
    assert hidden.layers is not None
    kept = hidden.states != 0
    assert 0.2 < kept.float().mean() < 0.8
    torch.testing.assert_close(hidden.states[kept], 2 * hidden.layers[-1][kept])


def test_the_published_model_has_the_published_size() -> None:
    """93.6 M in the table of released models: all but the output layer, one bias a gate."""
    recipe = load_recipe("elmo")
    with torch.device("meta"):
        model = recipe.build(vocab(recipe.tokenizer.vocab))
    backbone = model.backbone
    twice = sum(p.numel() for name, p in backbone.named_parameters() if "bias_hh" in name)
    assert twice == 4 * 4 * 4096
    count = sum(p.numel() for p in backbone.parameters()) - twice
    characters = 261  # theirs are 262, one of them of masked positions
    lstms = 4 * (4 * 4096 * (512 + 512 + 1) + 4096 * 512)
    filters = sum(n * (16 * size + 1) for size, n in recipe.model.spelling.filters)
    highways = 2 * 2 * (2048 * 2048 + 2048)
    assert count == lstms + characters * 16 + filters + highways + 2048 * 512 + 512
    assert round(count / 1e6, 1) == 93.6
    assert model.count_parameters() - count - twice == 793_471 * 513


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"d_cell": 4, "d_model": 8}, "d_cell: must be at least d_model, 8, got 4"),
        ({"characters": True, "tied": True}, "tied: requires a table of embeddings"),
    ],
)
def test_impossible_settings_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        ELMo(**settings)


@pytest.mark.parametrize(
    "changes",
    [
        ["layout.kind=decoder"],
        ["objective.kind=causal"],
        ["model.kind=fixed_window"],
        ["layout.kind=encoder", "objective.kind=masked"],
    ],
)
def test_a_bidirectional_layout_requires_its_objective_and_model(changes: list[str]) -> None:
    with pytest.raises(UserError, match=r"layout.kind: layout 'bidirectional', .* each require"):
        load_recipe("elmo_tiny", changes)
