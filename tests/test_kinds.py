from __future__ import annotations

from dataclasses import is_dataclass

import pytest

from foreword.data.packing._contract import Packing
from foreword.data.readers._contract import Reader
from foreword.errors import UserError
from foreword.layouts._contract import Layout
from foreword.nn.attentions._contract import MixerKind
from foreword.nn.model import Architecture
from foreword.nn.positions._contract import PositionKind
from foreword.objectives._contract import Objective
from foreword.settings import kinds
from foreword.text.tokenizers._contract import TokenizerKind
from foreword.train.embedding_init._contract import EmbeddingInit
from foreword.train.optimizers._contract import OptimizerSettings
from foreword.tuning.tasks._contract import Task

FOLDERS = ("objectives", "layouts", "models", "nn/positions", "text/tokenizers", "data/packing")
FOLDERS += ("train/optimizers", "train/parallel", "train/schedules", "nn/attentions", "nn/lm_heads")


CONTRACTS = {
    "data/packing": Packing,
    "data/readers": Reader,
    "layouts": Layout,
    "models": Architecture,
    "nn/attentions": MixerKind,
    "nn/positions": PositionKind,
    "objectives": Objective,
    "text/tokenizers": TokenizerKind,
    "train/embedding_init": EmbeddingInit,
    "train/optimizers": OptimizerSettings,
    "tuning/tasks": Task,
}


@pytest.mark.parametrize("folder", CONTRACTS)
def test_kinds_keep_the_contract_of_their_folder(folder: str) -> None:
    for name in kinds.names(folder):
        kind = kinds.load(folder, name)
        assert issubclass(kind, CONTRACTS[folder]), name
        assert not kind.__abstractmethods__, name


@pytest.mark.parametrize("folder", FOLDERS)
def test_kinds_are_the_files_of_their_folder(folder: str) -> None:
    files = {file.stem for file in (kinds.ROOT / folder).glob("[!_]*.py")}
    assert kinds.names(folder) == sorted(files)
    assert files


@pytest.mark.parametrize("folder", FOLDERS)
def test_every_file_holds_its_kind(folder: str) -> None:
    for name in kinds.names(folder):
        cls = kinds.load(folder, name)
        assert is_dataclass(cls)
        assert cls.__dataclass_params__.frozen, f"{folder}/{name}.py: settings are frozen"
        assert cls.__doc__, f"{folder}/{name}.py: says what it is"
        assert cls.__module__.endswith(f".{name}")


def test_class_names_follow_file_names() -> None:
    assert kinds.class_name("span_corruption") == "spancorruption"
    assert kinds.class_name("t5_bias") == "t5bias"
    assert kinds.class_name("none") == "none_"


def test_an_unknown_kind_suggests_the_nearest_name() -> None:
    with pytest.raises(UserError, match=r"objectives: no kind 'maskd'; did you mean 'masked'?"):
        kinds.load("objectives", "maskd")
    with pytest.raises(UserError, match=r"no kind 'xyz'; there is: .*masked"):
        kinds.load("objectives", "xyz")


def test_name_of_returns_the_kind() -> None:
    assert kinds.name_of(kinds.load("nn/positions", "none")()) == "none"
    assert kinds.name_of(kinds.load("layouts", "encoder_decoder")()) == "encoder_decoder"
