"""A recipe with a continuation: its rate, budget and replay, from the model that it continues."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from foreword.interop.importing import open_starting_model
from foreword.planning.continuing import continued_recipe, with_text
from foreword.runs.recipe import Recipe, load_recipe
from tests.train import runs
from tests.tuning.runs import make_run

READ = 40 * 4 * 16  # tokens that the model was trained on


@pytest.fixture
def base(tmp_path: Path) -> Path:
    text = runs.write_text(tmp_path / "general")
    made = runs.table("encoder", steps=40)
    made["tokenizer"] = {"kind": "bpe", "vocab": 390}
    return runs.whole(runs.build(made), text, tmp_path / "base")


def continued(
    base: Path, text: str, *settings: str, has_budget: bool = False, is_extended: bool = False
) -> tuple[Recipe, list[str]]:
    """Return the recipe that continues a model on a text, and what is said of it."""
    file = base.parent / "new.jsonl"
    file.write_text("".join(f'{{"text": "{line}"}}\n' for line in text.splitlines()))
    trained, notes = open_starting_model(str(base)), list[str]()
    recipe = load_recipe("adapt_encoder", settings)
    recipe = continued_recipe(trained, recipe, settings, has_budget=has_budget)
    return with_text(trained, recipe, [str(file)], notes.append, is_extended=is_extended)[0], notes


def test_the_budget_is_the_lesser_of_epochs_and_share(base: Path) -> None:
    words = "the cat sat on the old house\n" * 200
    recipe, [note] = continued(base, words)
    assert recipe.train.tokens == pytest.approx(0.2 * READ, rel=0.1)
    assert "(20% of those that it was trained on), 20% of them from its own text" in note
    few, [note] = continued(base, words, "continuation.epochs=0.1")
    assert few.train.tokens < recipe.train.tokens  # type: ignore[operator]
    assert "(0.1 epochs of the new text)" in note
    _, [note] = continued(base, words[:290], "continuation.epochs=1")
    assert "(1 epoch of the new text)" in note
    own, notes = continued(base, words, has_budget=True)
    assert (own.train.tokens, notes) == (None, [])


def test_the_rate_is_a_share_of_the_models_unless_it_is_given(base: Path) -> None:
    peak = open_starting_model(str(base)).recipe.optimizer.lr
    assert continued(base, "the cat")[0].optimizer.lr == peak / 2
    assert continued(base, "the cat", "optimizer.lr=0.3")[0].optimizer.lr == 0.3
    elsewhere = make_run(base.parent / "imported")  # whose rate is not known
    assert continued(elsewhere, "the film")[0].optimizer.lr == 1e-4


def test_the_models_text_is_replayed_from_shards_or_files_or_not_at_all(base: Path) -> None:
    def own(**how: Any) -> tuple[dict[str, Any], list[str]]:
        recipe, notes = continued(base, "the cat", has_budget=True, **how)
        return {source.name: source.path for source in recipe.data.sources}, notes

    new, text = str(base.parent / "new.jsonl"), str(base.parent / "general")
    assert own()[0] == {"new": new, "own": str(base / "shards")}
    assert own(is_extended=True)[0] == {"new": new, "own": text}
    shutil.rmtree(base / "shards")
    assert own()[0] == {"new": new, "own": text}
    shutil.rmtree(text)
    assert own() == ({}, [f"no replay: the training text of {base} is not there"])


def test_a_text_that_the_tokenizer_cuts_into_many_pieces_is_noted(base: Path) -> None:
    notes = continued(base, "ribosomes phosphorylate enzymes\n" * 20)[1]
    assert any("the tokenizer fits this text badly" in note for note in notes)
