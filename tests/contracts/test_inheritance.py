"""Every kind inherits what its contract says of kinds in general."""

from __future__ import annotations

import pytest

from foreword import kinds
from foreword.data.packing._contract import Packing
from foreword.layouts._contract import Layout
from foreword.nn.attention_kind import AttentionKind
from foreword.nn.model import Architecture
from foreword.nn.position import PositionKind
from foreword.objectives._contract import Objective
from foreword.tune.contracts import Task

CONTRACTS = {
    "data/packing": Packing,
    "layouts": Layout,
    "models": Architecture,
    "nn/attentions": AttentionKind,
    "nn/positions": PositionKind,
    "objectives": Objective,
    "tune/tasks": Task,
}
CASES = [(folder, name) for folder in CONTRACTS for name in kinds.names(folder)]


@pytest.mark.parametrize(("folder", "name"), CASES)
def test_a_kind_keeps_its_contract(folder: str, name: str) -> None:
    kind = kinds.load(folder, name)
    assert issubclass(kind, CONTRACTS[folder])
    assert not kind.__abstractmethods__
