"""The references of the speed run train on our rows, and are judged as our models are."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch.nn import functional as F

import foreword
from foreword.data.prepared_text import PreparedText
from foreword.runs.recipe import load_recipe

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"
RECIPES = {"causal": "modern_decoder_tiny", "masked": "modern_encoder_tiny"}


@pytest.fixture(scope="module")
def shards(tmp_path_factory: pytest.TempPathFactory) -> PreparedText:
    folder = tmp_path_factory.mktemp("speedrun")
    sentences = [f"The {n} cats of house {n % 7} sat on mat {n % 5}." for n in range(2000)]
    texts = [" ".join(sentences[n : n + 20]) for n in range(0, 2000, 20)]
    foreword.prepare(texts=texts, out=folder / "shards", kind="wordpiece", vocab=200)
    return PreparedText.load(folder / "shards")


@pytest.fixture(params=RECIPES)
def plain(
    request: pytest.FixtureRequest, shards: PreparedText, monkeypatch: pytest.MonkeyPatch
) -> Any:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    import speedrun_reference

    monkeypatch.setattr(torch, "compile", lambda model, dynamic: model)
    monkeypatch.setattr(speedrun_reference, "SIZE", {"d_model": 16, "layers": 1, "heads": 2})
    recipe = load_recipe(RECIPES[request.param])
    return speedrun_reference.PlainLoop(request.param, recipe, shards, 4)


@pytest.mark.full
def test_a_plain_loop_learns_in_the_steps_given(plain: Any) -> None:
    before = plain.loss(plain.recipe)
    assert len(plain.train(0, 3e-2, steps=60)) == 60
    assert plain.loss(plain.recipe) < before - 0.5


@pytest.mark.full
def test_a_plain_loop_is_judged_on_each_target(plain: Any) -> None:
    ids = torch.arange(2 * plain.recipe.packing.length).view(2, -1) % 190
    nats = plain._nats(ids, ids.roll(1, 1))
    at = torch.tensor([plain.recipe.packing.length + 3])
    alone = plain._model(ids, at, ids.roll(1, 1).flatten()[at])
    torch.testing.assert_close(nats[1, 3], alone)


def test_batches_of_a_plain_loop_have_one_shape(plain: Any) -> None:
    batches = [next(plain._batches) for _ in range(5)]
    assert len({tuple(part.shape for part in batch) for batch in batches}) == 1
    ids, at, targets = batches[0]
    counted = targets >= 0
    assert counted.any()
    if plain.objective == "causal":
        assert (ids.flatten()[at[counted] + 1] == targets[counted]).all()


def test_targets_that_do_not_count_leave_the_loss(plain: Any) -> None:
    ids, at, targets = next(plain._batches)
    longer = F.pad(at, (0, 3)), F.pad(targets, (0, 3), value=-100)
    torch.testing.assert_close(plain._model(ids, at, targets), plain._model(ids, *longer))
