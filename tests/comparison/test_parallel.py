"""Parallel text is found with the read settings of the cells."""

from __future__ import annotations

from pathlib import Path

import pytest

from foreword.comparison.corpora import Corpora
from foreword.comparison.grid import load_grid
from foreword.data.text_files import ReadSettings
from foreword.errors import UserError

BOTH = ReadSettings(field="en", target="de")


def write(folder: Path) -> list[list[str]]:
    for name in ("train", "valid"):
        for side in ("en", "de"):
            (folder / f"{name}.{side}").write_text(f"{name} one\ntwo\n", encoding="utf-8")
    return [[str(folder / "train.en")], [str(folder / "valid.en")]]


def test_a_pair_to_train_on_and_to_hold_out_is_refused(tmp_path: Path) -> None:
    train, held = write(tmp_path)
    Corpora(train, tmp_path, lambda name: lambda *_: None, held, [BOTH])
    with pytest.raises(UserError, match="in both --data and --heldout"):
        again = [str(tmp_path / "train.de")]
        Corpora(train, tmp_path, lambda name: lambda *_: None, again, [BOTH])


def test_the_translation_grid_reads_pairs(tmp_path: Path) -> None:
    train, held = write(tmp_path)
    grid = load_grid("translation", train, None, None, held)
    recipes = [grid.recipe(cell, 1) for cell in grid.cells]
    assert {recipe.read for recipe in recipes} == {BOTH}
    assert len({recipe.train.batch for recipe in recipes}) == 1
