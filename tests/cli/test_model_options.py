from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

from foreword.cli.main import run as command
from foreword.nn.init import initialise
from foreword.runs.recipe import Recipe
from foreword.settings import config
from foreword.text.tokenizers.word import Word
from foreword.train import checkpoint
from tests.cli.conftest import Refused, Told

TEXTS = ["The cat sat on the mat.", "A dog ran to the river and the bird sang."]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs")
    tokenizer = Word(min_count=1).train(TEXTS)
    for name, objective in (("encoder", "masked"), ("decoder", "causal")):
        table: dict[str, Any] = {
            "description": f"A tiny {name}",
            "model": {"kind": "transformer", "d_model": 16, "layers": 1, "heads": 2},
            "objective": objective,
            "layout": name,
            "packing": {"kind": "documents", "length": 16, "bos": "[CLS]"},
        }
        recipe = config.build(Recipe, table)
        model = recipe.build(tokenizer.vocab)
        initialise(model, 1)
        run = folder / name
        checkpoint.save(run / "checkpoints" / "step-00000001", model, None, {"step": 1})
        (run / "recipe.toml").write_text(recipe.dumps(), encoding="utf-8")
        (run / "run.json").write_text("{}", encoding="utf-8")
        tokenizer.save(run / "tokenizer")
    return folder


@pytest.mark.full
def test_unknown_words_of_a_prompt_are_said(
    runs: Path, capsys: pytest.CaptureFixture[str], told: Told
) -> None:
    for words in (["fill", "encoder", "The [MASK] zebra."], ["generate", "decoder", "The zebra ."]):
        told(words[0], str(runs / words[1]), words[2])
        assert command([words[0], str(runs / words[1]), words[2]]) == 0
        assert "tokens of the text are [UNK]: unknown to the model\n" in capsys.readouterr().err
    told("generate", str(runs / "decoder"), "The dog")
    assert command(["generate", str(runs / "decoder"), "The dog"]) == 0
    assert "[UNK]" not in capsys.readouterr().err


def test_fill_proposes_words_for_each_blank(
    runs: Path, capsys: pytest.CaptureFixture[str], told: Told, refused: Refused
) -> None:
    encoder = str(runs / "encoder")
    result = told("fill", encoder, "The [MASK] sat on the [MASK].", "--top", "3")
    assert [len(blank) for blank in result["blanks"]] == [3, 3]
    assert command(["fill", encoder, "The [MASK] sat."]) == 0
    assert result["blanks"][0][0]["text"] in capsys.readouterr().out
    assert "no [MASK]" in refused("fill", encoder, "The cat sat.")
    assert "foreword generate" in refused("fill", str(runs / "decoder"), "A [MASK].")
    assert "there is: auto, cpu" in refused("fill", encoder, "A [MASK].", "--device", "cp")


def test_generate_continues_a_prompt_reproducibly(
    runs: Path, capsys: pytest.CaptureFixture[str], told: Told, refused: Refused
) -> None:
    decoder = str(runs / "decoder")
    words = ("generate", decoder, "The cat", "--tokens", "5", "--samples", "2", "--seed", "7")
    result = told(*words)
    assert len(result) == 2 and result == told(*words)
    assert all(one["tokens"] <= 5 and one["prompt"] == "The cat" for one in result)
    assert command(list(words)) == 0
    assert ("The cat" + result[0]["text"]) in capsys.readouterr().out
    assert "top-p" in refused(*words, "--top-p", "2")
    assert "fills blanks" in refused("generate", str(runs / "encoder"), "The cat")


def test_score_sums_the_tokens_of_a_text_or_file(
    runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], told: Told, refused: Refused
) -> None:
    decoder = str(runs / "decoder")
    text = tmp_path / "text.txt"
    text.write_text(TEXTS[0], encoding="utf-8")
    one = told("score", decoder, TEXTS[0])
    whole = told("score", decoder, "--file", str(text))
    assert sum(token["nats"] for token in one["scored"]) == pytest.approx(one["nats"])
    assert whole["nats"] == pytest.approx(one["nats"], rel=1e-5)
    assert whole["bytes"] == len(TEXTS[0])
    assert command(["score", decoder, TEXTS[0]]) == 0
    assert "perplexity" in capsys.readouterr().out
    assert command(["score", str(runs / "encoder"), TEXTS[0]]) == 0
    output = capsys.readouterr().out
    assert "pseudo-perplexity" in output and "bits per byte" not in output
    assert told("score", str(runs / "encoder"), TEXTS[0])["bits_per_byte"] is None
    assert "not both" in refused("score", decoder, TEXTS[0], "--file", str(text))
    assert "--file" in refused("score", decoder)
    assert "stride" in refused("score", decoder, TEXTS[0], "--stride", "0")


