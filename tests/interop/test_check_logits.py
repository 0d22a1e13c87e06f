"""The check of logits finds wrong windows, blocks, segments and long distances."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from foreword.interop import exporting, importing
from foreword.interop.check_logits import LONGEST, _lengths, difference
from foreword.layouts.encoder_decoder import EncoderDecoder
from foreword.nn.attentions.bigbird import BigBird
from foreword.nn.attentions.window import Window
from foreword.runs.recipe import load_recipe
from foreword.runs.run_folder import open_run
from foreword.runs.trained_model import TrainedModel

from . import theirs

pytest.importorskip("transformers")


def differs(folder: Path, imported: TrainedModel, **model: Any) -> bool:
    """Whether the same weights under other settings are told from theirs."""
    recipe = replace(imported.recipe, model=replace(imported.recipe.model, **model))
    changed = recipe.build(imported.vocab)
    changed.load_state_dict(imported.model.state_dict())
    distance, greatest = difference(
        changed, recipe, imported.vocab, importing.family_in(imported.folder), folder
    )
    assert distance < 1e-5 * greatest or distance > 1e-2
    return distance > 1e-2


@pytest.mark.product(few=2)
@pytest.mark.parametrize(
    ("family", "changes"),
    [
        ("modernbert-turns", {"attention": Window(5)}),
        ("modernbert-turns", {"dense_every": 3}),
        ("longformer", {"attention": Window(5)}),
        ("big_bird", {"attention": BigBird(block=4, random=2, random_from="start", seed=1)}),
        ("big_bird", {"attention": BigBird(block=5, random=2, random_from="start")}),
        ("big_bird", {"attention": BigBird(block=4, random=1, random_from="start")}),
    ],
)
def test_a_wrong_attention_pattern_is_found(
    tmp_path: Path, family: str, changes: dict[str, Any]
) -> None:
    theirs.write(family, tmp_path)
    imported = importing.read(tmp_path)
    assert not differs(tmp_path, imported)
    assert differs(tmp_path, imported, **changes)


@pytest.mark.product(few=2)
@pytest.mark.parametrize("family", ["albert", "bert", "big_bird", "electra", "xlnet"])
def test_wrong_segments_are_found(tmp_path: Path, family: str) -> None:
    theirs.write(family, tmp_path)
    imported = importing.read(tmp_path)
    names = [name for name, _ in imported.model.named_parameters() if "segment" in name]
    assert names
    with torch.no_grad():
        for name in names:  # the last row is of the second one alone
            imported.model.get_parameter(name)[-1] *= 2
    distance, _ = difference(
        imported.model,
        imported.recipe,
        imported.vocab,
        importing.family_in(imported.folder),
        tmp_path,
    )
    assert distance > 1e-2


def test_a_wrong_distance_of_t5_is_found(tmp_path: Path) -> None:
    theirs.write("t5", tmp_path)
    imported = importing.read(tmp_path)
    assert not differs(tmp_path, imported)
    table = imported.model.get_parameter("backbone.encoder.position.table.weight")
    with torch.no_grad():
        table[15] += 1  # of distances of 128 and more
    distance, _ = difference(
        imported.model,
        imported.recipe,
        imported.vocab,
        importing.family_in(imported.folder),
        tmp_path,
    )
    assert distance > 1e-3


def test_a_wrong_decoder_start_of_t5_is_found(tmp_path: Path) -> None:
    theirs.write("t5", tmp_path)
    for start, name in ((0, "[PAD]"), (1, "</s>")):
        for file in (tmp_path / "config.json", tmp_path / "generation_config.json"):
            keys = json.loads(file.read_text()) | {"decoder_start_token_id": start}
            file.write_text(json.dumps(keys))
        imported = importing.read(tmp_path)
        assert imported.recipe.layout.start == name
        for other in ("[PAD]", "</s>"):
            recipe = replace(imported.recipe, layout=EncoderDecoder(other))
            distance, _ = difference(
                imported.model,
                recipe,
                imported.vocab,
                importing.family_in(imported.folder),
                tmp_path,
            )
            assert (distance > 1e-2) == (other != name)
        importing.save(imported, tmp_path / f"run{start}")
        out = tmp_path / f"out{start}"
        exporting.export(open_run(tmp_path / f"run{start}", "cpu"), out)
        assert json.loads((out / "config.json").read_text())["decoder_start_token_id"] == start
        assert importing.read(out).recipe.layout.start == name


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("modernbert_base", 353),  # a window of 128, blocks of 64, up to 288 densely
        ("longformer_base", 1089),
        ("bigbird_base", 769),  # up to 704 in full
    ],
)
def test_published_models_are_checked_beyond_their_dense_lengths(name: str, expected: int) -> None:
    longest = max(max(lengths) for lengths in _lengths(load_recipe(name)))
    assert longest == expected <= LONGEST
