from __future__ import annotations

from pathlib import Path

import pytest

from foreword.errors import UserError
from foreword.runs.corpus import corpus
from foreword.runs.recipe import load_recipe
from foreword.runs.run_folder import Run
from tests.train import runs


@pytest.mark.parametrize("recipe", ["lstm_tiny", "bert_tiny", "ngram_tiny"])
def test_text_of_one_repeated_token_is_refused(tmp_path: Path, recipe: str) -> None:
    text = tmp_path / "text.txt"
    text.write_text("a a a a\n\n" * 50)
    made = load_recipe(recipe, ["tokenizer={kind='word', vocab=200, min_count=1}"])
    first = runs.begin(made, text, tmp_path / "run")
    with pytest.raises(UserError, match="fewer than two distinct tokens"):
        corpus(Run(first), runs.stage)
    second = runs.begin(made, first / "shards", tmp_path / "other")  # shards made before
    with pytest.raises(UserError, match="fewer than two distinct tokens"):
        corpus(Run(second), runs.stage)


def test_a_tokenizer_killed_before_its_manifest_gets_one(tmp_path: Path) -> None:
    text = tmp_path / "text.txt"
    text.write_text("some words and some other words\n\n" * 200)
    made = load_recipe("lstm_tiny", ["tokenizer={kind='word', vocab=200, min_count=1}"])
    run = runs.begin(made, text, tmp_path / "run")
    corpus(Run(run), runs.stage)
    before = {path.name: path.read_bytes() for path in (run / "tokenizer").iterdir()}
    manifest = run / "tokenizer" / "manifest.json"
    manifest.rename(manifest.with_name(".manifest.json.part"))
    corpus(Run(run), runs.stage)
    assert {path.name: path.read_bytes() for path in (run / "tokenizer").iterdir()} == before
