"""Parameters and memory of a model, counted before it is built."""

from __future__ import annotations

import pytest
import torch

from foreword.errors import UserError
from foreword.runs import sizes
from foreword.runs.dry_run import dummy_vocab, shallow
from foreword.runs.recipe import Recipe, load_recipe
from foreword.runs.sizes import count_by_part, count_parameters, require_memory
from foreword.settings import config
from tests.train import runs

GIGABYTE = 10**9

TOO_LARGE: dict[str, tuple[list[str], str]] = {
    "layers": (["model.layers=1e9"], "smaller"),
    "layers of the decoder": (
        ["model.kind=encoder_decoder", "model.decoder_layers=1e9", "layout=encoder_decoder"],
        "smaller",
    ),
    "width": (["model.d_model=1e9", "model.heads=1"], "a smaller model"),
    "feed-forward": (["model.d_ff=2e9"], "a smaller model"),
    "heads": (["model.heads=1e9", "model.d_head=64", "model.position=alibi"], "a smaller model"),
    "vocabulary": (["tokenizer.vocab=2e9"], "a smaller tokenizer.vocab"),
    "batch": (["train.batch=2e9"], "a smaller train.batch"),
    "length": (["packing.length=2e9", "model.position=rotary"], "a smaller train.batch or packing"),
    "all": (["model.layers=1e9", "model.d_ff=2e9", "tokenizer.vocab=2e9"], "smaller"),
}


@pytest.mark.parametrize("name", TOO_LARGE)
def test_a_size_beyond_all_memory_is_refused(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sizes, "memory_of", lambda _: GIGABYTE // 5)
    settings, remedy = TOO_LARGE[name]
    table = config.to_table(runs.recipe("encoder", steps=2, device="cpu"))
    recipe = config.build(Recipe, config.assign(table, ["tokenizer=wordpiece", *settings]))
    with pytest.raises(UserError, match=f"^the run needs at least .*{remedy}"):
        require_memory(recipe)


@pytest.mark.parametrize(
    "name", ["gpt3_1.3b", "t5_grid_shared_lm", "albert_base", "elmo", "electra_base"]
)
def test_layers_are_counted_without_being_built(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    recipe = load_recipe(name)
    with torch.device("meta"):
        whole = count_by_part(recipe.build(dummy_vocab(recipe.tokenizer)))
    monkeypatch.setattr("foreword.runs.dry_run.FEW_LAYERS", 1)
    monkeypatch.setattr(sizes, "FEW_LAYERS", 1)
    if recipe.model.layers > 2:
        assert shallow(recipe)[0].model.layers == 1
    assert count_parameters(recipe) == whole


def test_layers_built_to_be_counted_are_not_initialised(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without weights that runs in Python, after an import of torch's compiler."""

    def fill(tensor: torch.Tensor, *given: object) -> None:
        raise AssertionError("a tensor was filled")

    for name in ("normal_", "uniform_"):
        monkeypatch.setattr(torch.Tensor, name, fill)
    assert count_parameters(load_recipe("bert_base"))["embedding"] > 1e7
    assert sum(count_parameters(load_recipe("elmo")).values()) > 1e7


def test_recipes_that_fit_are_not_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sizes, "memory_of", lambda _: 8 * GIGABYTE)
    for name in ("bert_base", "t5_base", "gpt2_medium", "lstm_medium_ptb", "ngram_5"):
        require_memory(load_recipe(name))
