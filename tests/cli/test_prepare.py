from __future__ import annotations

import json
from pathlib import Path

import pytest

from foreword.cli.main import run
from foreword.data.prepared_text import PreparedText
from foreword.runs.run import require_free
from tests.cli.conftest import Refused
from tests.data.test_prepare import make_texts, write


@pytest.fixture
def text(tmp_path: Path) -> str:
    return str(write(tmp_path / "a.jsonl", make_texts(100)))


def test_prepare_prints_a_table_of_counts(
    tmp_path: Path, text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["prepare", text, "--out", str(tmp_path / "out"), "--kind", "char", "--heldout", "0.2"]
    assert run(words) == 0
    printed = capsys.readouterr()
    prepared = PreparedText.load(tmp_path / "out")
    for split in prepared.counts.values():
        assert f"{split.tokens:,}" in printed.out
    assert "written" in printed.out
    assert "files read  1" in printed.out
    assert "trained on  100 of 100 documents" in printed.out
    assert "a vocabulary of 10,000 requested, the text has" in printed.out
    assert run(words) == 0
    assert "unchanged, reused" in capsys.readouterr().out


def test_reused_shards_train_no_tokenizer(
    tmp_path: Path, text: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ["prepare", text, "--out", str(tmp_path / "out"), "--kind", "char", "--json"]
    assert run(words) == 0
    monkeypatch.setattr("foreword.text.tokenizers.char.Char.train", None)
    assert run(words) == 0
    outputs = [json.loads(part) for part in _documents(capsys.readouterr().out)]
    assert [each["reused"] for each in outputs] == [False, True]


@pytest.mark.product(few=2)
@pytest.mark.parametrize(
    "words",
    [["--vocab", "120"], ["--kind", "bpe"], ["--heldout", "0.2"], ["--no-sentences"], ["more"]],
    ids=" ".join,
)
def test_shards_that_runs_may_need_are_not_replaced_by_others(
    words: list[str], tmp_path: Path, text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    given = ["prepare", text, "--out", str(tmp_path / "out"), "--kind", "char"]
    assert run(given) == 0
    before = {path: path.read_bytes() for path in (tmp_path / "out").rglob("*.*")}
    if words == ["more"]:
        words = [str(write(tmp_path / "b.jsonl", make_texts(10)))]
    capsys.readouterr()
    assert run([*given, *words]) == 2
    message = capsys.readouterr().err
    assert "holds shards of another text, tokenizer or settings" in message
    assert {path: path.read_bytes() for path in (tmp_path / "out").rglob("*.*")} == before


def test_a_given_tokenizer_is_used(
    tmp_path: Path, text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["prepare", text, "--out", str(tmp_path / "one"), "--kind", "char"]) == 0
    tokenizer = str(tmp_path / "one" / "tokenizer")
    capsys.readouterr()
    words = ["prepare", text, "--out", str(tmp_path / "two"), "--tokenizer", tokenizer, "--json"]
    assert run(words) == 0
    first = PreparedText.load(tmp_path / "one")
    assert json.loads(capsys.readouterr().out)["fingerprint"] == first.fingerprint
    assert run([*words, "--kind", "char"]) == 2


@pytest.mark.product(few=3)
@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["--errors", "ignore"], "--errors: strict or replace"),
        (["--target", "text"], "--target: must differ from field, 'text'; name both sides"),
        (["--heldout", "0.1", "--heldout", "b.txt"], "--heldout: expected one share, or texts"),
        (["--kind", "bpee"], "did you mean 'bpe'"),
        (["--tokenizer", "nowhere"], "nowhere"),
    ],
)
def test_mistakes_are_reported_in_one_line(
    tmp_path: Path, text: str, words: list[str], expected: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["prepare", text, "--out", str(tmp_path / "out"), *words]) == 2
    message = capsys.readouterr().err
    assert expected in message
    assert message.count("\n") == 1
    assert not (tmp_path / "out" / "prepared.json").exists()


def test_other_files_and_runs_are_not_overwritten(
    tmp_path: Path, text: str, capsys: pytest.CaptureFixture[str], refused: Refused
) -> None:
    trained = tmp_path / "run"
    for name in ("recipe.toml", "run.json", "tokenizer/tokenizer.json", "shards/prepared.json"):
        (trained / name).parent.mkdir(parents=True, exist_ok=True)
        (trained / name).write_text("mine")
    (tmp_path / "mine" / "tokenizer").mkdir(parents=True)
    (tmp_path / "mine" / "tokenizer" / "tokenizer.json").write_text("mine")
    assert run(["prepare", text, "--out", str(tmp_path / "made"), "--kind", "char"]) == 0
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    capsys.readouterr()
    prepare, train = ["prepare", text, "--out"], ["tokenizer", "train", text, "--out"]
    for words, out, message in (
        (prepare, "run", f"belongs to the model in {trained}; choose another --out"),
        (prepare, "run/shards", "belongs to the model"),
        (train, "run/tokenizer", "belongs to the model"),
        (train, "run", "belongs to the model"),
        (train, "made/tokenizer", "belongs to the token shards"),
        (prepare, "mine", "is not empty; choose another --out"),
    ):
        assert f"{tmp_path / out}: {message}" in refused(
            *words, str(tmp_path / out), "--kind", "char"
        )
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before


def test_prepare_can_be_repeated_after_a_failure(tmp_path: Path, text: str) -> None:
    broken, out = tmp_path / "broken.jsonl", str(tmp_path / "out")
    broken.write_text(Path(text).read_text() + "{")
    tokenizer = ["--tokenizer", str(tmp_path / "t")]
    assert run(["tokenizer", "train", text, "--out", tokenizer[1], "--kind", "char"]) == 0
    assert run(["prepare", str(broken), "--out", out, *tokenizer]) == 2
    require_free(tmp_path / "out")
    assert run(["prepare", text, "--out", out, *tokenizer]) == 0


def test_files_not_read_are_reported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "texts"
    folder.mkdir()
    (folder / "a.txt").write_bytes(b"One \xff. Two.\n\nThree.\n")
    (folder / "b.txt").write_bytes(b"")
    (folder / "c.pdf").write_bytes(b"x")
    options = ["--kind", "char", "--errors", "replace", "--documents", "line", "--heldout", "0.4"]
    assert run(["prepare", str(folder), "--out", str(tmp_path / "out"), *options]) == 0
    printed = " ".join(capsys.readouterr().out.split())
    for message in (
        "empty files 1",
        "empty documents 1",
        "bytes replaced 1",
        "not read (1 .pdf) 1",
    ):
        assert message in printed


def _documents(text: str) -> list[str]:
    """JSON documents that were printed one after the other."""
    document, decoder = [], json.JSONDecoder()
    while text := text.strip():
        _, end = decoder.raw_decode(text)
        document.append(text[:end])
        text = text[end:]
    return document
