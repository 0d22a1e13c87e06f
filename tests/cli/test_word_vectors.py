"""The road of word vectors: pretrain, neighbours, probes, export and import, and mistakes."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from foreword.cli.main import run as command
from foreword.models.word_vectors import WordVectorsBackbone
from foreword.runs.run_folder import open_run
from tests.cli.conftest import Told

Refused = Callable[..., str]


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two topics, a word that comes once, and a document of its own for each sentence."""
    rng = np.random.default_rng(1)
    topics = (
        ["river", "lake", "water", "boat", "fish", "shore"],
        ["king", "queen", "crown", "court", "throne", "duke"],
    )
    lines = [" ".join(rng.choice(topics[n % 2], 12)) for n in range(300)]
    path = tmp_path_factory.mktemp("text") / "text.jsonl"
    path.write_text("".join(json.dumps({"text": line}) + "\n" for line in [*lines, "once"]))
    return path


@pytest.fixture(scope="module")
def run(text: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("runs") / "vectors"
    words = ["pretrain", "word2vec_tiny", "--data", str(text), "--out", str(out)]
    sets = ["model.subsample=0", "optimizer.lr=0.1", "prepare.heldout=0.1", "train.epochs=8"]
    assert command([*words, *(w for s in sets for w in ("--set", s))]) == 0
    return out


@pytest.fixture
def refused(capsys: pytest.CaptureFixture[str]) -> Refused:
    """Runs a command that must be refused in one line, and gives back the line."""

    def refuse(*words: object) -> str:
        capsys.readouterr()
        assert command([str(word) for word in words]) == 2
        lines = capsys.readouterr().err.splitlines()
        assert lines[-1].startswith("foreword: ")
        return lines[-1]

    return refuse


def test_a_run_of_word_vectors_has_one_checkpoint(run: Path) -> None:
    (folder,) = (run / "checkpoints").iterdir()
    assert {"weights.safetensors", "counts.npy"} <= {file.name for file in folder.iterdir()}
    records = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    assert [record["kind"] for record in records] == ["train", "heldout", "samples"]
    assert records[1]["loss"] < 3  # it has not learned where texts end
    before = (folder / "weights.safetensors").stat().st_mtime_ns
    assert command(["resume", str(run)]) == 0
    assert (folder / "weights.safetensors").stat().st_mtime_ns == before


def test_unknown_words_are_counted(run: Path) -> None:
    shards = json.loads((run / "run.json").read_text())["data"]["counts"]
    assert sum(split["unknown"] for split in shards.values()) == 1
    backbone = open_run(run, "cpu").model.backbone
    assert isinstance(backbone, WordVectorsBackbone)
    assert (backbone.counts > 0).sum() == 12


def test_neighbours_are_of_the_topic(run: Path, told: Told) -> None:
    result = told("neighbours", run, "River", "queen", "--top", "5")
    assert {near["word"] for near in result["River"]} == {"lake", "water", "boat", "fish", "shore"}
    assert {near["word"] for near in result["queen"]} == {
        "king",
        "crown",
        "court",
        "throne",
        "duke",
    }


def test_a_word_outside_the_vocabulary_is_refused(run: Path, refused: Refused) -> None:
    line = refused("neighbours", run, "rivers")
    near = "nearest in spelling: 'river', 'fish', 'water'"
    assert line == f"foreword: 'rivers' is not in the vocabulary; {near}"
    assert "an empty word has no neighbours" in refused("neighbours", run, "")
    assert "--top: must be a whole number from 1" in refused(
        "neighbours", run, "river", "--top", "0"
    )


def test_word_vectors_generate_and_score_texts(run: Path, tmp_path: Path, told: Told) -> None:
    assert command(["generate", str(run), "river", "--tokens", "3"]) == 0
    pairs = tmp_path / "pairs.jsonl"
    pairs.write_text('{"sentence_good": "king queen", "sentence_bad": "king boat"}\n')
    assert told("score", run, "king queen")
    assert told("probe", run, "blimp", "--data", pairs)["rows"]


def test_exported_vectors_are_imported_equal(
    text: Path, run: Path, tmp_path: Path, told: Told, refused: Refused
) -> None:
    path, back = tmp_path / "vectors.bin", tmp_path / "back"
    facts = told("export", run, "--format", "word2vec", "--binary", "--out", path)
    assert (facts["words"], facts["width"]) == (12, 16)
    told("import", path, "--format", "word2vec", "--out", back)
    expected = told("neighbours", run, "boat")
    assert told("neighbours", back, "boat") == expected
    assert "already exists" in refused("export", run, "--format", "word2vec", "--out", path)
    path.write_bytes(path.read_bytes()[:100])
    for verb, *more in (
        ["generate", "boat"],
        ["evaluate", "--file", text],
    ):
        assert "no output layer: the run predicts nothing" in refused(verb, back, *more)
    assert "cut short" in refused("import", path, "--format", "word2vec", "--out", tmp_path / "x")


def test_probes_read_lists_of_questions(run: Path, tmp_path: Path, told: Told) -> None:
    pairs, questions = tmp_path / "pairs.txt", tmp_path / "questions.txt"
    pairs.write_text("river lake 9\nriver king 1\nqueen throne 8\nboat pear 5\n")
    result = told("probe", run, "similarity", "--set", f"file={pairs}")
    (row,) = result["rows"]
    assert row["spearman"] > 0.8 and (row["pairs"], row["left_out"]) == (3, 1)
    questions.write_text(": gram1\nriver lake king queen\nriver pear king queen\n")
    result = told("probe", run, "analogies", "--set", f"file={questions}")
    assert [row["section"] for row in result["rows"]] == ["semantic", "syntactic", "all"]
    assert [row["left_out"] for row in result["rows"]] == [0, 1, 1]
    assert result["rows"][0]["accuracy"] is None


def test_the_report_says_trained_offline(run: Path) -> None:
    assert command(["report", str(run)]) == 0
    page = (run / "report.html").read_text(encoding="utf-8")
    assert "Trained offline on" in page and "What it says" in page
    assert "<h2>Learning" not in page


def test_losses_and_samples_are_printed(text: Path, capsys: pytest.CaptureFixture[str]) -> None:
    capsys.readouterr()
    words = pretrain(text, text.parent / "shown", "train.epochs=1", "prepare.heldout=0.1")
    assert command(words) == 0
    error = capsys.readouterr().err
    for part in ("words, 12 different ones; epochs: 1", "training loss", "held-out loss", "  ->  "):
        assert part in error


@pytest.mark.full
def test_lists_of_unknown_words_are_refused(
    run: Path, tmp_path: Path, told: Told, refused: Refused
) -> None:
    file, out = tmp_path / "list.txt", tmp_path / "out"
    file.write_text("rome italy paris france\n")
    words = ("probe", run, "--set", f"file={file}", "--out", out)
    message = "each has a word that is not in the vocabulary"
    assert f"no question could be asked: {message}" in refused(*words, "analogies")
    file.write_text("rome italy 9\nrome river 1\n")
    assert f"no pair could be compared: {message}" in refused(*words, "similarity")
    assert not out.exists()
    file.write_text("river lake 9\nriver king 1\nrome italy 3\n")
    (row,) = told(*words, "similarity")["rows"]
    assert row["spearman"] is None and row["pairs"] == 2  # of two it is always 1 or -1


def pretrain(text: Path, out: Path, *more: str) -> list[str]:
    words = ["pretrain", "word2vec_tiny", "--data", str(text), "--out", str(out)]
    return [*words, *(word for one in more for word in ("--set", one))]


def test_impossible_texts_and_budgets_are_refused(
    text: Path, tmp_path: Path, refused: Refused
) -> None:
    one = tmp_path / "one.txt"
    one.write_text("word word word word\n\n" * 50)
    out = tmp_path / "run"
    assert "fewer than two distinct tokens" in refused(*pretrain(one, out))
    assert not out.exists()
    assert "use --epochs 5 (train.epochs = 5) alone" in refused(
        *pretrain(text, out), "--steps", "3"
    )
    assert "use --epochs 5 (train.epochs = 5) alone" in refused(
        *pretrain(text, out, "train.epochs=1.5")
    )
    check = ("check", "word2vec_tiny", "--data", text)
    assert "has no steps to estimate by" in refused(*check)
    assert "window: must be a whole number from 1" in refused(
        *pretrain(text, out, "model.window=0")
    )
