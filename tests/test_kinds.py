from __future__ import annotations

from dataclasses import is_dataclass

import pytest

from foreword import kinds
from foreword.errors import UserError

FOLDERS = ("objectives", "layouts", "models", "nn/positions", "text/tokenizers", "data/packing")
FOLDERS += ("train/optimizers", "train/schedules", "nn/attentions", "nn/lm_heads")


@pytest.mark.parametrize("folder", FOLDERS)
def test_the_folder_is_the_list(folder: str) -> None:
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


def test_names_of_classes() -> None:
    assert kinds.class_name("span_corruption") == "spancorruption"
    assert kinds.class_name("t5_bias") == "t5bias"
    assert kinds.class_name("none") == "none_"


def test_a_wrong_name_suggests_the_nearest() -> None:
    with pytest.raises(UserError, match=r"objectives has no kind 'maskd'; did you mean 'masked'?"):
        kinds.load("objectives", "maskd")
    with pytest.raises(UserError, match=r"no kind 'xyz'; there is: .*masked"):
        kinds.load("objectives", "xyz")


def test_a_value_knows_its_kind() -> None:
    assert kinds.name_of(kinds.load("nn/positions", "none")()) == "none"
    assert kinds.name_of(kinds.load("layouts", "encoder_decoder")()) == "encoder_decoder"
