"""Every kind inherits what its contract says of kinds in general."""

from __future__ import annotations

import pytest

from foreword.data.packing._contract import Packing
from foreword.data.readers._contract import Reader
from foreword.layouts._contract import Layout
from foreword.nn.attentions._contract import AttentionKind
from foreword.nn.model import Architecture
from foreword.nn.positions._contract import PositionKind
from foreword.objectives._contract import Objective
from foreword.settings import kinds
from foreword.text.tokenizers._contract import TokenizerKind
from foreword.train.embedding_init._contract import EmbeddingInit
from foreword.train.optimizers._contract import OptimizerSettings
from foreword.tuning.tasks._contract import Task

CONTRACTS = {
    "data/packing": Packing,
    "data/readers": Reader,
    "layouts": Layout,
    "models": Architecture,
    "nn/attentions": AttentionKind,
    "nn/positions": PositionKind,
    "objectives": Objective,
    "text/tokenizers": TokenizerKind,
    "train/embedding_init": EmbeddingInit,
    "train/optimizers": OptimizerSettings,
    "tuning/tasks": Task,
}
CASES = [(folder, name) for folder in CONTRACTS for name in kinds.names(folder)]


@pytest.mark.parametrize(("folder", "name"), CASES)
def test_a_kind_keeps_its_contract(folder: str, name: str) -> None:
    kind = kinds.load(folder, name)
    assert issubclass(kind, CONTRACTS[folder])
    assert not kind.__abstractmethods__
