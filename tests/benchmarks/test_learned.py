"""The tables of what models learned: measured once, kept, and what cannot be measured named."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest

from benchmarks import learned
from tests.tuning.runs import make_run, reviews

SUITES = """
[[asked]]
name = "Pairs"
kind = "minimal_pairs"
files = { files = "pairs.jsonl" }

[[asked]]
name = "Facts"
kind = "lama"
files = { files = "facts.jsonl" }

[[tuned]]
name = "Reviews"
task = { kind = "classify" }
train = "reviews.jsonl"
share = 0.25
score = "f1"

[[tuned]]
name = "Summaries"
task = { kind = "text_to_text" }
train = "reviews.jsonl"
dev = "reviews.jsonl"
"""


@pytest.mark.full
def test_tables_name_what_is_measured_and_what_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    data, out, run = tmp_path / "data", tmp_path / "out", make_run(tmp_path / "run")
    data.mkdir()
    pair = {"sentence_good": "the day was warm", "sentence_bad": "the the day was"}
    (data / "pairs.jsonl").write_text(json.dumps(pair) + "\n")
    rows = [{"text": one.text, "label": one.label} for one in reviews(16, 1)]
    (data / "reviews.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    suites = tmp_path / "learned.toml"
    suites.write_text(SUITES)
    monkeypatch.setattr(learned, "SUITES", suites)
    call = [f"small={run}", "--data", str(data), "--out", str(out), "--quick"]
    learned.main(call)
    assert "Facts: not there: facts.jsonl" in capsys.readouterr().out
    page = (out / "learned.md").read_text()
    cells = {line.split(" | ")[0][2:]: line.split(" | ") for line in page.splitlines()}
    assert "; " in cells["Pairs"][3] and cells["Pairs"][2] == "0.500"
    assert cells["Reviews"][1] == "macro F1" and "; " in cells["Reviews"][4]
    assert cells["Summaries"][-1] == "– |"
    assert "- small, Summaries: this encoder model" in page
    # A second call measures what could not be measured, and nothing else.
    for name in ("asked", "tuned"):
        monkeypatch.setattr(learned, name, lambda *_: pytest.fail("measured again"))
    learned.main([*call, "--only", "Pairs,Reviews"])
    with (out / "learned.csv").open() as file:
        table = list(csv.DictReader(file))
    assert [row["of"] for row in table if row["row"] == "Pairs"] == ["model", "other", "chance"]
    assert {row["of"] for row in table if row["row"] == "Reviews"} == {
        "model", "other", "baseline", "bag of words"
    }  # fmt: skip
    # A run that is none is refused before anything is measured.
    with pytest.raises(SystemExit, match="2"):
        learned.main(["nowhere", *call])
