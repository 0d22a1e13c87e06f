"""What can be known before the work is refused before it: no tokenizer is trained first."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from foreword import compare, pretrain, resume
from foreword.cli.main import run as command
from foreword.errors import UserError
from foreword.runs.recipe import Recipe
from foreword.settings import config
from tests.train import runs

ONE_SENTENCE = "documents have one sentence each"
CASES: dict[str, tuple[str, dict[str, Any], str]] = {
    "no GPU": ("encoder", {"train": {"device": "cuda"}}, "train.device: there is no 'cuda'"),
    "no pairs for a term": (
        "bert", {"packing": {"kind": "documents", "bos": "[CLS]", "eos": "[SEP]"}},
        "next_sentence classifies pairs of texts, and this packing makes none",
    ),
    "an end that ends no text": (
        "diffusion", {"objective": {"kind": "diffusion", "end": "<s>"}},
        "objective.end: '<s>' ends no text: packing.eos is ",
    ),
    "whole documents as sentences": (
        "bert", {"prepare": {"sentences": False}}, "set prepare.sentences=true",
    ),
    "one sentence each": ("bert", {"read": {"documents": "line"}}, ONE_SENTENCE),
    "one sentence in all": ("decoder", {"read": {"documents": "line"}}, "is a single sentence"),
    "no parallel text": (
        "encoder_decoder",
        {"packing": {"kind": "parallel", "length": 16}, "objective": {"kind": "translate"}},
        "read.target: packing 'parallel' requires parallel text",
    ),
}  # fmt: skip


@pytest.fixture(autouse=True)
def untrained(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the training of a tokenizer fail."""

    def train(*_: Any) -> None:
        raise AssertionError("a tokenizer was trained")

    for module in ("runs.corpus", "comparison.corpora"):
        monkeypatch.setattr(f"foreword.{module}.train_tokenizer", train)
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)


@pytest.fixture
def lines(tmp_path: Path) -> str:
    """A text whose lines are a sentence each."""
    path = tmp_path / "lines.txt"
    path.write_text("the cat sat on the mat.\n" * 200, encoding="utf-8")
    return str(path)


def changed(family: str, settings: dict[str, Any]) -> Recipe:
    """Return a tiny recipe with some settings replaced."""
    table = config.to_table(runs.recipe(family))
    for part, values in settings.items():
        table[part] = values if "kind" in values else table[part] | values
    return config.build(Recipe, table)


@pytest.mark.parametrize("case", CASES)
def test_a_run_is_refused_before_a_tokenizer_is_trained(
    case: str, lines: str, tmp_path: Path
) -> None:
    family, settings, message = CASES[case]
    with pytest.raises(UserError, match=message):
        pretrain(changed(family, settings), lines, tmp_path / "run", progress=False)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("case", CASES)
def test_a_cell_is_refused_before_a_tokenizer_is_trained(
    case: str, lines: str, tmp_path: Path
) -> None:
    family, settings, message = CASES[case]
    recipe = tmp_path / "mine.toml"
    recipe.write_text(changed(family, settings).dumps(), encoding="utf-8")
    grid = tmp_path / "grid.toml"
    grid.write_text('[[cells]]\nrecipe = "mine.toml"\n', encoding="utf-8")
    with pytest.raises(UserError, match=f"cell 'mine': .*{message}"):
        compare(grid, lines, tmp_path / "out", steps=1, progress=False)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("case", CASES)
def test_a_check_is_refused_before_a_tokenizer_is_trained(
    case: str, lines: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    family, settings, message = CASES[case]
    recipe = tmp_path / "mine.toml"
    recipe.write_text(changed(family, settings).dumps(), encoding="utf-8")
    assert command(["check", str(recipe), "--data", lines]) == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize("output", ["hierarchical_softmax", "negative_sampling_gensim"])
def test_a_missing_package_is_named_before_text_is_read(
    output: str, lines: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "gensim.models", None)
    settings = {"model.output": output}
    with pytest.raises(UserError, match=r"pip install 'foreword\[vectors\]'"):
        pretrain("word2vec_tiny", lines, tmp_path / "run", settings=settings, progress=False)


def test_a_run_on_a_device_that_is_gone_says_how_to_go_on(
    tmp_path: Path, text: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.undo()
    run = tmp_path / "run"
    pretrain(runs.recipe("encoder", steps=1), text, run, progress=False)
    monkeypatch.setattr("foreword.runs.run_folder.read_run", lambda _: (changed_device(run), {}))
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    with pytest.raises(UserError, match=r"was begun on .cuda., .* --from"):
        resume(run, progress=False)


def changed_device(run: Path) -> Recipe:
    """Return the recipe of a run as if it had been begun on a GPU."""
    recipe = config.load(Recipe, run / "recipe.toml")
    return config.build(Recipe, config.assign(config.to_table(recipe), ["train.device=cuda"]))
