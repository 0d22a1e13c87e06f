"""Parallel text on the command line: every verb."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import numpy as np
import pytest

from foreword.cli.main import run as command
from foreword.evaluation import alignment, translation
from foreword.train import log
from tests.cli.conftest import Refused, Told

WORDS = {"a": "ein", "dog": "Hund", "cat": "Kater", "man": "Mann", "runs": "rennt", "sees": "sieht"}
SENTENCES = [f"a {x} {verb} a {y}" for x in WORDS for verb in ("runs", "sees") for y in WORDS]

RECIPE = """
description = "A tiny translator"
[tokenizer]
kind = "word"
min_count = 1
[read]
field = "en"
target = "de"
[packing]
kind = "parallel"
length = 48
[model]
kind = "{model}"
d_model = 16
layers = 1
[objective]
kind = "translate"
[layout]
kind = "encoder_decoder"
start = "<s>"
[train]
batch = 2
steps = 3
evaluations = 1
device = "cpu"
"""


def write(folder: Path, sentences: list[str], name: str = "train") -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{name}.en").write_text("\n".join(sentences) + "\n")
    target = [" ".join(WORDS[word] for word in sentence.split()) for sentence in sentences]
    (folder / f"{name}.de.gz").write_bytes(gzip.compress(("\n".join(target) + "\n").encode()))
    return folder / f"{name}.en"


def recipe(folder: Path, model: str) -> str:
    (folder / f"{model}.toml").write_text(RECIPE.format(model=model))
    return str(folder / f"{model}.toml")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The text, the recipes, and a run of each model."""
    folder = tmp_path_factory.mktemp("made")
    train, held = write(folder, SENTENCES), write(folder, SENTENCES[5:17], "valid")
    for model in ("seq2seq", "encoder_decoder"):
        words = ["pretrain", recipe(folder, model), "--data", str(train)]
        out = ["--out", str(folder / model)]
        assert command([*words, "--heldout", str(held), *out]) == 0
    return folder


@pytest.mark.product(few=1)
@pytest.mark.parametrize("model", ["seq2seq", "encoder_decoder"])
def test_pretraining_on_pairs_records_counts_and_samples(made: Path, model: str) -> None:
    run = made / model
    counts = json.loads((run / "run.json").read_text())["data"]["counts"]
    assert (counts["train"]["documents"], counts["heldout"]["documents"]) == (72, 12)
    last = [record for record in log.read(run) if record["kind"] == "heldout"][-1]
    assert last["predictions"] == 12 * 6  # five words and the end
    shown = [record for record in log.read(run) if record["kind"] == "samples"][-1]["samples"]
    assert {sample["prompt"] for sample in shown} <= set(SENTENCES)


@pytest.mark.product(few=1)
@pytest.mark.parametrize("model", ["seq2seq", "encoder_decoder"])
def test_translate_scores_and_plots_an_alignment(
    made: Path, model: str, capsys: pytest.CaptureFixture[str], told: Told
) -> None:
    run, source = str(made / model), str(made / "valid.en")
    words = ["translate", run, "--source", source, "--beams", "2", "--tokens", "8"]
    scored = ["--reference", str(made / "valid.de.gz"), "--alignment", "3"]
    result = told(*words, *scored)
    row = result["rows"][0]
    assert row["lines"] == len(result["translations"]) == 12
    assert 0 <= row["bleu"] <= 100 and 0 <= row["chrf"] <= 100
    assert "tok:13a" in result["signatures"][0]
    kept = [Path(path) for path in result["kept"]]
    assert [path.name for path in kept] == [
        "translate-valid.en.txt",
        "translate-valid.en-line-3.png",
    ]
    assert kept[0].read_text().splitlines() == result["translations"]
    assert kept[1].read_bytes().startswith(b"\x89PNG")
    assert json.loads(kept[0].with_suffix(".json").read_text())["rows"] == result["rows"]
    capsys.readouterr()
    assert command(words) == 0
    assert capsys.readouterr().out.splitlines() == result["translations"]


def test_impossible_options_of_translate_are_refused(
    made: Path, refused: Refused, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, source = str(made / "seq2seq"), str(made / "valid.en")
    (made / "short.de").write_text("ein Hund\n")
    words = ("translate", run, "--source", source)
    error = refused(*words, "--reference", str(made / "short.de"))
    assert f"{source}:2: there is no line 2 in {made / 'short.de'}" in error
    assert "has no text in line 99" in refused(*words, "--alignment", "99")
    monkeypatch.setattr(translation, "translate", None)  # all this is said before
    error = refused(*words, "--alignment", "1", "--layer", "4")
    assert "--layer 4: layers 1 to 1 attend to the source" in error
    assert "--layer: requires --alignment" in refused(*words, "--layer", "1")
    monkeypatch.setattr(alignment, "_source_attentions", lambda backbone: [])
    assert "has no attention, so there is no alignment; models that can" in refused(
        *words, "--alignment", "1"
    )
    assert "--beams: must be a whole number from 1" in refused(*words, "--beams", "0")
    gone = refused("translate", run, "--source", str(made / "none.en"))
    assert "No such file" in gone


@pytest.mark.full
def test_empty_lines_stay_empty_lines(made: Path, told: Told) -> None:
    (made / "gaps.en").write_text("a dog runs\n\n  \na cat\n")
    run, source = str(made / "seq2seq"), str(made / "gaps.en")
    result = told("translate", run, "--source", source, "--beams", "2")
    assert len(result["translations"]) == 4
    assert result["translations"][1:3] == ["", ""]
    assert result["rows"][0]["empty_lines"] == 2


def test_bytes_that_are_not_utf8_can_be_replaced(
    made: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], refused: Refused
) -> None:
    (tmp_path / "odd.en").write_bytes(b"the cat\n\xff dog\n")
    words = [
        "translate",
        str(made / "seq2seq"),
        "--source",
        str(tmp_path / "odd.en"),
        "--beams",
        "1",
    ]
    assert "use --errors replace" in refused(*words)
    assert command([*words, "--errors", "replace"]) == 0
    assert "1 bytes replaced" in capsys.readouterr().err


