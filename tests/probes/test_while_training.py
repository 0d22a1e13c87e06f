"""Probes of a run while it trains: they are recorded, and change nothing else."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import foreword
from foreword.cli.main import run as command
from foreword.errors import UserError
from foreword.probes._contract import Probe, ProbedModel
from foreword.probes._while_training import probe_of, probing, tables_of
from foreword.runs import run as running
from foreword.runs.provenance import read_state
from foreword.runs.run_folder import open_run
from foreword.settings import kinds
from foreword.train.hooks import Hook
from foreword.train.loop import Loop
from tests.train import runs
from tests.train.runs import Killed, Quiet, kill

MinimalPairs: Any = kinds.load("probes", "minimal_pairs")


@pytest.fixture(scope="module")
def words(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return runs.write_text(tmp_path_factory.mktemp("text"))


@pytest.fixture
def pairs(tmp_path: Path) -> Path:
    file = tmp_path / "pairs.jsonl"
    rows = [(f"the {noun} ran on", f"ran the {noun} on") for noun in runs.NOUNS]
    table = [{"sentence_good": good, "sentence_bad": bad} for good, bad in rows]
    file.write_text("".join(json.dumps(row) + "\n" for row in table), encoding="utf-8")
    return file


@dataclass
class Act(Hook):
    """Acts after a step."""

    step: int
    act: Callable[[], None]

    def after_step(self, loop: Loop) -> None:
        if loop.state.spent.steps == self.step:
            self.act()

    def run(self, loop: Loop) -> None:
        pass


def begin(
    words: Path, run: Path, *probes: str | Probe, family: str = "decoder", **train: int
) -> Path:
    inputs = running.Inputs((str(words),), probes=tables_of(probes))
    running.start(runs.recipe(family, **train), inputs, run)
    return run


def train(run: Path, step: int = -1, act: Callable[[], None] = lambda: None) -> list[str]:
    """Train to the end; `act` after a step. Return the warnings."""
    reporter = Quiet()
    assert running.train_run(run, reporter, hooks=[Act(step, act)], probing_of=probing)
    return reporter.warnings


@pytest.mark.product(few=1)
@pytest.mark.parametrize("family", ["decoder", "encoder", "transformer_xl"])
def test_weights_are_the_same_with_and_without_probes(
    words: Path, pairs: Path, tmp_path: Path, family: str
) -> None:
    tagged = tmp_path / "tagged.conllu"
    sentence = "1\tthe{0}DET{1}\n2\tcat{0}NOUN{1}\n\n".format("\t_\t", "\t_" * 6)
    tagged.write_text(sentence * 3, encoding="utf-8")
    probes = [f"minimal_pairs files={pairs}", f"tagging train={tagged} dev={tagged}"]
    probed = begin(words, tmp_path / "probed", *probes, family=family)
    plain = begin(words, tmp_path / "plain", family=family)
    train(probed)
    train(plain)
    assert runs.last_bytes(probed) == runs.last_bytes(plain)
    for kind in ("train", "heldout"):
        assert runs.logged(probed, kind) == runs.logged(plain, kind)


def test_the_untrained_model_and_each_evaluation_are_probed(
    words: Path, pairs: Path, tmp_path: Path
) -> None:
    probe = MinimalPairs(str(pairs))
    run = begin(words, tmp_path / "run", probe)
    train(run)
    records = runs.logged(run, "probes")
    assert [record["step"] for record in records] == [0, 4, 8, 12]
    # The last figure is that of the saved model.
    trained = open_run(run, "cpu")
    found = probe.measure([ProbedModel("m", trained)])
    assert records[-1]["minimal_pairs_accuracy"] == found.scores["m"]


@pytest.mark.product(few=1)
@pytest.mark.parametrize("steps", [(2,), (5, 9), (4,)])
def test_a_resumed_run_has_the_records_of_an_uninterrupted_one(
    words: Path, pairs: Path, tmp_path: Path, steps: tuple[int, ...]
) -> None:
    probe = f"minimal_pairs files={pairs}"
    whole, run = (begin(words, tmp_path / name, probe) for name in ("whole", "run"))
    train(whole)
    for step in steps:  # before the first checkpoint, and after later ones
        with pytest.raises(Killed):
            train(run, step, kill)
    train(run)
    assert runs.logged(run, "probes") == runs.logged(whole, "probes")
    assert runs.last_bytes(run) == runs.last_bytes(whole)


@pytest.mark.full
def test_a_probe_that_fails_later_is_noted_and_training_continues(
    words: Path, pairs: Path, tmp_path: Path
) -> None:
    run = begin(words, tmp_path / "run", f"minimal_pairs files={pairs}")
    notes = [note for note in train(run, 5, pairs.unlink) if "probes" in note]
    assert notes == [f"step 8: no more probes: probe.files: {pairs}: no such file or folder"]
    assert [record["step"] for record in runs.logged(run, "probes")] == [0, 4]


def test_a_model_of_counts_is_probed_once(words: Path, pairs: Path, tmp_path: Path) -> None:
    made = {
        "model": {"kind": "ngram", "order": 2},
        "objective": "causal",
        "layout": "decoder",
        "tokenizer": {"kind": "word", "min_count": 1},
        "packing": {"kind": "documents", "length": 16, "bos": "<s>", "eos": "</s>"},
        "read": {"documents": "line"},
        "train": {"device": "cpu"},
    }
    run = tmp_path / "run"
    inputs = running.Inputs((str(words),), probes=tables_of(f"minimal_pairs files={pairs}"))
    running.start(runs.build(made), inputs, run)
    train(run)
    (record,) = runs.logged(run, "probes")
    assert record["step"] == 1 and 0 <= record["minimal_pairs_accuracy"] <= 1


@pytest.mark.full
def test_the_command_shows_a_line_and_the_report_a_curve(
    words: Path, pairs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    recipe = tmp_path / "tiny.toml"
    recipe.write_text(runs.recipe().dumps(), encoding="utf-8")
    out = tmp_path / "run"
    words_of = ["pretrain", recipe, "--data", words, "--out", out, "--json"]
    probes = ["--probe", f"minimal_pairs files={pairs}", "--probe", f"minimal_pairs files={pairs}"]
    assert command([*map(str, words_of), *probes]) == 0
    captured = capsys.readouterr()
    assert "step       0  minimal pairs accuracy 0." in captured.err
    last = json.loads(captured.out)["last"]["probes"]
    assert last["step"] == 12
    assert last["minimal_pairs_accuracy"] == last["minimal_pairs_accuracy 2"]
    assert command(["report", str(out)]) == 0
    page = (out / "report.html").read_text("utf-8")
    assert "Probes while training" in page and "Minimal pairs accuracy" in page


def test_paths_are_stored_absolute(
    words: Path, pairs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "score").touch()  # the name of a column, which is no path
    table = tables_of("sentence_similarity file=pairs.jsonl")[0]
    assert table["file"] == str(pairs) and table["label"] == "score"
    assert probe_of("minimal_pairs files=*.jsonl") == MinimalPairs(str(tmp_path / "*.jsonl"))
    monkeypatch.chdir(tmp_path)
    run = begin(words, tmp_path / "run", "minimal_pairs files=pairs.jsonl")
    assert read_state(run)["probes"] == [
        {"kind": "minimal_pairs", "files": str(pairs), "limit": 100}
    ]


@pytest.mark.parametrize(
    ("probe", "message"),
    [
        ("minimal_pears files=x", "did you mean 'minimal_pairs'"),
        ("minimal_pairs", "probe.files: kind 'minimal_pairs' needs this setting"),
        ("minimal_pairs files=nowhere.jsonl", "probe.files: nowhere.jsonl: no such file"),
        ("minimal_pairs nowhere.jsonl", "expected settings as name=value, got 'nowhere.jsonl'"),
        ("minimal_pairs files='x", "No closing quotation"),
        ("", "expected a probe and its settings"),
        ("attention 'sentence=the cat'", "attention: it has no single figure for a curve"),
        ("word_in_context words=korean", "knows none of the 17 words"),
    ],
)
def test_a_probe_that_cannot_be_measured_is_refused_and_leaves_nothing(
    words: Path, tmp_path: Path, probe: str, message: str
) -> None:
    out = tmp_path / "run"
    with pytest.raises(UserError, match=message) as error:
        foreword.pretrain(runs.recipe(), str(words), out, probes=probe, progress=False)
    assert "\n" not in str(error.value)
    assert not out.exists()


@pytest.mark.full
def test_a_recipe_brings_probes_of_its_own(
    words: Path, pairs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(pairs.parent)
    (tmp_path / "decoder.toml").write_text(runs.recipe("decoder").dumps(), encoding="utf-8")
    recipe = tmp_path / "probed.toml"
    probe = '[[probes]]\nkind = "minimal_pairs"\nfiles = "pairs.jsonl"\n'
    recipe.write_text(f'extends = "decoder.toml"\n{probe}', encoding="utf-8")
    result = foreword.pretrain(
        recipe, words, tmp_path / "run", probes=f"minimal_pairs files={pairs} limit=2"
    )
    table, _ = read_state(result.run)["probes"]
    assert table["files"] == str(pairs)
    assert runs.logged(result.run, "probes")[-1].keys() >= {
        "minimal_pairs_accuracy",
        "minimal_pairs_accuracy 2",
    }
    with pytest.raises(UserError, match=r"probe\.files: none\.jsonl: no such file"):
        foreword.pretrain(
            recipe, words, tmp_path / "no", settings={"probes[0].files": "none.jsonl"}
        )