def test_score_and_evaluate_read_text_as_options_say(
    runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], told: Told, refused: Refused
) -> None:
    decoder, folder = str(runs / "decoder"), tmp_path / "texts"
    folder.mkdir()
    lines = [json.dumps({"body": text}) for text in (*TEXTS * 9, "", "zebra")]
    (folder / "a.jsonl").write_text("\n".join(lines), encoding="utf-8")
    (folder / "b.pdf").write_text("x")
    (tmp_path / "c.txt").write_bytes(b"caf\xe9\n\nA dog.\n" * 20)
    for verb in ("score", "evaluate"):
        for name, fault in (("texts", "--field NAME"), ("c.txt", "--errors replace")):
            assert fault in refused(verb, decoder, "--file", str(tmp_path / name))
        option = {"score": "--file", "evaluate": "--data"}[verb]
        text = [TEXTS[0]] * (verb == "score")
        error = refused(verb, decoder, *text, "--field", "x")
        assert f"--field: requires {option}" in error
    assert command(["score", decoder, "--file", str(folder), "--field", "body"]) == 0
    output = " ".join(capsys.readouterr().out.split())
    assert "documents 19 files read 1 empty documents 1 files not read (1 .pdf) 1" in output
    more = ["--errors", "replace", "--documents", "line"]
    result = told("score", decoder, "--file", str(tmp_path / "c.txt"), *more)
    assert result["documents"] == 40
    assert (result["read"]["empty_documents"], result["read"]["replaced_bytes"]) == (20, 20)
    words = ["evaluate", decoder, "--data", str(folder), "--field", "body"]
    assert command(words) == 0
    assert "1 unknown tokens; 1 empty documents; 1 files not read (1 .pdf)" in (
        capsys.readouterr().err
    )
    assert "--documents: file, paragraph or line" in refused(*words, "--documents", "page")


def test_evaluate_saves_its_result_and_report_shows_it(
    runs: Path, tmp_path: Path, told: Told, refused: Refused
) -> None:
    decoder = runs / "decoder"
    text = tmp_path / "more.txt"
    text.write_text("\n".join(TEXTS * 20), encoding="utf-8")
    assert "--data" in refused("evaluate", str(decoder))
    result = told("evaluate", str(decoder), "--file", str(text))
    kept = decoder / "evaluations" / "evaluate-more.txt.json"
    assert json.loads(kept.read_text(encoding="utf-8")) == result
    row, scored = result["rows"][0], told("score", str(decoder), "--file", str(text))
    nats, size = row["loss"] * row["predictions"], len(text.read_bytes())
    assert nats == pytest.approx(scored["nats"], rel=0.01)  # rows and windows begin elsewhere
    assert row["bits_per_byte"] == pytest.approx(nats / size / math.log(2), rel=1e-4)
    page = Path(told("report", str(decoder))["page"])
    assert f"<h2>Loss on {text.name}</h2>" in page.read_text(encoding="utf-8")
    assert "not a run folder" in refused("report", str(tmp_path))


@pytest.mark.full
def test_unknown_tokens_are_noted_beside_the_figures(
    runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], told: Told
) -> None:
    decoder, text = str(runs / "decoder"), tmp_path / "zebras.txt"
    text.write_text("The zebra sat.\n" * 20, encoding="utf-8")
    message = "25 % of the tokens are [UNK]: the figures flatter the model"
    assert command(["score", decoder, "The zebra sat."]) == 0
    assert message in capsys.readouterr().err
    for more in ([], ["--rows", "1"]):
        assert command(["evaluate", decoder, "--data", str(text), *more]) == 0
        assert message in capsys.readouterr().err
    assert told("evaluate", decoder, "--data", str(text))["notes"] == [message]
    page = Path(told("report", decoder, "--out", str(tmp_path / "x.html"))["page"])
    assert message in page.read_text(encoding="utf-8")


@pytest.mark.full
def test_show_lists_kinds_recipes_and_families(
    capsys: pytest.CaptureFixture[str], told: Told, refused: Refused
) -> None:
    result = told("show", "kinds")
    assert result["nn/positions"]["none"].startswith("No positions")
    assert all(line for lines in result.values() for line in lines.values())
    assert {"objectives", "models", "nn/attentions", "tuning/tasks"} <= set(result)
    assert not {"cli", "train", "nn", "demo"} & set(result)
    sizes = {recipe["recipe"]: recipe["parameters"] for recipe in told("show", "recipes")}
    assert set(sizes) == set(config.RECIPES.names())
    families = {family["family"]: family for family in told("show", "families")}
    assert "" not in families, f"name their family: {families['']['recipes']}"
    assert all(all(family["paper"]) for family in families.values()), "a recipe names its paper"
    listed = [recipe for family in families.values() for recipe in family["recipes"]]
    assert sorted(listed) == config.RECIPES.names()
    assert families["GPT-2"]["positions"] == ["learned"]
    assert families["BERT"]["hugging_face"] == "bert"
    grids = {grid["grid"]: grid for grid in told("show", "grids")}
    assert set(grids) == set(config.GRIDS.names())
    assert "CoLA" in grids["objectives"]["tasks"]
    one = told("show", "gpt2_tiny", "--set", "model.layers=3")
    assert one["settings"]["model"]["layers"] == 3 and one["parameters"] > sizes["gpt2_tiny"]
    assert command(["show", "gpt2_tiny"]) == 0
    assert '[model]\nkind = "transformer"' in capsys.readouterr().out
    assert "did you mean 'gpt2_tiny'" in refused("show", "gpt2_tini")
    assert "did you mean 'minimal_pairs'" in refused("show", "blimpp")