def test_evaluate_and_score_read_pairs(made: Path, told: Told, refused: Refused) -> None:
    run, data = str(made / "seq2seq"), str(made / "valid.en")
    result = told("evaluate", run, "--file", data)
    again = told("evaluate", run)
    assert result["rows"][0]["loss"] == pytest.approx(again["rows"][0]["loss"], rel=1e-6)
    scored = told("score", run, "ein Hund rennt", "--source", "a dog runs")
    assert scored["tokens"] == 4
    both = told("score", run, "--file", data)
    assert (both["documents"], both["tokens"]) == (12, 12 * 6)
    assert both["nats"] / both["tokens"] == pytest.approx(again["rows"][0]["loss"], rel=1e-5)
    beams = "generate", run, "a dog runs", "--beams", "3"
    assert "--steps: cannot be combined with --beams" in refused(*beams, "--steps", "4")
    texts = told(*beams, "--samples", "3")
    assert len({text["text"] for text in texts}) == 3
    checked = told("check", str(made / "seq2seq.toml"), "--data", str(made / "train.en"))
    assert checked["data"]["tokens"] + checked["data"]["heldout_tokens"] == 10 * len(SENTENCES)
    shown = checked["batch"][0]
    assert shown["source"][0]["text"] == "a"
    assert shown["targets"][0]["text"] == "ein"


def test_prepared_pairs_are_trained_on(made: Path, told: Told) -> None:
    out = made / "shards"
    words = ["prepare", str(made / "train.en"), "--field", "en", "--target", "de"]
    manifest = told(*words, "--kind", "word", "--heldout", "0.1", "--out", str(out))
    assert manifest["read"]["target"] == "de"
    made_run = ["pretrain", str(made / "seq2seq.toml"), "--data", str(out)]
    assert command([*made_run, "--out", str(made / "of_shards"), "--steps", "1"]) == 0


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (["packing.kind=documents"], "use packing.kind = 'parallel'"),
        (["model.kind=transformer"], "'encoder_decoder' requires model.kind"),
        (["read.target="], "no reader for such files"),
    ],
)
def test_incompatible_parts_are_refused_for_pairs(
    made: Path, tmp_path: Path, changes: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["pretrain", str(made / "seq2seq.toml"), "--data", str(made / "train.en")]
    sets = [word for change in changes for word in ("--set", change)]
    assert message in refused_last(capsys, *words, *sets, "--out", str(tmp_path / "out"))


def refused_last(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    """Return the last line of a command that fails after its first lines."""
    capsys.readouterr()
    assert command(list(words)) == 2
    return capsys.readouterr().err.splitlines()[-1]


def test_sides_of_different_lengths_are_refused_in_one_line(
    made: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = write(tmp_path / "text", SENTENCES)
    with file.open("a") as more:
        more.write("a dog\n")
    error = refused_last(
        capsys,
        "pretrain",
        str(made / "seq2seq.toml"),
        "--data",
        str(file),
        "--out",
        str(tmp_path / "out"),
    )
    assert f"{file}:73: there is no line 73 in" in error
    assert not (tmp_path / "out").exists()


def test_alignment_columns_are_summed_by_word() -> None:
    from foreword.evaluation.alignment import _sum_columns

    weights = np.array([[0.1, 0.2, 0.7], [0.5, 0.25, 0.25]])
    by_word = _sum_columns(weights, np.array([0, 0, 1]))
    np.testing.assert_allclose(by_word, [[0.3, 0.7], [0.75, 0.25]])


@pytest.mark.full
def test_cut_pairs_are_counted(
    made: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["pretrain", str(made / "seq2seq.toml"), "--data", str(made / "train.en")]
    out = ["--out", str(tmp_path / "out"), "--steps", "1", "--set", "packing.length=8"]
    assert command([*words, *out]) == 0
    documents = json.loads((tmp_path / "out" / "run.json").read_text())["data"]["counts"]["train"]
    message = f"{documents['documents']:,} pairs longer than a row are cut"
    assert message in capsys.readouterr().err
