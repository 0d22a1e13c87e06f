from __future__ import annotations

import json
from pathlib import Path

import pytest

import foreword
from foreword.cli.main import run
from foreword.demonstration import installed, walkthrough
from tests.cli.conftest import Refused
from tests.demonstration.packages import SUBJECTS, make


@pytest.fixture
def out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    packages = make(tmp_path / "lib")
    monkeypatch.setattr(installed, "packages", lambda: packages)
    monkeypatch.setattr(walkthrough, "QUICK", walkthrough.replace(walkthrough.QUICK, steps=4))
    return tmp_path / "demo"


@pytest.mark.full
def test_a_second_demo_reuses_the_first(out: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["demo", "--quick", "--json", "--out", str(out)]) == 0
    first = json.loads(capsys.readouterr().out)
    assert set(first["text"]["labels"]) == set(SUBJECTS)
    assert first["pretraining"]["steps"] == 4
    assert len(first["blanks"]) == len(walkthrough.BLANKS)
    ways = [(row["start"], row["strategy"]) for row in first["tuning"]["rows"]]
    assert ways == [
        ("pretrained", "full"),
        ("pretrained", "frozen"),
        ("from scratch", "full"),
        ("no network", "bag of words (TF-IDF, logistic regression)"),
        ("no model", "majority class"),
    ]
    page = (out / "report.html").read_text(encoding="utf-8")
    assert "bag of words" in page
    assert "unigram counts" in page
    assert "nats per masked token: the model gives the right token" in page

    metrics = (out / "run" / "metrics.jsonl").read_bytes()
    assert run(["demo", "--quick", "--out", str(out)]) == 0
    output = capsys.readouterr()
    assert output.err.count("done before") == 2
    assert "read before" in output.err and "foreword fill" in output.err
    assert "pretrained, full" in output.out and "report.html" in output.out
    again = foreword.demo(out, quick=True, progress=False)
    assert again.data()["pretraining"] == first["pretraining"]
    assert (out / "run" / "metrics.jsonl").read_bytes() == metrics


@pytest.mark.full
def test_a_killed_demo_continues(out: Path, capsys: pytest.CaptureFixture[str]) -> None:
    quick = walkthrough.Demo(out, is_quick=True)
    quick.read()
    (out / "run").mkdir()  # killed after the first file of the run
    (out / "run" / "run.json").write_text('{"foreword": "0.1.0"}', encoding="utf-8")
    assert not quick.is_pretrained()
    assert run(["demo", "--quick", "--out", str(out)]) == 0
    assert quick.is_pretrained()
    assert "read before" in capsys.readouterr().err


def test_mistakes_are_reported_in_one_line(
    out: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], refused: Refused
) -> None:
    assert "holds something else than a demo" in refused("demo", "--out", str(tmp_path / "lib"))
    walkthrough.Demo(out)
    assert run(["demo", "--quick", "--out", str(out)]) == 2
    error = capsys.readouterr().err
    assert "holds another version's demo, or one of another size" in error
    assert error.count("\n") == 1


def test_proposed_commands_are_verbs(out: Path) -> None:
    from foreword.cli.main import verbs
    from foreword.demonstration.narration import next_commands

    assert all(command.split()[0] == "foreword" for command in next_commands(out))
    assert all(command.split()[1] in verbs() for command in next_commands(out))
