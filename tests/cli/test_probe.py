from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from foreword.cli.main import run as command
from tests.cli.conftest import Told

from ..probes.conftest import make_run, refused, text, tokenizer  # noqa: F401 - fixtures

Make = Callable[[str], Path]
Refuse = Callable[..., str]


@pytest.mark.full
def test_several_runs_are_shown_in_one_table(
    make_run: Make,  # noqa: F811
    text: Path,  # noqa: F811
    tmp_path: Path,
    told: Told,
) -> None:
    names = ["decoder", "lstm", "elmo", "encoder_decoder"]
    runs = [str(make_run(family)) for family in names]
    words = [
        "probe",
        *runs,
        "gradient_reach",
        "--set",
        "positions=4",
        "--data",
        str(text),
    ]
    out = tmp_path / "out"
    told = told(*words, "--out", str(out), "--untrained")
    expected = [shown for name in names for shown in (name, f"{name}, untrained")]
    assert [row["run"] for row in told["rows"]] == expected
    assert json.loads((out / "probe-gradient_reach.json").read_text("utf-8")) == told
    assert (out / "probe-gradient_reach.png").read_bytes().startswith(b"\x89PNG")
    layers = {row["run"]: row["layer"] for row in told["rows"]}
    assert layers["lstm"] == layers["elmo"] == 1 and layers["decoder"] == 0
    assert not (Path(runs[0]) / "evaluations").exists()


def test_the_result_is_saved_in_the_run_and_shown_in_its_report(
    make_run: Make,  # noqa: F811
    capsys: pytest.CaptureFixture[str],
) -> None:
    run = make_run("encoder")
    assert command(["probe", str(run), "word_in_context"]) == 0
    captured = capsys.readouterr()
    assert "apart" in captured.out and "saved to" in captured.err
    assert (run / "evaluations" / "probe-word_in_context.png").is_file()
    assert command(["report", str(run)]) == 0
    page = (run / "report.html").read_text("utf-8")
    assert "apart" in page and page.count('<img src="data:image/png;base64,') == 1
    assert "shows no states" not in page and "bootstrap draws over words" in page


def test_mistakes_are_reported_in_one_line(
    make_run: Make,  # noqa: F811
    refused: Refuse,  # noqa: F811
    text: Path,  # noqa: F811
    tmp_path: Path,
) -> None:
    run = make_run("decoder")
    assert "did you mean 'gradient_reach'" in refused("probe", run, "gradient_reech")
    reach = ("probe", run, "gradient_reach")
    line = refused("probe", run, "attention", "--set", "sentense=he sat")
    assert "--set sentense: kind 'attention' has no such" in line
    assert "did you mean 'sentence'?" in line
    assert "--set rows: must be a whole number from 1" in refused(*reach, "--set", "rows=0")
    assert "name a text with --data" in refused(*reach)
    assert "no layer 7: it has layers 0 to 2" in refused(*reach, "--data", text, "--set", "layer=7")
    short = tmp_path / "short.txt"
    short.write_text("the bank", encoding="utf-8")
    assert "do not fill one row of 24" in refused(*reach, "--data", short)
    words = ("probe", run, "word_in_context")
    assert "brings its own sentences" in refused(*words, "--data", text)
    assert "knows none of the 17 words" in refused(*words, "--set", "words=korean")
    assert "no such folder" in refused("probe", tmp_path / "none", "gradient_reach")


@pytest.mark.full
def test_results_of_other_settings_get_files_of_their_own(
    make_run: Make,  # noqa: F811
    text: Path,  # noqa: F811
) -> None:
    run = make_run("encoder")
    words = ["probe", str(run), "gradient_reach", "--data", str(text), "--quiet"]
    for positions in (4, 5, 4):
        assert command([*words, "--set", f"positions={positions}"]) == 0
    files = sorted((run / "evaluations").glob("*.json"), key=lambda file: file.stem)
    names = [file.stem for file in files]
    assert names == ["probe-gradient_reach", "probe-gradient_reach-2"]
    saved = [json.loads(file.read_text("utf-8")) for file in files]
    assert [content["name"] for content in saved] == names
    assert [content["settings"]["positions"] for content in saved] == [4, 5]
    assert all(file.with_suffix(".png").is_file() for file in files)


def test_an_n_gram_has_no_random_copy_beside_the_others(
    make_run: Make,  # noqa: F811
    refused: Refuse,  # noqa: F811
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    plain = tmp_path / "counted.txt"
    plain.write_text("he sat by the bank\nthe river was old\n" * 4, encoding="utf-8")
    other = tmp_path / "other.txt"
    other.write_text("the bank was old\n", encoding="utf-8")
    counted = tmp_path / "counted"
    names = ["--data", str(plain), "--heldout", str(other), "--out", str(counted), "--quiet"]
    assert command(["pretrain", "ngram_ptb", "--set", "model.order=2", *names]) == 0
    asked = tmp_path / "p.jsonl"
    asked.write_text('{"text": "he sat by the bank"}\n{"text": "the river"}\n', encoding="utf-8")
    suite = ["lambada", "--data", str(asked), "--untrained"]
    capsys.readouterr()
    assert "without weights to randomise" in refused("probe", counted, *suite)
    runs = [str(make_run("decoder")), str(counted)]
    assert command(["probe", *runs, *suite, "--json", "--quiet"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert [row["run"] for row in told["rows"]] == ["decoder", "decoder, untrained", "counted"]
    assert any("counted: a count-based model without weights" in note for note in told["notes"])
